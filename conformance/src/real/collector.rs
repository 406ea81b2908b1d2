//! Waiting for the server's controllers: the embedded cluster collects at once what they collect a little later.
//!
//! Owns how long they are waited for. It must not delete anything itself.

use std::time::Instant;

use apis::{ApiError, Resource, objects};
use k8s_driver::harness::collection;
use serde_json::Value;

use super::{GC_POLL_INTERVAL, GC_TIMEOUT, OF_JOBS, Real};

impl Real {
    /// Waits until a controller has let go the claims that are being deleted and that no pod uses. They are not waited for again once
    /// none is left.
    pub(super) fn await_claims(&mut self) -> Result<(), ApiError> {
        let until = Instant::now() + GC_TIMEOUT;
        while self.deletes_claims && Instant::now() < until {
            let (mut going, mut used) = (0, 0);
            for namespace in self.namespaces.iter().map(|namespace| self.names.out(namespace)) {
                let pods = self.server.list(&collection("v1", "pods", Some(&namespace)), "v1", "Pod")?;
                let uses = |pod: &Value, claim: &str| {
                    let name = |volume: &Value| volume.pointer("/persistentVolumeClaim/claimName").cloned();
                    objects::list_at(pod, &["spec", "volumes"]).iter().any(|each| name(each) == Some(claim.into()))
                };
                let claims = collection("v1", "persistentvolumeclaims", Some(&namespace));
                for claim in self.server.list(&claims, "v1", "PersistentVolumeClaim")? {
                    if objects::deleting_at(&claim).is_some() {
                        going += 1;
                        used += usize::from(pods.iter().any(|pod| uses(pod, &objects::name(&claim))));
                    }
                }
            }
            self.deletes_claims = going > 0;
            if going == used {
                break;
            }
            std::thread::sleep(GC_POLL_INTERVAL);
        }
        Ok(())
    }

    /// Waits until nothing is left of what an object owned but what is being deleted.
    pub(super) fn await_collection(&self, namespace: &str, uid: &str) -> Result<(), ApiError> {
        let until = Instant::now() + GC_TIMEOUT;
        let namespace = self.names.out(namespace);
        let jobs = self.registry.iter().map(|api| (api.resource(), api.descriptor().plural));
        let of_jobs = OF_JOBS.iter().map(|(plural, kind)| (Resource::new("v1", kind), *plural));
        let types: Vec<(Resource, &str)> = of_jobs.chain(jobs).collect();
        while Instant::now() < until {
            let mut left = 0;
            for (resource, plural) in &types {
                let path = collection(&resource.api_version, plural, Some(&namespace));
                let all = self.server.list(&path, &resource.api_version, &resource.kind)?;
                let owned = |object: &Value| {
                    let owners = objects::list_at(object, &["metadata", "ownerReferences"]);
                    owners.iter().any(|owner| owner.get("uid").and_then(Value::as_str) == Some(uid))
                };
                left += all.iter().filter(|object| owned(object) && objects::deleting_at(object).is_none()).count();
            }
            if left == 0 {
                return Ok(());
            }
            std::thread::sleep(GC_POLL_INTERVAL);
        }
        Err(ApiError { code: 0, reason: "".into(), message: format!("{uid} still owns objects in {namespace}") })
    }
}
