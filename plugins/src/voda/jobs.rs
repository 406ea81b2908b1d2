//! Requests of Voda's routes and command line: create, delete and list jobs, change settings of their queue.
//!
//! Owns the answers, in Voda's words where it had some, and the codes of what is refused. Objects are those of the API server; nothing is
//! kept. Tests: at the end.

use apis::mpijob;
use apis::names::is_dns_subdomain;
use apis::objects::list_at;
use http::Method;
use jiff::tz::TimeZone;
use model::Timestamp;
use serde_json::{Value, json};

use super::manifest;
use super::table::table;
use crate::cluster::{Cluster, delete_in_background};

/// Names that are tried for a job: the time in them is that of the next second.
const MAX_NAMES: u32 = 5;
/// Bounds of the rate limit, in seconds.
const RATE_LIMITS: std::ops::RangeInclusive<i64> = 1..=1_000_000_000;

/// Returns a time as it stands in names.
fn time(at: Timestamp, zone: &TimeZone) -> String {
    let instant =
        i64::try_from(at.0).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok()).unwrap_or_default();
    instant.to_zoned_datetime(zone.clone()).strftime("%Y%m%d-%H%M%S").to_string()
}

fn queue_path(queue: &str) -> String {
    format!("/apis/{}/trainingqueues/{queue}", apis::trainingqueue::API_VERSION)
}

/// A request that is not carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    /// Status code of HTTP.
    pub(super) code: u16,
    /// Why.
    pub(super) text: String,
}

impl Refusal {
    pub(super) fn new(code: u16, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }
}

/// Objects of an API server, as JSON.
pub(super) trait ApiServer: Send + Sync + 'static {
    /// Sends a request, and returns the object or list of the answer.
    fn send(&self, method: Method, path: &str, body: &Value) -> impl Future<Output = Result<Value, Refusal>> + Send;
}

impl ApiServer for Cluster {
    async fn send(&self, method: Method, path: &str, body: &Value) -> Result<Value, Refusal> {
        self.answer(method, path, body).await.map_err(|(code, text)| Refusal { code, text })
    }
}

/// The jobs of a namespace, and their queue.
pub(super) struct Voda<O> {
    pub(super) objects: O,
    pub(super) namespace: String,
    /// Queue of jobs that name none, and the one whose settings are changed.
    pub(super) queue: Option<String>,
}

/// Returns the job that `create` would send, with its full name. Without a namespace it keeps that of the manifest.
pub(super) fn preview(
    text: &str,
    namespace: Option<&str>,
    queue: Option<&str>,
    now: Timestamp,
    zone: &TimeZone,
) -> Result<Value, Refusal> {
    let job = manifest::job(text, namespace, queue).map_err(|error| Refusal::new(400, error.to_string()))?;
    let base = job["metadata"]["name"].as_str().unwrap_or_default();
    let name = format!("{base}-{}", time(now, zone));
    Ok(manifest::named(job, &name))
}

impl<O: ApiServer> Voda<O> {
    fn path(&self, name: &str) -> String {
        let plural = format!("/apis/{}/namespaces/{}/mpijobs", mpijob::API_VERSION, self.namespace);
        if name.is_empty() { plural } else { format!("{plural}/{name}") }
    }

    /// Creates a job of a manifest. Its name ends in the time of the zone, which makes it unique.
    pub(super) async fn create(&self, text: &str, now: Timestamp, zone: &TimeZone) -> Result<String, Refusal> {
        let job = manifest::job(text, Some(&self.namespace), self.queue.as_deref());
        let job = job.map_err(|error| Refusal::new(400, error.to_string()))?;
        let base = job["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        for second in 0..MAX_NAMES {
            let name = format!("{base}-{}", time(now.plus_ms(u64::from(second) * 1000), zone));
            match self.objects.send(Method::POST, &self.path(""), &manifest::named(job.clone(), &name)).await {
                Ok(_) => {
                    return Ok(format!(
                        "Training job created: {name}\nView your logs by:\n    kubectl logs {name}-launcher"
                    ));
                }
                Err(refusal) if refusal.code == 409 => {}
                Err(refusal) => return Err(refusal),
            }
        }
        Err(Refusal::new(
            409,
            format!("{base}: jobs of this name were created in each of the next {MAX_NAMES} seconds"),
        ))
    }

    /// Deletes a job, by its full name.
    pub(super) async fn delete(&self, name: &str) -> Result<String, Refusal> {
        if !is_dns_subdomain(name) {
            return Err(Refusal::new(404, format!("Training job not found: {name}")));
        }
        match self.objects.send(Method::DELETE, &self.path(name), &delete_in_background()).await {
            Ok(_) => Ok(format!("Training job deleted: {name}")),
            Err(refusal) if refusal.code == 404 => Err(Refusal::new(404, format!("Training job not found: {name}"))),
            Err(refusal) => Err(refusal),
        }
    }

    /// Returns the jobs of the namespace.
    pub(super) async fn list(&self) -> Result<Vec<Value>, Refusal> {
        let list = self.objects.send(Method::GET, &self.path(""), &Value::Null).await?;
        Ok(list_at(&list, &["items"]).to_vec())
    }

    /// Lists jobs in Voda's columns.
    pub(super) async fn jobs(&self, now: Timestamp) -> Result<String, Refusal> {
        Ok(table(&self.list().await?, now))
    }

    /// Returns the object of the queue; `None` where none is named.
    pub(super) async fn queue(&self) -> Result<Option<Value>, Refusal> {
        let Some(queue) = &self.queue else { return Ok(None) };
        self.objects.send(Method::GET, &queue_path(queue), &Value::Null).await.map(Some)
    }

    /// Sets the policy of the queue.
    pub(super) async fn set_algorithm(&self, name: &str) -> Result<String, Refusal> {
        scheduler::by_name(name).map_err(|error| Refusal::new(400, error.to_string()))?;
        let queue = self.patch_queue(&json!({"policy": name})).await?;
        Ok(format!("Scheduler: {queue}\nScheduling Algorithm: {name}"))
    }

    /// Sets the time between two decisions of the queue.
    pub(super) async fn set_rate_limit(&self, seconds: i64) -> Result<String, Refusal> {
        if !RATE_LIMITS.contains(&seconds) {
            let (least, most) = (RATE_LIMITS.start(), RATE_LIMITS.end());
            return Err(Refusal::new(
                400,
                format!("rate limit: {seconds}: must be a number of seconds from {least} to {most}"),
            ));
        }
        let queue = self.patch_queue(&json!({"roundSeconds": seconds})).await?;
        Ok(format!("Scheduler: {queue}\nRe-scheduling ratelimit (sec): {seconds}"))
    }

    async fn patch_queue(&self, spec: &Value) -> Result<&str, Refusal> {
        let Some(queue) = &self.queue else {
            return Err(Refusal::new(400, "name the queue with --queue: the root queue has no settings"));
        };
        self.objects.send(Method::PATCH, &queue_path(queue), &json!({"spec": spec})).await?;
        Ok(queue)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    use super::super::manifest::tests::MANIFEST;
    use super::*;

    /// Objects by path, in memory.
    #[derive(Default)]
    pub(crate) struct Memory(pub(crate) Mutex<BTreeMap<String, Value>>);

    impl ApiServer for Memory {
        async fn send(&self, method: Method, path: &str, body: &Value) -> Result<Value, Refusal> {
            let mut objects = self.0.lock().unwrap();
            let missing = || Refusal::new(404, "not found");
            match method.as_str() {
                "GET" => {
                    let items: Vec<&Value> =
                        objects.iter().filter(|(at, _)| at.starts_with(path)).map(|(_, it)| it).collect();
                    Ok(json!({"items": items}))
                }
                "POST" => {
                    let path = format!("{path}/{}", body["metadata"]["name"].as_str().unwrap());
                    if objects.contains_key(&path) {
                        return Err(Refusal::new(409, "exists"));
                    }
                    objects.insert(path, body.clone());
                    Ok(body.clone())
                }
                "PATCH" => {
                    let object = objects.get_mut(path).ok_or_else(missing)?;
                    model::json::merge_patch(object, body);
                    Ok(object.clone())
                }
                _ => objects.remove(path).ok_or_else(missing),
            }
        }
    }

    /// An API server with one queue.
    pub(crate) fn voda(queue: Option<&str>) -> Voda<Memory> {
        let objects = Memory::default();
        let path = "/apis/trainyard.dev/v1alpha1/trainingqueues/q";
        objects.0.lock().unwrap().insert(path.to_owned(), json!({"spec": {"policy": "FIFO"}}));
        Voda { objects, namespace: "ns".to_owned(), queue: queue.map(str::to_owned) }
    }

    fn moment() -> (Timestamp, TimeZone) {
        (Timestamp::parse_rfc3339("2026-01-01T16:56:59.9Z").unwrap(), TimeZone::UTC)
    }

    async fn create(voda: &Voda<Memory>, text: &str) -> Result<String, Refusal> {
        let (now, zone) = moment();
        voda.create(text, now, &zone).await
    }

    #[tokio::test]
    async fn each_job_gets_a_name_of_its_own() {
        let voda = voda(Some("q"));
        let text = "Training job created: mnist-20260101-165659\nView your logs by:\n    kubectl logs mnist-20260101-165659-launcher";
        assert_eq!(create(&voda, MANIFEST).await.unwrap(), text);
        let second = create(&voda, MANIFEST).await.unwrap();
        assert!(second.starts_with("Training job created: mnist-20260101-165700\n"), "{second}");
        let listed = voda.jobs(Timestamp(0)).await.unwrap();
        assert_eq!(listed.lines().count(), 3, "{listed}");
        for _ in 0..3 {
            create(&voda, MANIFEST).await.unwrap();
        }
        assert_eq!(create(&voda, MANIFEST).await.unwrap_err().code, 409);
        assert_eq!(create(&voda, "kind: Pod").await.unwrap_err().code, 400);
    }

    #[tokio::test]
    async fn a_job_is_deleted_by_its_full_name() {
        let voda = voda(None);
        create(&voda, MANIFEST).await.unwrap();
        let name = "mnist-20260101-165659";
        assert_eq!(voda.delete(name).await.unwrap(), format!("Training job deleted: {name}"));
        for unknown in [name, "", "../../../other", "a/b"] {
            let refusal = voda.delete(unknown).await.unwrap_err();
            assert_eq!(refusal, Refusal::new(404, format!("Training job not found: {unknown}")));
        }
    }

    #[tokio::test]
    async fn settings_of_the_queue_are_checked_first() {
        let with_queue = voda(Some("q"));
        let done = with_queue.set_algorithm("ElasticTiresias").await.unwrap();
        assert_eq!(done, "Scheduler: q\nScheduling Algorithm: ElasticTiresias");
        let done = with_queue.set_rate_limit(30).await.unwrap();
        assert_eq!(done, "Scheduler: q\nRe-scheduling ratelimit (sec): 30");
        let spec = || with_queue.objects.0.lock().unwrap().values().next().unwrap()["spec"].clone();
        let before = spec();
        assert_eq!(before, json!({"policy": "ElasticTiresias", "roundSeconds": 30}));
        assert_eq!(with_queue.set_algorithm("FIFO2").await.unwrap_err().code, 400);
        assert_eq!(with_queue.set_rate_limit(-1).await.unwrap_err().code, 400);
        assert_eq!(spec(), before, "nothing changes");
        assert_eq!(voda(None).set_algorithm("FIFO").await.unwrap_err().code, 400);
        assert_eq!(voda(Some("gone")).set_algorithm("FIFO").await.unwrap_err().code, 404);
    }
}
