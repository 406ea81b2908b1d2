//! Service objects: object -> [`ServiceFact`]. Tests: at the end of this file.

use model::{FieldError, ServiceFact};
use serde_json::Value;

use crate::api::JobApi;
use crate::objects::{deleting_at, name, resource_version, uid};

/// Reads the fact about a service that belongs to a job of `api`.
///
/// # Errors
/// Returns an error if the object has no uid.
pub fn fact(api: &dyn JobApi, object: &Value) -> Result<ServiceFact, FieldError> {
    Ok(ServiceFact {
        uid: uid(object)?,
        slot: api.slot_of(object),
        name: name(object),
        rv: resource_version(object),
        deleting: deleting_at(object).is_some(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::aitrainingjob::AiTrainingJob;

    #[test]
    fn slot_and_deletion_are_read() {
        let mut object = json!({"metadata": {"name": "j-trainer-0", "uid": "s1", "resourceVersion": "9",
            "labels": {"TrainingJobReplicaName": "trainer", "TrainingJobReplicaIndex": "0"}}});
        let found = fact(&AiTrainingJob, &object).unwrap();
        assert_eq!((found.slot.unwrap().to_string().as_str(), found.deleting, found.rv.0), ("trainer-0", false, 9));
        object["metadata"]["deletionTimestamp"] = json!("2024-02-29T00:00:00Z");
        object["metadata"]["labels"]["TrainingJobReplicaIndex"] = json!("x");
        let found = fact(&AiTrainingJob, &object).unwrap();
        assert!(found.deleting && found.slot.is_none());
        object["metadata"]["uid"] = json!(null);
        assert_eq!(fact(&AiTrainingJob, &object).unwrap_err().path, "metadata.uid");
    }
}
