//! Voda's HTTP routes: the training service, the scheduler and the resource allocator, each on its port.
//!
//! The routes have no authentication, as with Voda, so they listen on this machine unless an address is given. Requests read and write
//! objects of the API server; nothing is kept. Tests: at the end.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post, put};
use clap::Args;
use jiff::tz::TimeZone;
use k8s_driver::listener;
use serde::de::DeserializeOwned;
use serde_json::json;
use terminal::out::{self, Failure};
use terminal::stop::StopSignals;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::allocation;
use super::jobs::{ApiServer, Refusal, Voda};
use super::metrics::Metrics;

/// Arguments of `voda serve`.
#[derive(Debug, Args)]
#[command(after_help = "There is no authentication, as with Voda: a client that reaches a port can
submit jobs with the rights of this process. Give --address only where a
NetworkPolicy limits the clients.

Examples:
  trainyard voda serve --queue voda
  trainyard voda serve --queue voda --address 0.0.0.0")]
pub(crate) struct ServeArgs {
    /// Address to listen on.
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    address: IpAddr,
    /// Port of the training service.
    #[arg(long, value_name = "PORT", default_value_t = 55_587)]
    training_port: u16,
    /// Port of the scheduler.
    #[arg(long, value_name = "PORT", default_value_t = 55_588)]
    scheduler_port: u16,
    /// Port of the resource allocator.
    #[arg(long, value_name = "PORT", default_value_t = 55_589)]
    allocator_port: u16,
}

/// Serves until it is stopped.
pub(super) async fn run<O: ApiServer>(voda: Voda<O>, args: &ServeArgs) -> Result<ExitCode, Failure> {
    let mut signals = StopSignals::catch()?;
    let served = Arc::new(Served { metrics: Metrics::new(&voda.namespace), voda });
    let bind = async |what: &str, port: u16| {
        let address = SocketAddr::new(args.address, port);
        let failed = |error| Failure::new(format!("cannot listen on {address} for {what}: {error}"));
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        out::line(&format!("{what}: http://{}", listener.local_addr()?));
        Ok::<_, Failure>(listener)
    };
    let training_listener = bind("training service", args.training_port).await?;
    let scheduler_listener = bind("scheduler", args.scheduler_port).await?;
    let allocator_listener = bind("resource allocator", args.allocator_port).await?;
    let stop = CancellationToken::new();
    let serving = async {
        tokio::join!(
            listener::plain(training_listener, training(Arc::clone(&served)), stop.clone()),
            listener::plain(scheduler_listener, scheduler(Arc::clone(&served)), stop.clone()),
            listener::plain(allocator_listener, allocator(Arc::clone(&served)), stop.clone()),
        );
    };
    let stopped = async {
        signals.next().await;
        stop.cancel();
    };
    tokio::join!(serving, stopped);
    Ok(ExitCode::SUCCESS)
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let code = StatusCode::from_u16(self.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (code, self.text + "\n").into_response()
    }
}

type Reply = Result<String, Refusal>;

/// Requests and figures that all routes share.
struct Served<O> {
    voda: Voda<O>,
    metrics: Metrics,
}

/// Header of the answers to `GET /metrics`.
const METRICS_TYPE: [(header::HeaderName, &str); 1] = [(header::CONTENT_TYPE, listener::METRICS_TYPE)];

/// Routes of the training service.
fn training<O: ApiServer>(served: Arc<Served<O>>) -> Router {
    let create = async |State(served): State<Arc<Served<O>>>, body: String| -> Reply {
        let begun = Instant::now();
        let created = served.voda.create(&body, local::now(), &TimeZone::system()).await;
        served.metrics.create(begun.elapsed(), created.is_ok());
        created
    };
    let delete = async |State(served): State<Arc<Served<O>>>, body: Bytes| -> Reply {
        let begun = Instant::now();
        let name: String = read(&body)?;
        let deleted = served.voda.delete(&name).await;
        served.metrics.delete(begun.elapsed(), deleted.is_ok());
        deleted
    };
    let metrics = async |State(served): State<Arc<Served<O>>>| (METRICS_TYPE, served.metrics.training());
    Router::new()
        .route("/", any(async || "Trainyard: training service of Voda\n"))
        .route("/training", post(create).delete(delete))
        .route("/metrics", get(metrics))
        .with_state(served)
}

/// Routes of the scheduler.
fn scheduler<O: ApiServer>(served: Arc<Served<O>>) -> Router {
    let jobs = async |State(served): State<Arc<Served<O>>>| -> Reply { served.voda.jobs(local::now()).await };
    let algorithm = async |State(served): State<Arc<Served<O>>>, body: Bytes| -> Reply {
        let name: String = read(&body)?;
        served.voda.set_algorithm(&name).await
    };
    let rate_limit = async |State(served): State<Arc<Served<O>>>, body: Bytes| -> Reply {
        served.voda.set_rate_limit(read(&body)?).await
    };
    let metrics = async |State(served): State<Arc<Served<O>>>| -> Result<_, Refusal> {
        let (jobs, queue) = (served.voda.list().await?, served.voda.queue().await?);
        Ok((METRICS_TYPE, served.metrics.scheduler(&jobs, queue.as_ref())))
    };
    Router::new()
        .route("/training", get(jobs))
        .route("/algorithm", put(algorithm))
        .route("/ratelimit", put(rate_limit))
        .route("/metrics", get(metrics))
        .with_state(served)
}

/// Routes of the resource allocator. A refusal is no map of numbers: Voda's scheduler would take an empty one for an allocation.
fn allocator<O: ApiServer>(served: Arc<Served<O>>) -> Router {
    const JSON: [(header::HeaderName, &str); 1] = [(header::CONTENT_TYPE, "application/json")];
    let allocate = async |State(served): State<Arc<Served<O>>>, body: Bytes| {
        let begun = Instant::now();
        match allocation::answer(&body) {
            Ok(answer) => {
                served.metrics.allocate(&answer.algorithm, answer.jobs, answer.gpus, begun.elapsed());
                (StatusCode::OK, JSON, json!(answer.given).to_string())
            }
            Err(refusal) => {
                let code = StatusCode::from_u16(refusal.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                (code, JSON, json!({"error": refusal.text}).to_string())
            }
        }
    };
    let metrics = async |State(served): State<Arc<Served<O>>>| (METRICS_TYPE, served.metrics.allocator());
    Router::new().route("/allocation", post(allocate)).route("/metrics", get(metrics)).with_state(served)
}

/// Reads the JSON of a body. The answer to what is none shows how far it was read, as Go shows it.
fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body).map_err(|error| {
        let lines = body.split_inclusive(|byte| *byte == b'\n').take(error.line().saturating_sub(1));
        let offset = lines.map(<[u8]>::len).sum::<usize>().saturating_add(error.column());
        Refusal::new(400, json!({"Offset": offset}).to_string())
    })
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::Request;
    use http_body_util::BodyExt as _;
    use tower::ServiceExt as _;

    use super::super::jobs::tests::{Memory, voda};
    use super::super::manifest::tests::MANIFEST;
    use super::*;

    fn served() -> Arc<Served<Memory>> {
        Arc::new(Served { voda: voda(Some("q")), metrics: Metrics::new("ns") })
    }

    async fn ask(router: Router, method: &str, path: &str, body: &str) -> (u16, String) {
        let request = Request::builder().method(method).uri(path).body(Body::from(body.to_owned())).unwrap();
        let answer = router.oneshot(request).await.unwrap();
        let code = answer.status().as_u16();
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        (code, String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn the_training_service_creates_and_deletes() {
        let served = served();
        let routes = || training(Arc::clone(&served));
        let (code, text) = ask(routes(), "POST", "/training", MANIFEST).await;
        assert_eq!(code, 200, "{text}");
        let name = text.lines().next().unwrap().strip_prefix("Training job created: ").unwrap().to_owned();
        assert_eq!(text, format!("Training job created: {name}\nView your logs by:\n    kubectl logs {name}-launcher"));
        for (method, path, body, want) in [
            ("GET", "/", "", (200, "Trainyard: training service of Voda\n".to_owned())),
            ("GET", "/training", "", (405, String::new())),
            (
                "POST",
                "/training",
                "kind: Pod",
                (
                    400,
                    "apiVersion and kind: must be those of an MPIJob in kubeflow.org/v1 or kubeflow.org/v2beta1\n"
                        .to_owned(),
                ),
            ),
            ("DELETE", "/training", &name, (400, "{\"Offset\":1}\n".to_owned())),
            ("DELETE", "/training", "\"other\"", (404, "Training job not found: other\n".to_owned())),
            ("DELETE", "/training", &format!("\"{name}\""), (200, format!("Training job deleted: {name}"))),
            ("GET", "/nothing", "", (404, String::new())),
        ] {
            assert_eq!(ask(routes(), method, path, body).await, want, "{method} {path} {body}");
        }
        let (code, text) = ask(routes(), "GET", "/metrics", "").await;
        let want = "voda_scheduler_training_service_jobs_created_total 1\n";
        assert!(code == 200 && text.contains(want), "{text}");
    }

    #[tokio::test]
    async fn the_scheduler_lists_and_is_set() {
        let served = served();
        let routes = || scheduler(Arc::clone(&served));
        let (code, text) = ask(routes(), "GET", "/training", "").await;
        assert!(code == 200 && text.starts_with("NAME  "), "{text}");
        for (path, body, want) in [
            ("/algorithm", "\"AFS-L\"", (200, "Scheduler: q\nScheduling Algorithm: AFS-L".to_owned())),
            ("/algorithm", "AFS-L", (400, "{\"Offset\":1}\n".to_owned())),
            ("/ratelimit", "45", (200, "Scheduler: q\nRe-scheduling ratelimit (sec): 45".to_owned())),
            ("/ratelimit", "\"45\"", (400, "{\"Offset\":4}\n".to_owned())),
        ] {
            assert_eq!(ask(routes(), "PUT", path, body).await, want, "{path} {body}");
        }
        let (code, text) = ask(routes(), "PUT", "/algorithm", "\"Fifo\"").await;
        assert!(code == 400 && text.starts_with("unknown policy \"Fifo\"; known are FIFO, "), "{text}");
        assert_eq!(ask(routes(), "PUT", "/ratelimit", "-1").await.0, 400);
        assert_eq!(ask(routes(), "GET", "/metrics", "").await, (200, "# EOF\n".to_owned()), "without jobs");
    }

    #[tokio::test]
    async fn the_allocator_answers_numbers_or_an_error() {
        let job = r#"{"job_name": "a", "config": {"min_num_proc": 1, "max_num_proc": 4}}"#;
        let body = |algorithm: &str| {
            format!(r#"{{"SchedulerID": "x", "NumGpu": 3, "AlgorithmName": "{algorithm}", "ReadyJobs": [{job}]}}"#)
        };
        let served = served();
        let routes = || allocator(Arc::clone(&served));
        assert_eq!(ask(routes(), "POST", "/allocation", &body("ElasticFIFO")).await, (200, "{\"a\":3}".to_owned()));
        let (code, text) = ask(routes(), "POST", "/allocation", &body("Nothing")).await;
        assert!(code == 400 && text.starts_with("{\"error\":\"unknown policy"), "{text}");
        let (_, text) = ask(routes(), "GET", "/metrics", "").await;
        let want = "voda_scheduler_resource_allocator_labeled_num_gpus_sum{algorithm=\"ElasticFIFO\"} 3.0\n";
        assert!(text.contains(want), "{text}");
    }
}
