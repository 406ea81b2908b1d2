//! Objects of a job that lose the label by which they are watched: against an API server of a few lines, whose watches show
//! what the test says.

use std::collections::BTreeMap;
use std::sync::Arc;

use apis::{ApiAnswer, ApiCall, ApiError, Observation, Registry, Verb};
use event_log::MemoryLog;
use model::{Kind, ResourceVersion, Timestamp};
use operator::{Operator, Options};
use serde_json::{Value, json};

/// Turns at one time after which a loop is taken to be endless.
const MAX_TURNS: usize = 60;

struct Server {
    operator: Operator,
    objects: BTreeMap<(String, String), Value>,
    rv: u64,
    creates: usize,
}

impl Server {
    fn new() -> Self {
        let operator = Operator::open(Box::new(MemoryLog::default()), Registry::all(), Options::default()).unwrap();
        let job = json!({"apiVersion": "elasticdeeplearning.ai/v1", "kind": "AITrainingJob",
            "metadata": {"name": "j", "namespace": "n", "uid": "u", "generation": 1, "resourceVersion": "1"},
            "spec": {"replicaSpecs": {"trainer": {"replicas": 1, "template": {"spec": {"containers": [
                {"name": "aitj-main", "image": "i", "ports": [{"name": "aitj-a", "containerPort": 1}]}]}}}}}});
        let mut server = Self { operator, objects: BTreeMap::new(), rv: 1, creates: 0 };
        server.objects.insert(("AITrainingJob".to_owned(), "j".to_owned()), job.clone());
        for kind in Kind::ALL {
            let items = if kind == Kind::Job { vec![Arc::new(job.clone())] } else { Vec::new() };
            server.operator.handle_event(Observation::Listed { kind, of: None, rv: ResourceVersion(1), items });
        }
        server
    }

    /// Writes an object with the next version.
    fn put(&mut self, mut object: Value) -> Arc<Value> {
        self.rv += 1;
        object["metadata"]["resourceVersion"] = json!(self.rv.to_string());
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        self.objects.insert((text("/kind"), text("/metadata/name")), object.clone());
        Arc::new(object)
    }

    fn get(&self, kind: &str, name: &str) -> Value {
        self.objects[&(kind.to_owned(), name.to_owned())].clone()
    }

    fn answer(&mut self, call: &ApiCall) -> ApiAnswer {
        let key = (call.resource.kind.to_string(), call.name.to_string());
        let error = |code| ApiError { code, reason: "no".into(), message: "no".to_owned() };
        match (call.verb, self.objects.get(&key).cloned()) {
            (Verb::Create, None) => {
                let mut object = call.body.clone().unwrap();
                object["metadata"]["uid"] = json!(format!("{}-{}", key.0, self.rv));
                Ok(self.put(object))
            }
            (Verb::Create, Some(_)) => {
                self.creates += 1;
                Err(error(409))
            }
            (Verb::Get, Some(object)) => Ok(Arc::new(object)),
            (Verb::ApplyStatus, Some(mut object)) => {
                object["status"] = call.body.as_ref().unwrap()["status"].clone();
                Ok(self.put(object))
            }
            (_, None) => Err(error(404)),
            (verb, Some(_)) => panic!("{verb:?} of {key:?}"),
        }
    }

    /// Lets the operator do all that is to be done at a time.
    fn settle(&mut self, at: Timestamp) {
        for _ in 0..MAX_TURNS {
            let calls = self.operator.turn(at).unwrap();
            if calls.is_empty() && self.operator.next_wake().is_none_or(|wake| wake > at) {
                return;
            }
            for call in calls {
                let answer = self.answer(&call);
                self.operator.handle_answer(call.id, answer);
            }
        }
        panic!("it does not come to rest; {} creates met the object", self.creates);
    }

    /// Message of the job's `NameTaken` condition.
    fn name_taken(&self) -> Option<String> {
        let job = self.get("AITrainingJob", "j");
        let found = job["status"]["conditions"].as_array()?.iter().find(|c| c["type"] == "NameTaken")?;
        found["message"].as_str().map(str::to_owned)
    }
}

#[test]
fn an_object_without_its_label_is_left_alone_and_taken_back_with_it() {
    for kind in ["Pod", "Service"] {
        let mut server = Server::new();
        let start = Timestamp(1_000_000);
        server.settle(start);
        let whole = server.get(kind, "j-trainer-0");
        // A watch with a selector shows an object that no longer fits as deleted, at the version of the change.
        let mut bare = whole.clone();
        bare["metadata"]["labels"]["GroupName"] = json!("other");
        let shown = server.put(bare);
        let mut last = whole.clone();
        last["metadata"]["resourceVersion"] = shown["metadata"]["resourceVersion"].clone();
        server.operator.handle_event(Observation::Deleted(Arc::new(last)));
        server.settle(start.plus_ms(10));
        let message = server.name_taken().unwrap_or_else(|| panic!("{kind}: the job says nothing"));
        assert!(message.contains("j-trainer-0: it exists without its label GroupName="), "{message}");
        // Tried again with a back-off: not after every turn.
        let before = server.creates;
        for seconds in 1..=60 {
            server.settle(start.plus_ms(seconds * 1000));
        }
        assert!((3..=10).contains(&(server.creates - before)), "{kind}: {} tries in a minute", server.creates - before);
        // With its label back the watch shows it as added.
        let back = server.put(whole);
        server.operator.handle_event(Observation::Applied(back));
        server.settle(start.plus_ms(61_000));
        assert_eq!(server.name_taken(), None, "{kind}");
        let before = server.creates;
        server.settle(start.plus_ms(600_000));
        assert_eq!(server.creates, before, "{kind} is not created again");
    }
}
