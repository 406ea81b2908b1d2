//! The environment that PyTorch reads to find its peers, for pods without one of their own, and the ports in that of any pod.
//!
//! Owns the names of the variables, and which words hold a port at which rank 0 serves the group. One pod is one process here: what
//! `torchrun` starts below it gets values of its own from it.
//! Tests: at the end.

use std::fmt::Write as _;

use crate::options::Peer;

/// Port at which the program of rank 0 serves the group: PyTorch's own default.
const MASTER_PORT: &str = "29500";

/// Variables that hold such a port and nothing else.
const PORTS: [&str; 2] = ["MASTER_PORT", "PET_MASTER_PORT"];

/// Option of the launcher with which each pod is alone.
const STANDALONE: &str = "--standalone";

/// Start of the names of variables that the launcher takes for options that its command line does not have.
const OF_LAUNCHER: &str = "PET_";

/// Returns the variables of a pod; `master` is the address of rank 0.
pub(crate) fn variables(peer: &Peer, master: &str) -> Vec<(String, String)> {
    let (rank, size) = (peer.rank.to_string(), peer.world_size.to_string());
    let all = [
        ("MASTER_ADDR", master),
        ("MASTER_PORT", MASTER_PORT),
        ("WORLD_SIZE", &size),
        ("RANK", &rank),
        ("LOCAL_WORLD_SIZE", "1"),
        ("LOCAL_RANK", "0"),
        ("PET_NNODES", &size),
        ("PET_NPROC_PER_NODE", "1"),
        ("PET_NODE_RANK", &rank),
        ("PET_MASTER_ADDR", master),
        ("PET_MASTER_PORT", MASTER_PORT),
        ("PYTHONUNBUFFERED", "1"),
    ];
    all.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
}

/// Returns those of the variables that suit a command: a launcher that is set to be alone would wait for others otherwise.
pub(crate) fn of_command<'a>(
    variables: &'a [(String, String)],
    mut words: impl Iterator<Item = &'a str>,
) -> Vec<(String, String)> {
    let alone = words.any(|word| word.contains(STANDALONE));
    variables.iter().filter(|(name, _)| !(alone && name.starts_with(OF_LAUNCHER))).cloned().collect()
}

/// Replaces the port of rank 0 in the value of a variable; `master` is its address.
pub(crate) fn with_port(name: &str, value: &str, master: &str, port_of: &dyn Fn(u16) -> u16) -> String {
    match value.parse() {
        Ok(port) if PORTS.contains(&name) => port_of(port).to_string(),
        _ => with_ports(value, master, port_of),
    }
}

/// Replaces the ports that follow the address of rank 0 in a text.
pub(crate) fn with_ports(text: &str, master: &str, port_of: &dyn Fn(u16) -> u16) -> String {
    let mut parts = text.split(master);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for after in parts {
        let whole = !out.ends_with(|c: char| c.is_ascii_digit() || c == '.');
        out.push_str(master);
        let digits = after.strip_prefix(':').filter(|_| whole).unwrap_or_default();
        let digits = &digits[..digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len())];
        match digits.parse() {
            Ok(port) => {
                let _ = write!(out, ":{}{}", port_of(port), &after[1 + digits.len()..]);
            }
            Err(_) => out.push_str(after),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(words: &[&str]) -> Vec<String> {
        let peer = Peer { rank: 1, world_size: 4, master: "j-w-0".to_owned() };
        let all = variables(&peer, "127.9.0.1");
        of_command(&all, words.iter().copied()).into_iter().map(|(name, value)| format!("{name}={value}")).collect()
    }

    #[test]
    fn every_pod_knows_its_rank_and_where_rank_0_is() {
        let found = names(&["python", "train.py"]);
        for want in ["RANK=1", "WORLD_SIZE=4", "LOCAL_RANK=0", "MASTER_ADDR=127.9.0.1", "MASTER_PORT=29500"] {
            assert!(found.iter().any(|one| one == want), "{want}: {found:?}");
        }
        for want in ["PET_NNODES=4", "PET_NODE_RANK=1", "PET_MASTER_ADDR=127.9.0.1", "PYTHONUNBUFFERED=1"] {
            assert!(found.iter().any(|one| one == want), "{want}: {found:?}");
        }
    }

    #[test]
    fn a_launcher_that_is_alone_is_not_notified_of_others() {
        for words in [&["torchrun", "--standalone", "train.py"][..], &["sh", "-c", "torchrun --standalone train.py"]] {
            let found = names(words);
            assert!(found.iter().all(|one| !one.starts_with("PET_")), "{found:?}");
            assert!(found.iter().any(|one| one == "RANK=1"), "{found:?}");
        }
    }

    #[test]
    fn ports_of_rank_0_are_replaced_wherever_they_stand() {
        let port_of = |port: u16| if port == 2222 { port } else { port + 1 };
        for (name, value, want) in [
            ("MASTER_PORT", "29500", "29501"),
            ("PET_MASTER_PORT", "29500", "29501"),
            ("MASTER_PORT", "2222", "2222"),
            ("MASTER_PORT", "none", "none"),
            ("OTHER_PORT", "29500", "29500"),
            ("PET_RDZV_ENDPOINT", "127.9.0.1:29400", "127.9.0.1:29401"),
            ("HOSTS", "127.9.0.1:80,127.9.0.2:80,127.9.0.1:2222", "127.9.0.1:81,127.9.0.2:80,127.9.0.1:2222"),
            ("URL", "tcp://127.9.0.1:23456/x:1", "tcp://127.9.0.1:23457/x:1"),
            ("A", "127.9.0.1", "127.9.0.1"),
            ("A", "127.9.0.1:", "127.9.0.1:"),
            ("A", "127.9.0.1:70000", "127.9.0.1:70000"),
            ("A", "127.9.0.11:80", "127.9.0.11:80"),
            ("A", "1127.9.0.1:80", "1127.9.0.1:80"),
        ] {
            assert_eq!(with_port(name, value, "127.9.0.1", &port_of), want, "{name}={value}");
        }
    }
}
