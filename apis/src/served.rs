//! The APIs that this build serves.

use std::sync::Arc;

use settings::{ModelSettings, TorchSettings};

use crate::aitrainingjob::AiTrainingJob;
use crate::elasticjob::ElasticJob;
use crate::jobqueue::JobQueue;
use crate::models::Model;
use crate::modelversion::ModelVersion;
use crate::mpijob::MpiJob;
use crate::registry::Registry;
use crate::torchjob::TorchJob;
use crate::torchrunjob::TorchrunJob;
use crate::torchrunqueue::TorchrunQueue;
use crate::trainingqueue::TrainingQueue;

impl Registry {
    /// Returns the registry of every API that this build serves.
    pub fn all() -> Self {
        Self::with(TorchSettings::default(), ModelSettings::default())
    }

    /// Returns the registry of every API that this build serves, with settings of an operator.
    pub fn with(torch: TorchSettings, models: ModelSettings) -> Self {
        let mut registry = Self::default();
        registry.add(Arc::new(AiTrainingJob));
        registry.add(Arc::new(ElasticJob));
        registry.add(Arc::new(JobQueue));
        registry.add(Arc::new(Model));
        registry.add(Arc::new(ModelVersion { settings: models }));
        registry.add(Arc::new(MpiJob));
        registry.add(Arc::new(TorchJob { settings: torch }));
        registry.add(Arc::new(TorchrunJob));
        registry.add(Arc::new(TorchrunQueue));
        registry.add(Arc::new(TrainingQueue));
        registry
    }
}
