//! The APIs that this build serves.

use std::sync::Arc;

use crate::aitrainingjob::AiTrainingJob;
use crate::elasticjob::ElasticJob;
use crate::registry::Registry;
use crate::torchrunjob::TorchrunJob;
use crate::torchrunqueue::TorchrunQueue;
use crate::trainingqueue::TrainingQueue;

impl Registry {
    /// Returns the registry of every API that this build serves.
    pub fn all() -> Self {
        let mut registry = Self::default();
        registry.add(Arc::new(AiTrainingJob));
        registry.add(Arc::new(ElasticJob));
        registry.add(Arc::new(TorchrunJob));
        registry.add(Arc::new(TorchrunQueue));
        registry.add(Arc::new(TrainingQueue));
        registry
    }
}
