//! What failed is read wherever users look: a table of the APIs, the ways to fail, and the places where it is read.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use crate::place::{Place, ended, output_of, signal};

/// APIs whose pods are made here.
const APIS: [&str; 4] = ["AITrainingJob", "ElasticJob", "TorchJob", "TorchrunJob"];

/// Time in which `explain` reports why a job waits.
const PATIENCE: Duration = Duration::from_secs(15);

/// A launcher that needs no PyTorch: it runs the program after its options.
const LAUNCHER: &str =
    "#!/bin/sh\nwhile [ $# -gt 0 ] && [ \"$1\" != --no-python ]; do shift; done\nshift\nexec \"$@\"\n";

/// A way to fail.
struct Way {
    name: &'static str,
    /// Shell script of the containers that train.
    script: &'static str,
    /// Further members of the pods' spec, as YAML in braces.
    pod: &'static str,
    /// Further members of the container, as YAML in braces.
    container: &'static str,
    /// Set if pods that fail are started again, so often that their limit ends the job.
    restarts: bool,
    /// Set if the job does not end by itself.
    waits: bool,
    /// Texts that every place shows, besides the name of a pod.
    texts: &'static [&'static str],
}

/// The exception that a program ends with; Python's words, printed by a shell.
const RAISES: &str = "echo 'Traceback (most recent call last):' >&2; echo '  File \"t.py\", line 3, in main' >&2; \
                      echo '    raise ValueError(\"boom\")' >&2; echo '    ^^^^^^^^^^' >&2; echo 'ValueError: boom' >&2; exit 1";

/// Output of rank 3 of a pod that ends by an exception, and the report of `torchrun`: PyTorch's words, printed by a shell.
const LAUNCHED: &str = "cat >&2 <<'END'
[rank3]: Traceback (most recent call last):
[rank3]:   File \"t.py\", line 3, in main
[rank3]:     raise ValueError(\"boom\")
[rank3]: ValueError: boom
E1128 11:00:00.2 9 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) local_rank: 3 (pid: 13)
Traceback (most recent call last):
  File \"/usr/bin/torchrun\", line 8, in <module>
    sys.exit(main())
             ^^^^^^
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
t.py FAILED
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  rank      : 3 (local_rank: 3)
  exitcode  : 1 (pid: 13)
  error_file: <N/A>
============================================================
END
exit 1";

const WAYS: [Way; 7] = [
    Way { script: RAISES, texts: &["code 1", "ValueError: boom"], ..Way::named("raises") },
    Way { script: RAISES, restarts: true, texts: &["code 1", "ValueError: boom"], ..Way::named("raises again") },
    Way { script: LAUNCHED, texts: &["code 1", "rank 3", "ValueError: boom"], ..Way::named("is launched and raises") },
    Way { script: "echo last words; kill -ABRT $$", texts: &["SIGABRT", "last words"], ..Way::named("is killed") },
    Way {
        pod: "initContainers: [{name: prepare, image: none, command: [sh, -c, 'echo no space left; exit 5']}]",
        texts: &["prepare", "code 5", "no space left"],
        ..Way::named("cannot be prepared")
    },
    Way {
        container: "envFrom: [{configMapRef: {name: settings}}]",
        waits: true,
        texts: &["CreateContainerConfigError", "configmap \"settings\" not found"],
        ..Way::named("cannot be created")
    },
    Way {
        pod: "nodeSelector: {kubernetes.io/hostname: elsewhere}",
        waits: true,
        texts: &["cannot be placed", "node"],
        ..Way::named("cannot be placed")
    },
];

impl Way {
    const fn named(name: &'static str) -> Self {
        Self { name, script: "sleep 100", pod: "", container: "", restarts: false, waits: false, texts: &[] }
    }

    /// Returns the manifest of a job `j` that fails this way.
    fn manifest(&self, api: &str) -> String {
        // Kubernetes reads $$ in a command as $.
        let command = serde_json::json!(["sh", "-c", self.script.replace('$', "$$")]);
        let with = |more: &str| if more.is_empty() { String::new() } else { format!(", {more}") };
        let spec = |name: &str, command: &str| {
            format!(
                "{{terminationGracePeriodSeconds: 1, containers: [{{name: {name}, image: none{command}{}}}]{}}}",
                with(self.container),
                with(self.pod)
            )
        };
        let command = format!(", command: {command}");
        let policy = if self.restarts { "OnFailure" } else { "Never" };
        match api {
            "AITrainingJob" => format!(
                "apiVersion: elasticdeeplearning.ai/v1\nkind: AITrainingJob\nmetadata: {{name: j}}\nspec:\n  replicaSpecs:\n    trainer: \
                 {{replicas: 1, restartPolicy: {policy}, restartLimit: 1, template: {{spec: {}}}}}\n",
                spec("aitj-main", &command)
            ),
            "ElasticJob" => format!(
                "apiVersion: elastic.pytorch.org/v1alpha1\nkind: ElasticJob\nmetadata: {{name: j}}\nspec:\n  rdzvEndpoint: none\n  \
                 backoffLimit: 1\n  replicaSpecs: {{Worker: {{replicas: 1, restartPolicy: {policy}, template: {{spec: {}}}}}}}\n",
                spec("elasticjob-worker", &command)
            ),
            "TorchJob" => format!(
                "apiVersion: train.distributed.io/v1alpha1\nkind: TorchJob\nmetadata: {{name: j}}\nspec:\n  backoffLimit: 1\n  \
                 torchTaskSpecs: {{Master: {{restartPolicy: {policy}, template: {{spec: {}}}}}}}\n",
                spec("torch", &command)
            ),
            _ => format!(
                "apiVersion: torchrun.ai/v1alpha1\nkind: TorchrunQueue\nmetadata: {{name: cpus}}\nspec:\n  queue: {{name: cpus}}\n  \
                 scheduling: {{scheduler: default-scheduler}}\n  podTemplate: {{spec: {}}}\n---\napiVersion: torchrun.ai/v1alpha1\nkind: \
                 TorchrunJob\nmetadata: {{name: j}}\nspec:\n  queue: cpus\n  numNodes: 1\n  reliability: {{maxRestarts: {}, restartPolicy: {policy}}}\n  command: sh fail.sh\n",
                spec("trainer", ", env: [{name: PATH, value: '/app/bin:/usr/local/bin:/usr/bin:/bin'}]"),
                u8::from(self.restarts),
            ),
        }
    }
}

/// Returns the messages of the Events about jobs in the cluster of a run.
fn events(place: &Place) -> String {
    let mut all = String::new();
    for line in ["cluster.json", "cluster.journal"].map(|name| place.path("trainyard-data").join(name)) {
        let text = std::fs::read_to_string(line).unwrap_or_default();
        for part in text.split("\"kind\":\"Event\"").skip(1) {
            let message = part.split("\"message\":").nth(1).and_then(|rest| {
                serde_json::Deserializer::from_str(rest).into_iter::<String>().next().and_then(Result::ok)
            });
            all.extend(message.map(|message| message + "\n"));
        }
    }
    all
}

/// Runs every way to fail with an API, and returns the cells that are empty.
fn empty_cells(api: &str) -> Vec<String> {
    let mut empty = Vec::new();
    for way in &WAYS {
        let place = Place::new();
        place.write("job.yaml", &way.manifest(api));
        // Workers of a TorchrunJob run a file of the working directory.
        place.write("fail.sh", way.script);
        let launcher = place.write("bin/torchrun", LAUNCHER);
        std::fs::set_permissions(launcher, std::fs::Permissions::from_mode(0o755)).unwrap();
        let read = |words: &[&str]| output_of(&place.run(words)).1;
        let output = std::fs::File::create(place.path("out")).unwrap();
        let mut run = place.trainyard(&["run", "--no-logs", "job.yaml"]);
        let mut run = run.stdout(output.try_clone().unwrap()).stderr(output).spawn().unwrap();
        if way.waits {
            let start = Instant::now();
            let is_reported = || way.texts.iter().all(|text| read(&["explain", "j"]).contains(text));
            while start.elapsed() < PATIENCE && !is_reported() {
                std::thread::sleep(Duration::from_millis(100));
            }
        } else {
            assert_eq!(ended(&mut run), Some(1), "{api} {}: {}", way.name, place.read("out"));
        }
        let yaml = read(&["get", "j", "-o", "yaml"]);
        let status = yaml.split_once("\nstatus:").map_or("", |(_, status)| status);
        // What is kept for a lost log is not for people.
        let status = status.split("\n  trainyard:").next().unwrap_or_default().replace("\\\"", "\"");
        let places = [
            ("screen", place.read("out")),
            ("status", status),
            ("Event", events(&place)),
            ("explain", read(&["explain", "j"])),
        ];
        for (name, text) in places {
            let missing: BTreeSet<&str> =
                way.texts.iter().chain(&["pod j-"]).filter(|words| !text.contains(**words)).copied().collect();
            if !missing.is_empty() {
                empty.push(format!("{api} {}, {name}: {missing:?} not in:\n{text}", way.name));
            }
            let is_noise = text.contains("^^^") || text.contains("ChildFailedError");
            assert!(!is_noise, "{api} {}, {name}: {text}", way.name);
        }
        if way.waits {
            signal(&run, "INT");
        }
        ended(&mut run);
    }
    empty
}

#[test]
fn every_failure_is_reported_wherever_it_is_read() {
    let threads: Vec<_> = APIS.map(|api| std::thread::spawn(move || empty_cells(api))).into_iter().collect();
    let empty: Vec<String> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    assert!(empty.is_empty(), "{} cells are empty:\n{}", empty.len(), empty.join("\n"));
}
