//! The `ConfigMap`s and `Secret`s pods can refer to. Tests: at the end.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::Value;

/// Kind of the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ObjectKind {
    ConfigMap,
    Secret,
}

impl ObjectKind {
    /// The name messages use, as the kubelet does.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmap",
            Self::Secret => "secret",
        }
    }

    fn of(object: &Value) -> Option<Self> {
        match object["kind"].as_str()? {
            "ConfigMap" => Some(Self::ConfigMap),
            "Secret" => Some(Self::Secret),
            _ => None,
        }
    }

    /// Kind, namespace and name of an object; `None` for other kinds.
    pub(crate) fn named(object: &Value) -> Option<(Self, String, String)> {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        Some((Self::of(object)?, text("namespace"), text("name")))
    }
}

/// An object that a pod refers to does not exist, as a kubelet words it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} \"{name}\" not found", kind.word())]
pub(crate) struct NotFound {
    pub(crate) kind: ObjectKind,
    pub(crate) name: String,
}

/// Keys and contents of one object.
pub(crate) type Data = BTreeMap<String, Vec<u8>>;

/// Objects provided by the runner.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    known: BTreeMap<(ObjectKind, String, String), Data>,
}

impl Objects {
    /// Takes an object in, replacing an older one. Returns whether that changed anything: false for other kinds.
    pub(crate) fn put(&mut self, object: &Value) -> bool {
        let Some(key) = ObjectKind::named(object) else { return false };
        let data = data(object);
        let is_news = self.known.get(&key) != Some(&data);
        self.known.insert(key, data);
        is_news
    }

    /// Forgets an object.
    pub(crate) fn remove(&mut self, object: &Value) {
        if let Some(key) = ObjectKind::named(object) {
            self.known.remove(&key);
        }
    }

    /// The data of an object.
    pub(crate) fn get(&self, source: ObjectKind, namespace: &str, name: &str) -> Option<&Data> {
        self.known.get(&(source, namespace.to_owned(), name.to_owned()))
    }
}

/// Text members first, then base64 ones, then the write-only `stringData` over both, as an API server merges them.
fn data(object: &Value) -> Data {
    let encoded = if ObjectKind::of(object) == Some(ObjectKind::Secret) { "data" } else { "binaryData" };
    let plain = if encoded == "data" { "" } else { "data" };
    let mut data = Data::new();
    for (member, is_encoded) in [(plain, false), (encoded, true), ("stringData", false)] {
        for (key, value) in object[member].as_object().into_iter().flatten() {
            let Some(text) = value.as_str() else { continue };
            // What is not base64 is kept as written: an API server would not have taken it.
            let bytes = if is_encoded { decode_base64(text) } else { None };
            data.insert(key.clone(), bytes.unwrap_or_else(|| text.as_bytes().to_vec()));
        }
    }
    data
}

/// Standard base64, whose padding may be absent.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Decodes base64; white space is skipped.
fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    BASE64.decode(digits).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn base64() {
        for (text, want) in [
            ("", Some("")),
            ("Zg==", Some("f")),
            ("Zm8=", Some("fo")),
            ("Zm9v", Some("foo")),
            ("Zm9vYmFy\n", Some("foobar")),
            ("Zm8", Some("fo")),
            ("Z", None),
            ("Zg==Zg==", None),
            ("Z*==", None),
        ] {
            assert_eq!(decode_base64(text), want.map(|text| text.as_bytes().to_vec()), "{text}");
        }
        assert_eq!(decode_base64("+/+/"), Some(vec![0xfb, 0xff, 0xbf]));
    }

    #[test]
    fn put_get_remove() {
        let mut objects = Objects::default();
        let map = json!({"kind": "ConfigMap", "metadata": {"name": "m", "namespace": "n"}, "data": {"a": "Zg=="}, "binaryData": {"b": "Zg=="}});
        let secret = json!({"kind": "Secret", "metadata": {"name": "m", "namespace": "n"}, "data": {"a": "Zg==", "c": "no base64!"}, "stringData": {"a": "over"}});
        assert!(objects.put(&map) && objects.put(&secret));
        assert!(!objects.put(&map), "as it was");
        assert!(!objects.put(&json!({"kind": "Pod", "metadata": {"name": "m"}})));
        let get = |objects: &Objects, source, key: &str| objects.get(source, "n", "m").unwrap().get(key).cloned();
        assert_eq!(get(&objects, ObjectKind::ConfigMap, "a").unwrap(), b"Zg==");
        assert_eq!(get(&objects, ObjectKind::ConfigMap, "b").unwrap(), b"f");
        assert_eq!(get(&objects, ObjectKind::Secret, "a").unwrap(), b"over");
        assert_eq!(get(&objects, ObjectKind::Secret, "c").unwrap(), b"no base64!");
        objects.remove(&map);
        assert!(
            objects.get(ObjectKind::ConfigMap, "n", "m").is_none()
                && objects.get(ObjectKind::Secret, "n", "m").is_some()
        );
    }
}
