//! Phases in the words of their APIs. Tests: the golden outputs of `ps` and `explain`.

use apis::Registry;
use model::{JobKey, Phase};

/// Word for a job whose object is gone, instead of a phase.
pub const DELETED: &str = "Deleted";

/// Returns the name that the job's API has for a phase; empty for a phase without one.
pub fn phase_word(registry: &Registry, key: &JobKey, phase: Phase) -> &'static str {
    registry.api_of(key).map_or("", |api| api.phase_word(phase))
}

/// Returns the name that the job's API has for a phase; `not started` for a phase without one.
pub fn end_word(registry: &Registry, key: &JobKey, phase: Phase) -> &'static str {
    match phase_word(registry, key, phase) {
        "" => "not started",
        word => word,
    }
}
