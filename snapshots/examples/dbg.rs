//! x
#![allow(missing_docs)]
use simulator::faults::*;
use simulator::scenario::Boundary;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let s = simulator::load(std::path::Path::new(&a[1])).unwrap();
    if a.len() > 2 {
        let nth: u32 = a[2][2..].parse().unwrap();
        let d = Death {
            boundary: if &a[2][1..2] == "a" { Boundary::Append } else { Boundary::Call },
            after: &a[2][..1] == ">",
            nth,
            aftermath: if a.len() > 3 { Aftermath::NoLog } else { Aftermath::SameLog },
            anywhere: true,
        };
        let o = simulator::run_with(&s, Some(d)).unwrap();
        println!("{}", simulator::text::render(&s, &o));
        if std::env::var("MIRROR").is_ok() {
            for st in &o.steps {
                for ob in &st.objects {
                    if ob["kind"] == "AITrainingJob" {
                        println!("{}", ob["status"]["trainyard"]);
                    }
                }
            }
        }
    } else {
        let r = simulator::sweep::sweep(&s, &[Aftermath::SameLog, Aftermath::NoLog], 1);
        for f in &r.failures {
            println!("{}", f.chars().take(400).collect::<String>());
        }
        println!("{} of {}", r.failures.len(), r.points);
    }
}
