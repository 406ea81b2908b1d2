//! Numbers of nodes and GPUs: from what a job asks for to what each worker gets.
//!
//! Owns the arithmetic, and the shape of the workers: what of the numbers is written into each of them. It must not read manifests.
//! Tests: at the end of this file.

use model::Text;

/// Numbers of a job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Size {
    /// Pods.
    pub(super) nodes: u32,
    /// Least and greatest number of pods, where the job may train with fewer.
    pub(super) range: Option<(u32, u32)>,
    /// GPUs of all pods together, where that was written.
    pub(super) gpus: Option<u32>,
}

/// What a job asks for.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Asked {
    /// `numNodes`.
    pub(super) nodes: Option<u32>,
    /// `numGPUs`.
    pub(super) gpus: Option<u32>,
    /// `minNodes`.
    pub(super) min: Option<u32>,
    /// `maxNodes`.
    pub(super) max: Option<u32>,
}

/// Why a job has no size: the field, and the problem.
pub(super) type Problem = (&'static str, String);

impl Size {
    /// Returns the size of a job on nodes with this many GPUs.
    ///
    /// # Errors
    /// Returns an error if the numbers contradict each other, or the nodes have no GPUs.
    pub(super) fn of(asked: Asked, per_node: u32) -> Result<Self, Problem> {
        let by_gpus = match asked.gpus {
            Some(0) | None => None,
            Some(_) if per_node == 0 => {
                return Err(("numGPUs", "the nodes of the queue have no GPUs".to_owned()));
            }
            Some(gpus) => Some(gpus.div_ceil(per_node)),
        };
        if let (Some(nodes), Some(needed)) = (asked.nodes, by_gpus)
            && nodes != needed
        {
            let problem = format!(
                "asks for {nodes} nodes, but numGPUs needs {needed} of {per_node} GPUs each: write one of them"
            );
            return Err(("numNodes", problem));
        }
        let written = asked.nodes.or(by_gpus);
        let range = match (asked.min, asked.max) {
            (None, None) => None,
            (min, max) => {
                let most = max.or(written).or(min).unwrap_or(1);
                let least = min.unwrap_or(1);
                if least > most {
                    return Err(("minNodes", format!("must be at most the greatest number of nodes, which is {most}")));
                }
                Some((least, most))
            }
        };
        let nodes = written.or_else(|| range.map(|(_, most)| most)).unwrap_or(1);
        if let Some((least, most)) = range.filter(|(least, most)| !(*least..=*most).contains(&nodes)) {
            return Err(("numNodes", format!("must be from {least} to {most}, as minNodes and maxNodes say")));
        }
        Ok(Self { nodes, range, gpus: asked.gpus })
    }

    /// Returns the GPUs of all pods together.
    pub(super) fn total(&self, per_node: u32) -> u32 {
        self.gpus.unwrap_or_else(|| per_node.saturating_mul(self.nodes))
    }

    /// Returns the greatest number of pods.
    pub(super) fn most(&self) -> u32 {
        self.range.map_or(self.nodes, |(_, most)| most)
    }

    /// Returns what is written into each worker. Workers of another shape do not fit in.
    pub(super) fn shape(&self) -> Text {
        let nodes = self.range.map_or_else(|| self.nodes.to_string(), |(least, most)| format!("{least}:{most}"));
        Text::from(self.gpus.map_or_else(|| nodes.clone(), |gpus| format!("{nodes}/{gpus}")))
    }
}

/// The shape of a worker, read back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape<'a> {
    /// Number of nodes, or a range, as the launcher takes it.
    pub(super) nodes: &'a str,
    /// GPUs of all pods together, where that was written.
    pub(super) gpus: Option<u32>,
}

impl<'a> Shape<'a> {
    /// Reads the shape of a group.
    pub(super) fn read(shape: Option<&'a str>) -> Self {
        let shape = shape.unwrap_or("1");
        let (nodes, gpus) = shape.split_once('/').map_or((shape, None), |(nodes, gpus)| (nodes, gpus.parse().ok()));
        Self { nodes, gpus }
    }

    /// Returns true if there are, or may be, several workers.
    pub(super) fn is_distributed(self) -> bool {
        self.nodes != "1"
    }

    /// Returns true if the number of workers may change while they run.
    pub(super) fn is_elastic(self) -> bool {
        self.nodes.contains(':')
    }

    /// Returns the GPUs of one worker. The last one gets what is left.
    pub(super) fn gpus_of(self, index: u32, per_node: u32) -> u32 {
        let Some(total) = self.gpus else { return per_node };
        match total.saturating_sub(per_node.saturating_mul(index)) {
            // A worker beyond what was asked for has a whole node.
            0 if total > 0 => per_node,
            left => left.min(per_node),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(nodes: Option<u32>, gpus: Option<u32>, per_node: u32) -> Result<Vec<u32>, Problem> {
        let size = Size::of(Asked { nodes, gpus, min: None, max: None }, per_node)?;
        let shape = size.shape();
        let shape = Shape::read(Some(&shape));
        Ok((0..size.nodes).map(|index| shape.gpus_of(index, per_node)).collect())
    }

    #[test]
    fn gpus_are_distributed_over_as_few_nodes_as_possible() {
        for (gpus, on_8, on_4) in [
            (1, vec![1], vec![1]),
            (4, vec![4], vec![4]),
            (8, vec![8], vec![4, 4]),
            (12, vec![8, 4], vec![4; 3]),
            (16, vec![8, 8], vec![4; 4]),
            (20, vec![8, 8, 4], vec![4; 5]),
            (32, vec![8; 4], vec![4; 8]),
        ] {
            assert_eq!(of(None, Some(gpus), 8), Ok(on_8), "{gpus}");
            assert_eq!(of(None, Some(gpus), 4), Ok(on_4), "{gpus}");
        }
    }

    #[test]
    fn without_a_number_of_gpus_each_node_is_whole() {
        assert_eq!(of(Some(2), None, 8), Ok(vec![8, 8]));
        assert_eq!(of(None, None, 8), Ok(vec![8]));
        assert_eq!(of(Some(3), Some(0), 8), Ok(vec![0, 0, 0]));
        assert_eq!(of(None, None, 0), Ok(vec![0]));
        assert_eq!(of(None, Some(4), 0).unwrap_err().0, "numGPUs");
        assert_eq!(of(Some(3), Some(16), 8).unwrap_err().0, "numNodes");
        assert_eq!(of(Some(2), Some(16), 8), Ok(vec![8, 8]));
    }

    #[test]
    fn ranges_hold_the_number_of_nodes() {
        let of = |nodes, min, max| {
            Size::of(Asked { nodes, gpus: None, min, max }, 8).map(|s| (s.nodes, s.shape().to_string()))
        };
        assert_eq!(of(None, Some(1), Some(4)), Ok((4, "1:4".to_owned())));
        assert_eq!(of(Some(2), Some(1), Some(4)), Ok((2, "1:4".to_owned())));
        assert_eq!(of(Some(2), Some(1), None), Ok((2, "1:2".to_owned())));
        assert_eq!(of(None, None, Some(3)), Ok((3, "1:3".to_owned())));
        assert_eq!(of(Some(5), Some(1), Some(4)).unwrap_err().0, "numNodes");
        assert_eq!(of(None, Some(5), Some(4)).unwrap_err().0, "minNodes");
    }
}
