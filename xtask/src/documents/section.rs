//! Sections of a document: blocks that one shell runs, in one directory, with one cluster.
//!
//! Owns where a section begins, which cluster it has, and its script. It starts nothing.

use std::fmt::Write as _;

use super::markdown::Block;
use super::shell;

/// What commands find a cluster by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cluster {
    /// They need none.
    None,
    /// They install Trainyard themselves, or run its operator.
    Empty,
    /// Trainyard is installed, and its operator leads.
    Served,
}

/// Blocks that are run together.
#[derive(Debug, Clone)]
pub(super) struct Section<'a> {
    pub(super) blocks: Vec<&'a Block>,
    pub(super) cluster: Cluster,
    /// True if what they start may listen on ports that users know.
    pub(super) has_ports: bool,
}

/// Divides the blocks that are run: a new section begins with each one that is `fresh`. What readers do not see belongs to what follows.
pub(super) fn divide(blocks: &[Block]) -> Vec<Section<'_>> {
    use super::markdown::Kind::Hidden;

    let mut groups: Vec<Vec<&Block>> = vec![Vec::new()];
    let mut hidden: Vec<&Block> = Vec::new();
    for block in blocks.iter().filter(|block| block.is_run) {
        if block.is_fresh {
            groups.push(Vec::new());
        }
        let Some(group) = groups.last_mut() else { continue };
        if block.kind == Hidden {
            hidden.push(block);
        } else {
            group.append(&mut hidden);
            group.push(block);
        }
    }
    if let Some(last) = groups.last_mut() {
        last.append(&mut hidden);
    }
    groups.retain(|group| !group.is_empty());
    let section = |blocks: Vec<_>| Section { cluster: cluster(&blocks), has_ports: has_ports(&blocks), blocks };
    groups.into_iter().map(section).collect()
}

fn has_ports(blocks: &[&Block]) -> bool {
    let commands = blocks.iter().flat_map(|block| shell::commands(&block.script));
    let listens = |command: shell::Command| {
        let verbs = ["operator", "serve", "port-forward", "proxy", "node-agent"];
        command.program().iter().any(|word| verbs.contains(&word.as_str()))
    };
    commands.into_iter().any(listens)
}

/// Finds out by the commands which cluster they need.
fn cluster(blocks: &[&Block]) -> Cluster {
    let mut wanted = Cluster::None;
    for command in blocks.iter().flat_map(|block| shell::commands(&block.script)) {
        let words: Vec<&str> = command.program().iter().map(String::as_str).collect();
        match words.as_slice() {
            ["trainyard", "operator", ..] | ["cargo", "xtask", "cluster", ..] | ["helm", "install", ..] => {
                return Cluster::Empty;
            }
            ["kubectl", rest @ ..] if rest.windows(2).any(|pair| matches!(pair, ["-k", path] if installs(path))) => {
                return Cluster::Empty;
            }
            ["kubectl" | "helm" | "kubectl-trainyard" | "kubectl-torchrun" | "voda", ..]
            | ["trainyard", "torchrun" | "voda" | "collect" | "node-agent", ..] => wanted = Cluster::Served,
            ["trainyard", rest @ ..] if rest.iter().any(|word| word.starts_with("--server")) => {
                wanted = Cluster::Served;
            }
            _ => {}
        }
    }
    wanted
}

/// Whether a kustomization of this repository installs the operator, as those of components do not.
fn installs(path: &str) -> bool {
    path.starts_with("deploy/base") || path.starts_with("deploy/overlays/namespaced")
}

/// The script of some blocks. Each command stands on the line that it has in the document, so that what bash says of lines is true of it.
pub(super) fn script(name: &str, blocks: &[&Block]) -> String {
    let mut script = String::new();
    let mut next = 1;
    let mut put = |number: usize, text: &str| {
        while next < number {
            script.push('\n');
            next += 1;
        }
        let _ = writeln!(script, "{text}");
        next += 1;
    };
    for block in blocks {
        let marker = marker(name, block.line);
        put(block.line, &format!("echo '{marker}'{}", if block.fails { "; if {" } else { "" }));
        for (number, text) in &block.script {
            put(*number, text);
        }
        if block.fails {
            put(block.end, "}; then echo 'its last command was to fail'; exit 1; fi");
        }
    }
    script
}

/// What stands in the output before that of a block.
pub(super) fn marker(name: &str, line: usize) -> String {
    format!("== {name}:{line}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::markdown;

    fn clusters(text: &str) -> Vec<(usize, Cluster)> {
        let blocks = markdown::blocks(text).unwrap();
        divide(&blocks).iter().map(|section| (section.blocks.len(), section.cluster)).collect()
    }

    #[test]
    fn a_fresh_block_begins_a_section_with_what_is_hidden_before_it() {
        let text = "```sh\na\n```\n<!-- sh\nb\n-->\n```sh fresh\nc\n```\n```sh by-hand\nd\n```\n```sh\ne\n```\n<!-- sh\nf\n-->\n";
        assert_eq!(clusters(text), [(1, Cluster::None), (4, Cluster::None)]);
    }

    #[test]
    fn the_cluster_follows_from_the_commands() {
        let of = |command: &str| clusters(&format!("```sh\n{command}\n```\n")).first().map(|(_, cluster)| *cluster);
        let none = ["trainyard ps", "helmet install", "echo kubectl"];
        let empty = ["trainyard operator &", "kubectl apply -k deploy/base", "helm install trainyard deploy/chart"];
        let served = [
            "kubectl get pods",
            "A=b trainyard ps --server auto",
            "kubectl torchrun list",
            "x=$(kubectl apply -k deploy/components/x)",
        ];
        assert!(none.iter().all(|command| of(command) == Some(Cluster::None)));
        assert!(empty.iter().all(|command| of(command) == Some(Cluster::Empty)));
        assert!(served.iter().all(|command| of(command) == Some(Cluster::Served)));
    }

    #[test]
    fn commands_keep_their_lines() {
        let blocks = markdown::blocks("# T\n```sh\na\n```\n\n```console\n$ b\nx\n$ c\n```\n").unwrap();
        let all: Vec<&Block> = blocks.iter().collect();
        assert_eq!(script("d.md", &all), "\necho '== d.md:2'\na\n\n\necho '== d.md:6'\nb\n\nc\n");
    }
}
