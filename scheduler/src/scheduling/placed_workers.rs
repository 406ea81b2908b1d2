//! Keeps workers on nodes between decisions of a study.
//!
//! Workers stay where they are, and are moved only where that is worth its price ([`settle`]). Tests: in `studies`.

use std::collections::BTreeSet;

use model::Text;

use crate::job::Grant;
use crate::placement::{Demand, Node, Packing, Placement, PlacementError, Prices, settle};

/// Nodes, and the workers on them.
#[derive(Debug)]
pub struct PlacedWorkers {
    nodes: Vec<Node>,
    placement: Placement,
    packing: Packing,
    prices: Prices,
}

impl PlacedWorkers {
    /// Returns nodes without workers.
    pub fn new(nodes: Vec<Node>, packing: Packing, prices: Prices) -> Self {
        Self { nodes, placement: Placement::new(), packing, prices }
    }

    /// Places jobs with what they hold; returns those that had workers moved. Jobs not named leave.
    ///
    /// # Errors
    /// A node or a job is listed twice.
    pub fn place<'j>(
        &mut self,
        jobs: impl Iterator<Item = (&'j Text, Grant)>,
    ) -> Result<BTreeSet<Text>, PlacementError> {
        let demand = |(job, grant): (&Text, Grant)| Demand {
            gpu_type: Some(grant.gpu_type),
            ..Demand::new(job.clone(), grant.gpus)
        };
        let demands: Vec<Demand> = jobs.filter(|(_, grant)| !grant.is_none()).map(demand).collect();
        let plan = settle(&self.nodes, &demands, &self.placement, self.packing, &self.prices)?;
        self.placement = plan.placement;
        Ok(plan.migrated.into_iter().map(|(job, _)| job).collect())
    }

    /// Returns the number of nodes that a job is on.
    pub fn span(&self, job: &Text) -> usize {
        self.placement.get(job).into_iter().flatten().collect::<BTreeSet<_>>().len()
    }
}
