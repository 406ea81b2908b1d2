//! The APIs that this build serves.
//!
//! Owns the table. A new API is a folder beside this file, its `pub mod` in `lib.rs`, and a line here. No other product file names its
//! kind, but for commands that serve that kind alone (`cargo xtask check`).

use std::sync::Arc;

use settings::ApiSettings;

use crate::api::JobApi;
use crate::registry::Registry;
use crate::{
    aitrainingjob, elasticjob, jobqueue, models, modelversion, mpijob, torchjob, torchrunjob, torchrunqueue,
    trainingqueue,
};

/// Makes an API with the settings of an operator.
type Make = fn(&ApiSettings) -> Arc<dyn JobApi>;

/// Every API, by folder.
const SERVED: [Make; 10] = [
    |_| Arc::new(aitrainingjob::AiTrainingJob),
    |_| Arc::new(elasticjob::ElasticJob),
    |settings| Arc::new(jobqueue::JobQueue { successor: torchrunqueue::TorchrunQueue { settings: settings.torchrun } }),
    |_| Arc::new(models::Model),
    |settings| Arc::new(modelversion::ModelVersion { settings: settings.torch.models.clone() }),
    |_| Arc::new(mpijob::MpiJob),
    |settings| Arc::new(torchjob::TorchJob { settings: settings.torch.clone() }),
    |_| Arc::new(torchrunjob::TorchrunJob),
    |settings| Arc::new(torchrunqueue::TorchrunQueue { settings: settings.torchrun }),
    |_| Arc::new(trainingqueue::TrainingQueue),
];

impl Registry {
    /// Returns the registry of every API that this build serves.
    pub fn all() -> Self {
        Self::with(&ApiSettings::default())
    }

    /// Returns the registry of every API that this build serves, with settings of an operator.
    pub fn with(settings: &ApiSettings) -> Self {
        let mut registry = Self::default();
        for make in SERVED {
            registry.add(make(settings));
        }
        registry
    }
}
