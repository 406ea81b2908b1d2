//! Flags, environment, file and defaults; command lines of the original operator.

use std::net::SocketAddr;

use ::settings::flags;
use clap::Parser;
use k8s_driver::{Format, JobFilter, LeaseSettings, Options};
use serde_json::Value;

use super::*;

#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    operator: OperatorArgs,
}

fn parse(args: &[&str]) -> Result<Options, String> {
    let all = ["trainyard", "operator"].iter().chain(args).map(OsString::from);
    // The word `operator` stands where the name of the program would.
    let args = hyphenated(all).into_iter().skip(1);
    let args = Arguments::try_parse_from(args).map_err(|error| error.to_string())?.operator;
    let settings = args.settings.over_file(args.config.as_deref()).map_err(|error| error.to_string())?;
    settings.options().map_err(|error| error.to_string())
}

fn file(text: &str) -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("operator.yaml");
    std::fs::write(&path, text).unwrap();
    (dir, format!("--config={}", path.display()))
}

#[test]
fn nothing_given_is_the_default() {
    let options = parse(&[]).unwrap();
    assert_eq!(options.config, model::Config { node_grace_ms: 60_000, ..model::Config::default() });
    assert_eq!((options.scope, options.lease), (JobFilter::default(), Some(LeaseSettings::default())));
    assert_eq!(options.http.health, [SocketAddr::from(([127, 0, 0, 1], 8080))]);
    assert_eq!(options.dry_run, None);
}

#[test]
fn a_command_line_of_the_original_operator_is_taken() {
    let options = parse(&[
        "--kubeconfig=/k",
        "--run_in_cluster=false",
        "--thread-num=1000",
        "--namespace=ml",
        "--resync_period=10s",
        "--v=4",
        "--logtostderr",
        "--creating_restart_period",
        "1h",
        "--creating-duration-period=30s",
        "--enable-creating-failed",
        "--leader-elect=true",
        "--leader-elect-lease-duration=20s",
        "--leader_elect_renew_deadline=15s",
        "--leader-elect-retry-period",
        "3s",
        "--leader-elect-resource-lock=endpoints",
    ])
    .unwrap();
    assert_eq!(options.connection.kubeconfig.as_deref(), Some(std::path::Path::new("/k")));
    assert_eq!(options.scope.namespace.as_deref(), Some("ml"));
    let config = options.config;
    assert_eq!(
        (config.creating_restart_ms, config.creating_timeout_ms, config.creating_failed),
        (3_600_000, 30_000, true)
    );
    let lease = options.lease.unwrap();
    assert_eq!((lease.duration.as_secs(), lease.renew_deadline.as_secs(), lease.retry_period.as_secs()), (20, 15, 3));
    assert!(parse(&["--leader-elect=false"]).unwrap().lease.is_none());
}

#[test]
fn command_lines_of_the_other_originals_are_taken() {
    let any = |port: u16| SocketAddr::from(([0, 0, 0, 0], port));
    let listens = |args: &[&str]| {
        let http = parse(args).unwrap().http;
        (http.health, http.log.map(|address| address.port()))
    };
    // ElasticJob, TorchrunJob, TorchJob and its manifests.
    assert_eq!(listens(&["--metrics-addr=:9090", "--enable-leader-election"]), (vec![any(9090)], Some(8443)));
    let torchrun = ["--leader-elect", "--metrics-bind-address=:8080", "--health-probe-bind-address=:8081"];
    assert_eq!(listens(&torchrun), (vec![any(8080), any(8081)], Some(8443)));
    let torch = ["--controller-metrics-addr=:8080", "--metrics-addr=8443", "--max-reconciles=4"];
    assert_eq!(listens(&torch), (vec![any(8080), any(8443)], Some(8444)));
    let one = ["--health-address=127.0.0.1:7000", "--metrics-bind-address=localhost:7001"];
    let local = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
    assert_eq!(listens(&one).0, [local(7000), local(7001)]);
    assert_eq!(listens(&["--metrics-bind-address=0", "--health-probe-bind-address=:8081"]).0, [any(8081)]);
    assert_eq!(listens(&["--metrics-bind-address=0"]).0, []);
    assert_eq!(listens(&["--metrics-addr=:8080", "--dry-run"]), (vec![], None));
    assert!(parse(&["--enable-leader-election=false"]).unwrap().lease.is_none());
    assert_eq!(parse(&["--master=http://h:1"]).unwrap().connection.master.as_deref(), Some("http://h:1"));
}

#[test]
fn a_flag_goes_before_the_file_and_the_file_before_the_default() {
    let (_dir, config) = file(
        "namespace: from-file\nnode-grace-period: 1m\ngpu-faults: [A, B]\nleader-elect: false\nmax-calls: 7\n\
         data-directory: /from-file\ndry-run: true\noutput: json\n",
    );
    let options = parse(&[&config, "--namespace=from-flag", "--node_grace_period=2m"]).unwrap();
    assert_eq!(options.scope.namespace.as_deref(), Some("from-flag"));
    assert_eq!((options.config.node_grace_ms, options.max_in_flight), (120_000, 7));
    assert_eq!(options.config.gpu_faults, ["A", "B"]);
    assert_eq!(options.config.retry_ms, model::Config::default().retry_ms);
    assert!(options.lease.is_none());
    assert_eq!((options.data_directory, options.dry_run), (PathBuf::from("/from-file"), Some(Format::Json)));
    assert_eq!(parse(&[&config, "--dry-run=false"]).unwrap().dry_run, None);
}

#[test]
fn every_setting_of_the_file_is_a_flag_and_an_environment_variable_of_that_name() {
    use clap::CommandFactory;
    let command = Arguments::command();
    let known = Settings::default();
    let Value::Object(settings) = serde_json::to_value(&known).unwrap() else { panic!("no settings") };
    for name in settings.keys() {
        let arg = command.get_arguments().find(|arg| arg.get_long() == Some(name)).unwrap();
        let variable = format!("TRAINYARD_{}", name.to_uppercase().replace('-', "_"));
        assert_eq!(arg.get_env().and_then(|env| env.to_str()), Some(variable.as_str()));
    }
    for name in flags::names() {
        assert!(settings.contains_key(name), "{name}");
    }
}

#[test]
fn what_is_wrong_is_named_with_its_value() {
    for (args, words) in [
        (&["--node-grace-period=soon"][..], &["node-grace-period", "soon"][..]),
        (&["--leader-elect-lease-duration=5"], &["leader-elect-lease-duration", "`5`"]),
        (&["--health-address=8080"], &["health-address", "\"8080\"", "0.0.0.0:8080"]),
        (&["--metrics-addr=here"], &["metrics-bind-address", "\"here\"", ":8080"]),
        (&["--max-calls=0"], &["max-calls", "0", "at least 1"]),
        (&["--log-certificate=x"], &["--log-key"]),
        (&["--log-format=xml"], &["--log-format", "xml", "json"]),
        (&["--creating-restart=1h"], &["--creating-restart"]),
        (&["--config=/does/not/exist"], &["/does/not/exist", "No such file"]),
    ] {
        let error = parse(args).unwrap_err();
        for word in words {
            assert!(error.contains(word), "{args:?}: {error}");
        }
    }
    for (text, words) in [
        ("namespaces: x\n", &["operator.yaml", "namespaces"][..]),
        ("max-calls: many\n", &["operator.yaml", "max-calls"]),
        ("log-format: xml\n", &["operator.yaml", "xml"]),
        ("log-certificate: x\n", &["log-certificate and log-key"]),
        ("- a list\n", &["operator.yaml"]),
    ] {
        let (_dir, config) = file(text);
        let error = parse(&[&config]).unwrap_err();
        for word in words {
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
