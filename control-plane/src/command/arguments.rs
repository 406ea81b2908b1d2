//! The arguments of `up`.

use super::Failure;

/// Components to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Simulated nodes.
    pub(crate) nodes: u32,
    /// `nvidia.com/gpu` of each node.
    pub(crate) gpus: u32,
    /// Nodes whose pods are processes.
    pub(crate) process_nodes: u32,
    /// Seconds without heartbeat after which a node counts as not ready.
    pub(crate) node_grace: Option<u32>,
}

impl Wanted {
    /// As arguments again.
    pub(crate) fn to_arguments(self) -> Vec<String> {
        let mut arguments = vec![
            format!("--nodes={}", self.nodes),
            format!("--gpus={}", self.gpus),
            format!("--process-nodes={}", self.process_nodes),
        ];
        arguments.extend(self.node_grace.map(|seconds| format!("--node-grace={seconds}")));
        arguments
    }
}

/// Reads `--flag value` and `--flag=value`.
pub(crate) fn parse(words: &[String]) -> Result<Wanted, Failure> {
    let (mut nodes, mut gpus, mut process_nodes, mut node_grace) = (None, None, None, None);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let (flag, value) = word.split_once('=').map_or((word.as_str(), None), |(flag, value)| (flag, Some(value)));
        let place = match flag {
            "--nodes" => &mut nodes,
            "--gpus" => &mut gpus,
            "--process-nodes" => &mut process_nodes,
            "--node-grace" => &mut node_grace,
            _ => return Err(Failure::Usage(format!("`up` does not know `{word}`"))),
        };
        let Some(value) = value.or_else(|| words.next().map(String::as_str)) else {
            return Err(Failure::Usage(format!("{flag} needs a number")));
        };
        let number: u32 = value.parse().map_err(|_| Failure::Usage(format!("{flag}: {value:?} is not a number")))?;
        *place = Some(number);
    }
    let process_nodes = process_nodes.unwrap_or(0);
    let nodes = nodes.unwrap_or(if process_nodes > 0 { 0 } else { 20 });
    Ok(Wanted { nodes, gpus: gpus.unwrap_or(8), process_nodes, node_grace })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Result<Wanted, String> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        parse(&words).map_err(|failure| match failure {
            Failure::Usage(text) | Failure::Other(text) => text,
            Failure::Error(error) => error.to_string(),
        })
    }

    #[test]
    fn defaults_depend_on_process_nodes() {
        let plain = Wanted { nodes: 20, gpus: 8, process_nodes: 0, node_grace: None };
        assert_eq!(words(""), Ok(plain));
        assert_eq!(words("--process-nodes 2"), Ok(Wanted { nodes: 0, process_nodes: 2, ..plain }));
        assert_eq!(words("--process-nodes=2 --nodes 3"), Ok(Wanted { nodes: 3, process_nodes: 2, ..plain }));
    }

    #[test]
    fn arguments_survive_a_round_trip() {
        let wanted = Wanted { nodes: 3, gpus: 0, process_nodes: 1, node_grace: Some(10) };
        assert_eq!(words(&wanted.to_arguments().join(" ")), Ok(wanted));
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert_eq!(words("--nodes"), Err("--nodes needs a number".into()));
        assert_eq!(words("--gpus eight"), Err("--gpus: \"eight\" is not a number".into()));
        assert_eq!(words("--nodes=-1"), Err("--nodes: \"-1\" is not a number".into()));
        assert_eq!(words("--node 1"), Err("`up` does not know `--node`".into()));
    }
}
