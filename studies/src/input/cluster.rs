//! The GPUs of a study: how many of which type on which nodes.
//!
//! Written as `64` (no nodes), `16x4` (nodes x GPUs), several types as `v100:8x4,k80:16x8` (the first is the one durations
//! were measured on), or a CSV file with the columns `gpu_type`, `nodes`, `gpus_per_node`. Tests: at the end of this file.

use std::fmt::Write as _;
use std::io::Read;

use scheduler::GpuType;

use super::table::{Row, Table};
use super::{Error, OnBadRow};

/// GPUs of one type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// Name of the type; empty in a cluster of one type.
    pub gpu_type: String,
    /// GPUs in all.
    pub gpus: u32,
    /// GPUs of one node; `None` when nodes do not matter.
    pub per_node: Option<u32>,
}

/// A cluster: pools in the order given, the reference type first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// The pools; at least one, none empty.
    pub pools: Vec<Pool>,
}

impl Cluster {
    /// Reads the short form.
    ///
    /// # Errors
    /// The text is none, a number is missing or 0, or a type is listed twice.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let bad = |problem: String| Error::Cluster { text: text.to_owned(), problem };
        let number = |what: &str, part: &str| match part.trim().parse::<u32>() {
            Ok(0) => Err(bad(format!("{what} is 0; at least 1 is needed"))),
            Ok(n) => Ok(n),
            Err(_) => Err(bad(format!("{what} {part:?} is not a whole number; write for example 64 or 16x4"))),
        };
        let mut pools = Vec::new();
        for part in text.split(',') {
            let (gpu_type, size) = part.split_once(':').unwrap_or(("", part));
            let pool = match size.split_once('x') {
                None => Pool { gpu_type: gpu_type.trim().to_owned(), gpus: number("gpus", size)?, per_node: None },
                Some((nodes, per_node)) => {
                    let (nodes, per_node) = (number("nodes", nodes)?, number("gpus per node", per_node)?);
                    let gpus = nodes.checked_mul(per_node).ok_or_else(|| bad("has too many GPUs".to_owned()))?;
                    Pool { gpu_type: gpu_type.trim().to_owned(), gpus, per_node: Some(per_node) }
                }
            };
            pools.push(pool);
        }
        Self::checked(text, pools)
    }

    /// Reads the CSV form.
    ///
    /// # Errors
    /// The input cannot be read, lacks a column, or has a bad row.
    pub fn read(name: &str, input: impl Read) -> Result<Self, Error> {
        let table = Table::open(name, input)?;
        let columns = (table.need("gpu_type")?, table.need("nodes")?, table.need("gpus_per_node")?);
        let read = |row: &Row<'_>| {
            let (nodes, per_node) = (row.gpus(columns.1)?, row.gpus(columns.2)?);
            let gpus = nodes.checked_mul(per_node).ok_or_else(|| row.bad(columns.1, "makes too many GPUs"))?;
            Ok(Pool { gpu_type: row.text(columns.0).to_owned(), gpus, per_node: Some(per_node) })
        };
        let (pools, _) = table.rows(OnBadRow::Refuse, read)?;
        if pools.is_empty() {
            return Err(Error::Empty { file: name.to_owned() });
        }
        Self::checked(name, pools)
    }

    /// Returns the cluster of pools that `text` describes, or that are in the file of that name.
    fn checked(text: &str, pools: Vec<Pool>) -> Result<Self, Error> {
        for (i, pool) in pools.iter().enumerate() {
            if pools[..i].iter().any(|p| p.gpu_type == pool.gpu_type) {
                let problem = format!("lists GPU type {:?} twice", pool.gpu_type);
                return Err(Error::Cluster { text: text.to_owned(), problem });
            }
        }
        Ok(Self { pools })
    }

    /// All GPUs.
    pub fn gpus(&self) -> u32 {
        self.pools.iter().map(|p| p.gpus).fold(0, u32::saturating_add)
    }

    /// Returns the cluster's GPUs by type, for scheduling decisions.
    pub fn capacity(&self) -> Vec<(GpuType, u32)> {
        self.pools.iter().zip(0..).map(|(pool, i)| (GpuType(i), pool.gpus)).collect()
    }

    /// The short form again.
    pub fn label(&self) -> String {
        let mut text = String::new();
        for pool in &self.pools {
            let comma = if text.is_empty() { "" } else { "," };
            let colon = if pool.gpu_type.is_empty() { "" } else { ":" };
            let _ = match pool.per_node {
                Some(n) => write!(text, "{comma}{}{colon}{}x{n}", pool.gpu_type, pool.gpus / n),
                None => write!(text, "{comma}{}{colon}{}", pool.gpu_type, pool.gpus),
            };
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_form_reads_and_prints() {
        for (text, gpus) in [("64", 64), ("16x4", 64), ("v100:8x4,k80:16x8", 160), ("a:3,b:4", 7)] {
            let cluster = Cluster::parse(text).unwrap();
            assert_eq!((cluster.gpus(), cluster.label().as_str()), (gpus, text));
        }
        assert_eq!(Cluster::parse("a:3,b:4").unwrap().capacity(), [(GpuType(0), 3), (GpuType(1), 4)]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let cases = [
            ("0", "gpus is 0; at least 1 is needed"),
            ("", "gpus \"\" is not a whole number; write for example 64 or 16x4"),
            ("16x", "gpus per node \"\" is not a whole number; write for example 64 or 16x4"),
            ("a:4,a:5", "lists GPU type \"a\" twice"),
            ("70000x70000", "has too many GPUs"),
        ];
        for (text, problem) in cases {
            assert_eq!(Cluster::parse(text).unwrap_err().to_string(), format!("cluster {text:?}: {problem}"));
        }
    }

    #[test]
    fn the_csv_form_reads() {
        let text = "gpu_type,nodes,gpus_per_node\nv100,8,4\nk80,16,8\n";
        assert_eq!(Cluster::read("c.csv", text.as_bytes()).unwrap().label(), "v100:8x4,k80:16x8");
        let error = Cluster::read("c.csv", "gpu_type,nodes,gpus_per_node\nv100,0,4\n".as_bytes()).unwrap_err();
        assert_eq!(error.to_string(), "c.csv:2: column nodes: \"0\" must be at least 1");
    }
}
