//! A real API server that scenarios run on.
//!
//! Time is the scenario's and passes without waiting. What the server writes of real time (deletion timestamps) is moved to the scenario's.
//! Owns faults of calls and the order of things; scenario verbs and the operator are the simulator's.
//!
//! Only this backend and the garbage collector writes to its part of the server. So the copy that is looked at is read
//! again only after a write, when it is needed; and watches are waited for only where something was written.

mod collector;

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use apis::{ApiCall, ApiError, Observation, ObservedObject, Registry, Resource, Verb, objects};
use cluster::{Cluster, FailRule, FailRules, FailVerb, NodeSpec};
use embedded::Backend;
use k8s_driver::JobFilter;
use k8s_driver::harness::collection;
use model::{Kind, ResourceVersion, Timestamp};
use serde_json::{Value, json};
use simulator::backend::{ClusterBackend, Executed, uid_of};

use crate::manual::{self, text};
use crate::names::Names;
use crate::server::Server;
use crate::watches::{MARK, Watches, is_mark_object};

/// Types of the objects that belong to jobs: plurals and kinds.
const OF_JOBS: [(&str, &str); 4] = [
    ("pods", "Pod"),
    ("services", "Service"),
    ("persistentvolumeclaims", "PersistentVolumeClaim"),
    ("configmaps", "ConfigMap"),
];
/// Path of volumes, which have no namespace, and their type.
const VOLUMES: (&str, &str) = ("/api/v1/persistentvolumes", "PersistentVolume");
/// Plural and kind of quotas.
const QUOTAS: (&str, &str) = ("resourcequotas", "ResourceQuota");
/// `ConfigMap` that the control plane puts into every namespace.
const ROOT_CA: &str = "kube-root-ca.crt";
/// Time limit of the garbage collector.
const GC_TIMEOUT: Duration = Duration::from_secs(300);
/// Interval between two looks at it.
const GC_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Rejections of the server, for the caller that runs the scenario.
pub type Refusals = Arc<Mutex<Vec<String>>>;

/// A part of a real API server, with the names of one scenario.
pub struct Real {
    server: Server,
    registry: Registry,
    names: Names,
    /// The scenario's namespaces.
    namespaces: BTreeSet<String>,
    now: Timestamp,
    /// Everything as it stands, in the scenario's names; empty after a write.
    copy: OnceCell<Cluster>,
    watches: Watches,
    faults: FailRules,
    /// Answers of the server that were neither success nor made up by a fault, in words.
    refusals: Refusals,
    /// Deadline of each pod that is being deleted, by uid, in the scenario's time.
    deletions: RefCell<BTreeMap<String, Timestamp>>,
    /// Set while claims are being deleted.
    deletes_claims: bool,
}

impl Drop for Real {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Real {
    /// Creates a backend with these namespaces and nodes, under names with `prefix`.
    ///
    /// # Errors
    /// When the server refuses them.
    pub fn new(
        server: Server,
        prefix: &str,
        namespaces: &BTreeSet<String>,
        nodes: &[NodeSpec],
        refusals: Refusals,
    ) -> Result<Self, cluster::Error> {
        let names = Names::new(prefix);
        // Scenarios share the server, and so would their objects without a namespace.
        let registry = Registry::all().namespaced();
        for namespace in namespaces {
            let name = names.out(namespace);
            let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            server.create("/api/v1/namespaces", &object)?;
        }
        let only = if namespaces.len() == 1 { namespaces.first().map(|n| names.out(n)) } else { None };
        let home = names.out(namespaces.first().map_or("default", String::as_str));
        let scope = JobFilter { namespace: only, ..JobFilter::default() };
        let watches = Watches::new(server.clone(), registry.clone(), scope, home, names.out(MARK))?;
        let now = cluster::Options::default().now;
        let (namespaces, copy) = (namespaces.clone(), OnceCell::new());
        let (faults, deletions) = (FailRules::default(), RefCell::default());
        let mut real = Self {
            server,
            registry,
            names,
            namespaces,
            now,
            copy,
            watches,
            faults,
            refusals,
            deletions,
            deletes_claims: false,
        };
        real.manual(&mut |cluster| {
            for node in nodes {
                cluster.add_node(node);
            }
            Ok(())
        })?;
        Ok(real)
    }

    /// Takes away what is in no namespace, so that other scenarios' watches of nodes do not report it.
    fn clear(&mut self) {
        self.watches.take_down();
        let nodes = self.nodes().unwrap_or_default();
        for node in nodes.iter().map(|node| text(node, "/metadata/name")) {
            let _gone = self.server.delete(&format!("/api/v1/nodes/{node}"), &json!({}));
        }
        for volume in self.volumes().unwrap_or_default() {
            let _gone = self.server.delete(&format!("{}/{}", VOLUMES.0, text(&volume, "/metadata/name")), &json!({}));
        }
    }

    /// The scenario's nodes, as the server has them.
    fn nodes(&self) -> Result<Vec<Arc<Value>>, ApiError> {
        self.server.list(&format!("/api/v1/nodes?labelSelector={}", self.names.mark()), "v1", "Node")
    }

    /// The scenario's volumes, as the server has them.
    fn volumes(&self) -> Result<Vec<Arc<Value>>, ApiError> {
        let mut all = self.server.list(VOLUMES.0, "v1", VOLUMES.1)?;
        all.retain(|volume| self.names.back(text(volume, "/metadata/name")).is_some());
        Ok(all)
    }

    /// Reads everything as it stands, in the scenario's names.
    fn read(&self) -> Result<Cluster, ApiError> {
        let mut found = self.nodes()?;
        found.extend(self.volumes()?);
        for namespace in &self.namespaces {
            let namespace = self.names.out(namespace);
            for api in self.registry.iter() {
                let resource = api.resource();
                let path = collection(&resource.api_version, api.descriptor().plural, Some(&namespace));
                found.extend(self.server.list(&path, &resource.api_version, &resource.kind)?);
            }
            for (plural, kind) in OF_JOBS {
                found.extend(self.server.list(&collection("v1", plural, Some(&namespace)), "v1", kind)?);
            }
        }
        let mut objects = Vec::new();
        for object in found.iter().filter(|object| !is_mark_object(object) && *objects::name(object) != *ROOT_CA) {
            let Some(mut object) = self.names.object_back(object) else { continue };
            if let Some(deleting) = objects::deleting_at(&object) {
                let at = self.deletion(&uid_of(&object), deleting);
                if let Some(place) = object.pointer_mut("/metadata/deletionTimestamp") {
                    *place = at.to_rfc3339().into();
                }
            }
            objects.push(Arc::new(object));
        }
        manual::copy_of(&objects, self.now)
    }

    /// Something of these kinds was written, or may have been.
    fn wrote(&mut self, kinds: &[Kind]) {
        self.copy.take();
        self.watches.wrote(kinds);
    }

    /// An object of this type was written.
    fn wrote_one(&mut self, resource: &Resource) {
        match (&*resource.api_version, &*resource.kind) {
            ("v1", "Pod") => self.wrote(&[Kind::Pod]),
            ("v1", "Service") => self.wrote(&[Kind::Service]),
            ("v1", "Node") => self.wrote(&[Kind::Node]),
            ("v1", "ResourceQuota") => self.wrote(&[Kind::Quota]),
            ("v1", "PersistentVolume" | "PersistentVolumeClaim" | "ConfigMap") => self.wrote(&[Kind::Owned]),
            _ => self.wrote(&[Kind::Job]),
        }
    }

    /// Returns the deadline of a pod's deletion, in the scenario's time: as far from now as the server says.
    fn deletion(&self, uid: &str, real: Timestamp) -> Timestamp {
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let left = u128::from(real.0).saturating_sub(clock).div_ceil(1000);
        let at = self.now.plus_ms(u64::try_from(left).unwrap_or_default().saturating_mul(1000));
        *self.deletions.borrow_mut().entry(uid.to_owned()).or_insert(at)
    }

    /// Returns an observed object in the scenario's names and time; `None` when it is another scenario's.
    fn seen(&self, seen: ObservedObject) -> Option<ObservedObject> {
        Some(match seen {
            ObservedObject::Job(key, object) => {
                let object = self.names.object_back(&object)?;
                ObservedObject::Job(self.names.key_back(key)?, Arc::new(object))
            }
            ObservedObject::Pod(key, mut pod) => {
                let key = self.names.key_back(key)?;
                pod.node = match pod.node {
                    Some(node) => Some(self.names.back(&node)?.into()),
                    None => None,
                };
                pod.deleting = pod.deleting.map(|at| self.deletion(&pod.uid.to_string(), at));
                ObservedObject::Pod(key, pod)
            }
            ObservedObject::Service(key, service) => ObservedObject::Service(self.names.key_back(key)?, service),
            ObservedObject::Owned(key, mut owned) => {
                if &*owned.object.kind == VOLUMES.1 {
                    owned.object.name = self.names.back(&owned.object.name)?.into();
                }
                ObservedObject::Owned(self.names.key_back(key)?, owned)
            }
            ObservedObject::Node(mut node) => {
                node.name = self.names.back(&node.name)?.into();
                ObservedObject::Node(node)
            }
            // They are shared by all scenarios.
            ObservedObject::Class(class) => ObservedObject::Class(class),
            ObservedObject::Quota(mut quota) => {
                quota.namespace = self.names.back(&quota.namespace)?.into();
                ObservedObject::Quota(quota)
            }
            // Queues have no namespace, so no scenario that has some is run here.
            ObservedObject::Foreign(_) | ObservedObject::Namespace(_) => return None,
        })
    }

    fn path_of(&self, resource: &Resource, namespace: &str, name: &str) -> Result<String, ApiError> {
        if *resource == Resource::new("v1", "Node") {
            return Ok(format!("/api/v1/nodes/{}", self.names.out(name)));
        }
        if *resource == Resource::new("v1", VOLUMES.1) {
            return Ok(format!("{}/{}", VOLUMES.0, self.names.out(name)));
        }
        let of_jobs = OF_JOBS
            .iter()
            .chain([&QUOTAS])
            .find(|(_, kind)| *resource == Resource::new("v1", kind))
            .map(|(plural, _)| *plural);
        let plural =
            of_jobs.or_else(|| self.registry.get(resource).map(|api| api.descriptor().plural)).ok_or_else(|| {
                ApiError {
                    code: 404,
                    reason: "NotFound".into(),
                    message: format!("{} {} is not served", resource.api_version, resource.kind),
                }
            })?;
        Ok(format!("{}/{name}", collection(&resource.api_version, plural, Some(&self.names.out(namespace)))))
    }

    /// Returns a page of a list with what is the scenario's.
    fn page_back(&self, page: &Value) -> Value {
        let items = objects::list_at(page, &["items"]).iter();
        let items: Vec<Value> =
            items.filter(|item| !is_mark_object(item)).filter_map(|item| self.names.object_back(item)).collect();
        json!({"metadata": page.get("metadata"), "items": items})
    }

    fn carry_out(&mut self, call: &ApiCall) -> Executed {
        let mut sent = call.clone();
        if &*call.resource.kind == VOLUMES.1 {
            sent.name = self.names.out(&call.name).into();
        } else if !call.namespace.is_empty() {
            sent.namespace = self.names.out(&call.namespace).into();
        }
        sent.body = call.body.as_ref().map(|body| self.names.object_out(body));
        let answer = self.server.make(sent, &self.registry);
        match call.verb {
            Verb::Get | Verb::Log | Verb::List => {}
            Verb::Delete if &*call.resource.kind == "PersistentVolumeClaim" => {
                self.deletes_claims = true;
                self.wrote(&[Kind::Owned]);
            }
            Verb::Delete if self.registry.get(&call.resource).is_some() => {
                self.wrote(&Kind::ALL);
                // The embedded cluster collects at once what a deleted job owned.
                if let (Ok(_), Some(uid)) = (&answer, &call.uid) {
                    let collected = self.await_collection(&call.namespace, &uid.to_string());
                    collected.unwrap_or_else(|error| panic!("the server: {error}"));
                }
            }
            // A Kubernetes Event: those are not watched.
            _ if call.object.is_none() => {}
            _ => self.wrote_one(&call.resource),
        }
        if let Err(error) = &answer {
            let message = format!("{:?} {} {}: {error}", call.verb, call.resource.kind, call.name);
            self.refusals.lock().unwrap_or_else(PoisonError::into_inner).push(message);
        }
        let noted = !call.verb.is_read() && call.object.is_some() && answer.is_ok();
        let back = |object: &Value| match call.verb {
            Verb::List => Some(self.page_back(object)),
            _ => self.names.object_back(object),
        };
        let answer = answer.map(|object| match back(&object) {
            Some(back) => Arc::new(back),
            None => object,
        });
        let uid = answer.as_ref().map(|o| uid_of(o)).unwrap_or_default();
        let uid = if uid.is_empty() { call.uid.as_ref().map(ToString::to_string).unwrap_or_default() } else { uid };
        Executed { answer, changed: noted.then_some(uid) }
    }
}

impl Backend for Real {
    fn advance_to(&mut self, now: Timestamp) -> bool {
        if now != self.now {
            self.set_now(now);
        }
        false
    }

    fn observe(&mut self, _registry: &Registry, _watches: &[Kind]) -> Vec<Observation<ObservedObject>> {
        if self.deletes_claims {
            self.await_claims().unwrap_or_else(|error| panic!("the server: {error}"));
            self.wrote(&[Kind::Owned]);
        }
        let observations = self.watches.observe().unwrap_or_else(|error| panic!("the watches: {error}"));
        if !observations.is_empty() {
            self.copy.take();
        }
        observations.into_iter().filter_map(|observation| observation.filter_map(|seen| self.seen(seen))).collect()
    }

    fn next_wake(&self) -> Option<Timestamp> {
        None
    }
}

impl ClusterBackend for Real {
    fn cluster(&self) -> &Cluster {
        self.copy.get_or_init(|| self.read().unwrap_or_else(|error| panic!("the server: {error}")))
    }

    fn now(&self) -> Timestamp {
        self.now
    }

    fn set_now(&mut self, now: Timestamp) {
        // Grace periods of pods already deleted count from the old time, not from the new one.
        self.cluster();
        self.now = now;
        if let Some(copy) = self.copy.get_mut() {
            copy.set_now(now);
        }
    }

    fn watch_again(&mut self) {
        self.watches.begin_again();
    }

    fn execute(&mut self, call: &ApiCall) -> Executed {
        match self.faults.inject(call) {
            None => self.carry_out(call),
            Some((error, false)) => Executed { answer: Err(error), changed: None },
            Some((error, true)) => Executed { answer: Err(error), ..self.carry_out(call) },
        }
    }

    fn manual(
        &mut self,
        act: &mut dyn FnMut(&mut Cluster) -> Result<(), cluster::Error>,
    ) -> Result<(), cluster::Error> {
        let copy = match self.copy.take() {
            Some(copy) => copy,
            None => self.read()?,
        };
        self.wrote(&[Kind::Pod, Kind::Node]);
        manual::act(&self.server, &self.names, copy, act)
    }

    fn apply(&mut self, manifest: &Value) -> Result<(), ApiError> {
        let mut manifest = manifest.clone();
        if text(&manifest, "/metadata/namespace").is_empty()
            && let Some(metadata) = manifest.get_mut("metadata").and_then(Value::as_object_mut)
        {
            metadata.insert("namespace".to_owned(), "default".into());
        }
        let resource = Resource::of(&manifest);
        if &*resource.kind == "PriorityClass" {
            // It is in no namespace, and pods name it: every scenario has the same one.
            manifest.as_object_mut().and_then(|object| object["metadata"].as_object_mut()?.remove("namespace"));
            let path = format!("/apis/{}/priorityclasses/{}", resource.api_version, text(&manifest, "/metadata/name"));
            self.wrote(&[Kind::Class]);
            return self.server.apply(&path, &manifest).map(|_| ());
        }
        let (namespace, name) = (text(&manifest, "/metadata/namespace"), text(&manifest, "/metadata/name"));
        let path = self.path_of(&resource, namespace, name)?;
        self.wrote_one(&resource);
        self.server.apply(&path, &self.names.object_out(&manifest)).map(|_| ())
    }

    fn store_unchecked(&mut self, _manifest: &Value) -> Result<(), ApiError> {
        let message = "a real API server stores nothing unchecked".to_owned();
        Err(ApiError { code: 501, reason: "NotImplemented".into(), message })
    }

    fn merge_patch(
        &mut self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        patch: &Value,
        status: bool,
    ) -> Result<(), ApiError> {
        let path = self.path_of(resource, namespace, name)?;
        let path = if status { format!("{path}/status") } else { path };
        self.wrote_one(resource);
        self.server.patch(&path, patch).map(|_| ())
    }

    fn scale(&mut self, resource: &Resource, namespace: &str, name: &str, replicas: i32) -> Result<(), ApiError> {
        let path = format!("{}/scale", self.path_of(resource, namespace, name)?);
        self.wrote_one(resource);
        self.server.patch(&path, &json!({"spec": {"replicas": replicas}})).map(|_| ())
    }

    fn delete(
        &mut self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        grace_seconds: Option<u32>,
    ) -> Result<(), ApiError> {
        let path = self.path_of(resource, namespace, name)?;
        let before = self.server.get(&path)?;
        let options = grace_seconds.map_or_else(|| json!({}), |grace| json!({"gracePeriodSeconds": grace}));
        // With a job goes what it owns.
        self.wrote(&Kind::ALL);
        self.server.delete(&path, &options)?;
        let is_gone = || self.server.get(&path).is_err_and(|error| error.code == 404);
        if &*resource.kind == "PersistentVolumeClaim" {
            // A controller takes the claim's protection off, once no pod uses it.
            let until = Instant::now() + GC_TIMEOUT;
            while !is_gone() && Instant::now() < until {
                std::thread::sleep(GC_POLL_INTERVAL);
            }
        }
        // What an object owns goes when the object is gone; finalizers may keep it.
        let gone = is_gone();
        if gone && self.registry.get(resource).is_some() {
            self.await_collection(namespace, &uid_of(&before))?;
        }
        Ok(())
    }

    fn fail(&mut self, rule: FailRule) -> Result<(), cluster::Error> {
        if rule.verb == FailVerb::List {
            let message = "lists of a real API server are not made to fail".to_owned();
            return Err(ApiError { code: 501, reason: "NotImplemented".into(), message }.into());
        }
        self.faults.add(rule);
        Ok(())
    }

    fn hold(&mut self, kind: Kind) {
        self.watches.hold(kind);
    }

    fn release(&mut self, kind: Kind) {
        self.watches.release(kind);
    }

    fn relist(&mut self, kind: Kind) {
        self.watches.begin(kind);
    }

    fn revision(&self) -> ResourceVersion {
        ResourceVersion(0)
    }

    fn kubernetes_events_since(&self, _revision: ResourceVersion) -> Vec<Arc<Value>> {
        Vec::new()
    }
}
