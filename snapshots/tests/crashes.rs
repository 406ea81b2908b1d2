//! x
#![allow(missing_docs)]
use simulator::faults::Aftermath;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
#[test]
fn sweep() {
    let only = std::env::var("ONLY").ok();
    let all: Vec<_> = fixtures::scenarios("aitrainingjob")
        .unwrap()
        .into_iter()
        .filter(|n| only.as_ref().is_none_or(|o| n.name.contains(o.as_str())))
        .collect();
    let next = AtomicUsize::new(0);
    let out = Mutex::new((0, 0, Vec::new()));
    std::thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                loop {
                    let Some(named) = all.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
                    let sc = named.scenario.as_ref().unwrap();
                    let stride = if named.name == "many-pods" { 50 } else { 1 };
                    let t = std::time::Instant::now();
                    let r = simulator::sweep::sweep(sc, &[Aftermath::SameLog, Aftermath::NoLog], stride);
                    let mut o = out.lock().unwrap();
                    o.0 += r.points;
                    if !r.failures.is_empty() {
                        o.1 += 1;
                        let k = r.failures.len();
                        let mut m = format!("== {} {k} of {} ({:?})\n", named.name, r.points, t.elapsed());
                        let mut seen = std::collections::BTreeMap::new();
                        for f in &r.failures {
                            let (at, what) = f.split_once(": ").unwrap();
                            let lost = at.contains("lost");
                            seen.entry((what.chars().take(700).collect::<String>(), lost))
                                .or_insert_with(Vec::new)
                                .push(
                                    at.replace(", log lost", "")
                                        .replace("before ", "<")
                                        .replace("after ", ">")
                                        .replace("append ", "a")
                                        .replace("call ", "c"),
                                );
                        }
                        for ((w, lost), ats) in seen.iter().take(6) {
                            m += &format!("    {}[{}] {w}\n", if *lost { "LOST " } else { "" }, ats.join(" "));
                        }
                        o.2.push((named.name.clone(), m));
                    }
                }
            });
        }
    });
    let mut o = out.into_inner().unwrap();
    o.2.sort();
    for (_, m) in &o.2 {
        print!("{m}");
    }
    println!("{} points, {} scenarios of {} differ", o.0, o.1, all.len());
}
