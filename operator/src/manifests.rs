//! Manifests: what is held of a job's object besides its state.
//!
//! Owns when a manifest is parsed for rendering, and when a job's object is translated again. All of it can be dropped at any
//! time: it costs parsing or translating again. Tests: at the end of this file.

use std::collections::BTreeMap;
use std::sync::Arc;

use apis::api::RenderInput;
use apis::{JobApi, Referenced, objects};
use model::{JobKey, SpecFact};
use serde_json::Value;

use crate::references::versions;

/// Parsed manifests of the jobs that have objects to render.
#[derive(Debug, Default)]
pub(crate) struct Manifests(BTreeMap<JobKey, Parsed>);

#[derive(Debug)]
struct Parsed {
    spec: Arc<SpecFact>,
    manifest: Value,
}

impl Manifests {
    /// Returns what rendering needs of a job. The manifest is parsed once for all objects rendered of one spec; `None` when
    /// the spec cannot be accepted.
    pub(crate) fn input<'a>(&'a mut self, key: &'a JobKey, spec: Arc<SpecFact>) -> Option<RenderInput<'a>> {
        if !self.0.get(key).is_some_and(|parsed| Arc::ptr_eq(&parsed.spec, &spec)) {
            let manifest = serde_json::from_str(&spec.manifest).ok()?;
            self.0.insert(key.clone(), Parsed { spec, manifest });
        }
        let parsed = self.0.get(key)?;
        Some(RenderInput { job: key, spec: parsed.spec.spec.as_ref().ok()?, manifest: &parsed.manifest })
    }

    /// Forgets a job's parsed manifest: as a tree it takes more memory than all else that is known of the job.
    pub(crate) fn forget(&mut self, key: &JobKey) {
        self.0.remove(key);
    }
}

/// Versions of the objects whose specs were translated, as their APIs read them ([`apis::JobApi::spec_inputs`],
/// [`apis::translation::inputs`]).
#[derive(Debug, Default)]
pub(crate) struct TranslatedSpecs(BTreeMap<JobKey, Translated>);

#[derive(Debug)]
struct Translated {
    inputs: Value,
    generation: Option<i64>,
}

impl TranslatedSpecs {
    /// Returns true if the object's spec has to be translated: what it depends on changed, or it has no generation. From then on
    /// this version counts as translated.
    pub(crate) fn is_new(&mut self, api: &dyn JobApi, key: &JobKey, object: &Value, referenced: &Referenced) -> bool {
        let own = Value::Array(vec![api.spec_inputs(object), apis::translation::inputs(object)]);
        let inputs = if referenced.is_empty() { own } else { Value::Array(vec![own, versions(api, referenced)]) };
        let generation = objects::at(object, &["metadata", "generation"]).and_then(Value::as_i64);
        if let Some(known) = self.0.get_mut(key).filter(|known| generation.is_some() && known.inputs == inputs) {
            known.generation = generation;
            return false;
        }
        self.0.insert(key.clone(), Translated { inputs, generation });
        true
    }

    /// Returns the generation of the object that was seen last.
    pub(crate) fn generation(&self, key: &JobKey) -> Option<i64> {
        self.0.get(key)?.generation
    }

    /// Has the job's spec translated again when its object is seen next.
    pub(crate) fn forget(&mut self, key: &JobKey) {
        self.0.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use apis::aitrainingjob::AiTrainingJob;
    use apis::torchrunjob::TorchrunJob;
    use model::{CleanPodPolicy, JobEndPolicy, JobSpec, PhaseRules};
    use serde_json::json;

    use super::*;

    fn key() -> JobKey {
        JobKey { namespace: "ns".into(), name: "a".into(), kind: "AITrainingJob".into(), uid: "u".into() }
    }

    fn spec(manifest: &str) -> Arc<SpecFact> {
        let spec = JobSpec {
            groups: Vec::new(),
            complete: JobEndPolicy::All,
            fail: JobEndPolicy::Any,
            clean_pods: CleanPodPolicy::None,
            restartable_codes: Vec::new(),
            time_limit_ms: None,
            phase_rules: PhaseRules { creating: false, sticky_restarting: false, ..PhaseRules::default() },
            ..JobSpec::default()
        };
        Arc::new(SpecFact::of(Ok(spec), manifest.into()))
    }

    #[test]
    fn a_manifest_is_parsed_again_for_another_spec_only() {
        let (mut manifests, key, first) = (Manifests::default(), key(), spec("[1]"));
        let parsed = |manifests: &mut Manifests, spec: &Arc<SpecFact>| {
            let input = manifests.input(&key, Arc::clone(spec)).unwrap();
            (input.manifest.clone(), input.manifest.as_array().map(Vec::as_ptr))
        };
        let (tree, address) = parsed(&mut manifests, &first);
        assert_eq!(tree, json!([1]));
        assert_eq!(parsed(&mut manifests, &first), (tree, address), "the same tree");
        assert_eq!(parsed(&mut manifests, &spec("[2]")).0, json!([2]));
        assert!(manifests.input(&key, spec("{")).is_none());
        let refused = SpecFact { spec: Err(Vec::new()), ..(*spec("[3]")).clone() };
        assert!(manifests.input(&key, Arc::new(refused)).is_none());
        manifests.forget(&key);
        assert!(manifests.0.is_empty());
    }

    #[test]
    fn a_spec_is_translated_again_when_generation_or_labels_changed() {
        let mut specs = TranslatedSpecs::default();
        // (object's metadata, whether its spec is translated)
        for (metadata, translated) in [
            (json!({"generation": 1}), true),
            (json!({"generation": 1, "resourceVersion": "9"}), false),
            (json!({"generation": 2}), true),
            (json!({"generation": 2, "labels": {"a": "b"}}), true),
            (json!({"generation": 2, "labels": {"a": "b"}}), false),
            (json!({}), true),
            (json!({}), true),
        ] {
            let object = json!({"metadata": metadata});
            assert_eq!(specs.is_new(&AiTrainingJob, &key(), &object, &Referenced::new()), translated, "{metadata}");
        }
        assert_eq!(specs.generation(&key()), None);
        let object = json!({"metadata": {"generation": 1}});
        specs.is_new(&AiTrainingJob, &key(), &object, &Referenced::new());
        assert_eq!(specs.generation(&key()), Some(1));
        specs.forget(&key());
        assert!(specs.is_new(&AiTrainingJob, &key(), &object, &Referenced::new()));
        // A referenced object that changed, or is gone.
        specs.is_new(&TorchrunJob, &key(), &object, &Referenced::new());
        let queue = |generation: u32| {
            let queue = json!({"metadata": {"uid": "q", "generation": generation}});
            Referenced::from([(("TorchrunQueue".into(), "q".into()), Arc::new(queue))])
        };
        for (found, translated) in [(queue(1), true), (queue(1), false), (queue(2), true), (Referenced::new(), true)] {
            assert_eq!(specs.is_new(&TorchrunJob, &key(), &object, &found), translated);
        }
    }
}
