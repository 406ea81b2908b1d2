//! Faults that a run or a simulation is told to have: `--fault`.

use std::fmt;
use std::str::FromStr;

/// What goes wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What {
    /// A pod exits with a code.
    Exit {
        /// The pod.
        pod: String,
        /// The code.
        code: i32,
    },
    /// A node fails.
    Node {
        /// The node.
        node: String,
    },
    /// A pod's image cannot be pulled, the first time it is tried.
    Image {
        /// The pod.
        pod: String,
    },
    /// A job is preempted.
    Preempt {
        /// The job.
        job: String,
    },
}

/// What goes wrong, and how long after the pod or the job began to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    /// What.
    pub(crate) what: What,
    /// Milliseconds after its pod (its job, for a node: any job) was first seen running; for images: how long, 0 is for good.
    pub(crate) after_ms: u64,
}

/// How faults are written, for messages.
pub(crate) const SYNTAX: &str = "exit=POD:CODE[@TIME], node=NODE[@TIME], image=POD[@FOR] or preempt=JOB[@TIME]";

/// A fault that cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unreadable(String);

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; a fault is {SYNTAX}", self.0)
    }
}

impl std::error::Error for Unreadable {}

impl FromStr for Fault {
    type Err = Unreadable;

    fn from_str(text: &str) -> Result<Self, Unreadable> {
        let (verb, rest) = text.split_once('=').ok_or_else(|| Unreadable(format!("{text}: no = in it")))?;
        let (target, after) = rest.rsplit_once('@').map_or((rest, None), |(target, time)| (target, Some(time)));
        let after_ms = match after {
            None => 0,
            Some(time) => simulator::duration::parse_ms(time).map_err(|e| Unreadable(format!("{time}: {e}")))?,
        };
        if target.is_empty() {
            return Err(Unreadable(format!("{text}: nothing named after =")));
        }
        let named = || target.to_owned();
        let what = match verb {
            "exit" => {
                let (pod, code) =
                    target.rsplit_once(':').ok_or_else(|| Unreadable(format!("{target}: no exit code")))?;
                let code = code.parse().map_err(|_| Unreadable(format!("{code}: no exit code from 0 to 255")))?;
                if !(0..=255).contains(&code) {
                    return Err(Unreadable(format!("{code}: no exit code from 0 to 255")));
                }
                What::Exit { pod: pod.to_owned(), code }
            }
            "node" => What::Node { node: named() },
            "image" => What::Image { pod: named() },
            "preempt" => What::Preempt { job: named() },
            _ => return Err(Unreadable(format!("{verb}: no such fault"))),
        };
        Ok(Self { what, after_ms })
    }
}

#[cfg(test)]
mod tests {
    use super::{Fault, What};

    #[test]
    fn faults_are_read() {
        let fault: Fault = "exit=j-trainer-1:137@2s".parse().unwrap();
        assert_eq!(fault, Fault { what: What::Exit { pod: "j-trainer-1".into(), code: 137 }, after_ms: 2000 });
        let fault: Fault = "node=local-1".parse().unwrap();
        assert_eq!(fault, Fault { what: What::Node { node: "local-1".into() }, after_ms: 0 });
        for bad in ["exit", "exit=", "exit=p", "exit=p:x", "exit=p:300", "node=n@soon", "melt=n"] {
            assert!(bad.parse::<Fault>().unwrap_err().to_string().contains("a fault is"), "{bad}");
        }
    }
}
