//! x
#![allow(missing_docs)]
use simulator::check;
#[test]
fn all() {
    let only = std::env::var("ONLY").ok();
    let mut bad = 0;
    let mut n = 0;
    for named in fixtures::scenarios("aitrainingjob").unwrap() {
        if only.as_ref().is_some_and(|o| !named.name.contains(o.as_str())) {
            continue;
        }
        n += 1;
        let scenario = named.scenario.unwrap_or_else(|e| panic!("{e}"));
        let run = std::panic::catch_unwind(|| simulator::run(&scenario));
        let Ok(run) = run else {
            println!("PANIC {}", named.name);
            bad += 1;
            continue;
        };
        let failures = check::failures(&scenario, &run);
        if !failures.is_empty() {
            bad += 1;
            println!("== {}", named.name);
            for f in &failures {
                println!("   {f}");
            }
        }
        if only.is_some() {
            if let Ok(run) = &run {
                println!("{}", simulator::text::render(&scenario, run));
            }
        }
    }
    println!("{bad} of {n} differ");
    assert_eq!(bad, 0);
}
