//! The APIs that this build serves.

use std::sync::Arc;

use settings::ApiSettings;

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
        Self::with(ApiSettings::default())
    }

    /// Returns the registry of every API that this build serves, with settings of an operator.
    pub fn with(settings: ApiSettings) -> Self {
        let ApiSettings { torch, torchrun } = settings;
        let mut registry = Self::default();
        registry.add(Arc::new(AiTrainingJob));
        registry.add(Arc::new(ElasticJob));
        let queue = TorchrunQueue { settings: torchrun };
        registry.add(Arc::new(JobQueue { successor: queue }));
        registry.add(Arc::new(Model));
        registry.add(Arc::new(ModelVersion { settings: torch.models.clone() }));
        registry.add(Arc::new(MpiJob));
        registry.add(Arc::new(TorchJob { settings: torch }));
        registry.add(Arc::new(TorchrunJob));
        registry.add(Arc::new(queue));
        registry.add(Arc::new(TrainingQueue));
        registry
    }
}
