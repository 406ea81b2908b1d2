//! Bytes of the API server -> pages of lists, watch events, objects and refusals; each trimmed on the way. An object that cannot be read is
//! left out, and the others of its page are delivered.
//!
//! Tests: at the end of this file.

use std::fmt;

use apis::ApiError;
use model::{ResourceVersion, Text};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::watch::projection::FieldMask;

/// Form that objects are read in.
#[derive(Debug, Clone)]
pub struct ObjectType {
    /// Their API version: elements of lists do not say it.
    pub api_version: Text,
    /// Their kind.
    pub kind: Text,
    /// Members kept of them.
    pub fields: FieldMask,
}

/// A page of a list.
#[derive(Debug, Default)]
pub(crate) struct Page {
    /// Version of the whole list.
    pub version: String,
    /// Token of the next page; empty on the last.
    pub next: String,
    /// The objects.
    pub items: Vec<Value>,
    /// Errors of the objects that cannot be read.
    pub unread: Vec<serde_json::Error>,
}

/// An event of a watch.
#[derive(Debug)]
pub(crate) enum Event {
    /// Added or modified.
    Applied(Value),
    /// Gone; as it last was.
    Deleted(Value),
    /// Nothing happened up to the version that stands in the object.
    Bookmark(Value),
    /// The watch cannot continue.
    Error(ApiError),
    /// Error of an object that cannot be read.
    Unread(serde_json::Error),
}

/// `metadata.resourceVersion` as it is written.
pub(crate) fn version(object: &Value) -> &str {
    apis::objects::text_at(object, &["metadata", "resourceVersion"]).unwrap_or_default()
}

/// A version as a number; 0 when it is none.
pub(crate) fn number(version: &str) -> ResourceVersion {
    ResourceVersion(version.parse().unwrap_or_default())
}

/// Reads an object.
///
/// # Errors
/// Returns an error if the bytes are no JSON.
pub(crate) fn object(bytes: &[u8], object_type: &ObjectType) -> Result<Value, serde_json::Error> {
    whole(bytes, object_type)
}

/// Reads a page of a list.
///
/// # Errors
/// Returns an error if the bytes are no list.
pub(crate) fn page(bytes: &[u8], object_type: &ObjectType) -> Result<Page, serde_json::Error> {
    whole(bytes, PageSeed(object_type))
}

/// Reads a line of a watch.
///
/// # Errors
/// Returns an error if the bytes are no watch event.
pub(crate) fn event(bytes: &[u8], object_type: &ObjectType) -> Result<Event, serde_json::Error> {
    whole(bytes, EventSeed(object_type))
}

/// Reads what the API server says when it refuses. Proxies and load balancers answer with other texts.
pub(crate) fn refusal(code: u16, bytes: &[u8]) -> ApiError {
    /// Longest text of a foreign answer that is kept, in characters.
    const SHOWN_MAX: usize = 300;
    let status = serde_json::from_slice::<ErrorStatus>(bytes).unwrap_or_default();
    // A patch that names another uid is reported as an attempt to change it; it is a precondition that does not hold.
    if code == 422 && status.details.causes.iter().any(|cause| cause.field == "metadata.uid") {
        return ApiError { code: 409, reason: Text::from("Conflict"), message: status.message };
    }
    if status.reason.is_empty() && status.message.is_empty() {
        let text = String::from_utf8_lossy(bytes);
        let message = text.trim().chars().take(SHOWN_MAX).collect();
        return ApiError { code, reason: Text::from(""), message };
    }
    ApiError { code, reason: Text::from(status.reason), message: status.message }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ErrorStatus {
    code: u16,
    reason: String,
    message: String,
    details: Details,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Details {
    causes: Vec<Cause>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Cause {
    field: String,
}

fn whole<'de, S: DeserializeSeed<'de>>(bytes: &'de [u8], seed: S) -> Result<S::Value, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = seed.deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

impl<'de> DeserializeSeed<'de> for &ObjectType {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        let mut value = self.fields.deserialize(deserializer)?;
        if let Value::Object(map) = &mut value {
            map.insert("apiVersion".to_owned(), Value::from(&*self.api_version));
            map.insert("kind".to_owned(), Value::from(&*self.kind));
        }
        Ok(value)
    }
}

struct PageSeed<'a>(&'a ObjectType);

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PageMetadata {
    resource_version: String,
    r#continue: String,
}

impl<'de> DeserializeSeed<'de> for PageSeed<'_> {
    type Value = Page;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Page, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for PageSeed<'_> {
    type Value = Page;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of objects")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Page, A::Error> {
        let mut page = Page::default();
        while let Some(name) = access.next_key::<String>()? {
            match name.as_str() {
                "metadata" => {
                    let PageMetadata { resource_version, r#continue } = access.next_value()?;
                    (page.version, page.next) = (resource_version, r#continue);
                }
                "items" => access.next_value_seed(Items { object_type: self.0, page: &mut page })?,
                _ => {
                    access.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(page)
    }
}

/// Reads the elements of a list, each by itself.
struct Items<'a> {
    object_type: &'a ObjectType,
    page: &'a mut Page,
}

impl<'de> DeserializeSeed<'de> for Items<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Items<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("objects")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        while let Some(item) = access.next_element::<&RawValue>()? {
            match object(item.get().as_bytes(), self.object_type) {
                Ok(item) => self.page.items.push(item),
                Err(error) => self.page.unread.push(error),
            }
        }
        Ok(())
    }

    /// An empty list may be written as null.
    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        Ok(())
    }
}

struct EventSeed<'a>(&'a ObjectType);

impl<'de> DeserializeSeed<'de> for EventSeed<'_> {
    type Value = Event;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Event, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for EventSeed<'_> {
    type Value = Event;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a watch event")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Event, A::Error> {
        use serde::de::Error as _;
        let (mut kind, mut object) = (String::new(), None);
        while let Some(name) = access.next_key::<String>()? {
            match name.as_str() {
                "type" => kind = access.next_value()?,
                "object" => object = Some(access.next_value::<&RawValue>()?.get().as_bytes()),
                _ => {
                    access.next_value::<IgnoredAny>()?;
                }
            }
        }
        let object = object.ok_or_else(|| A::Error::missing_field("object"))?;
        let read = |made: fn(Value) -> Event| self::object(object, self.0).map_or_else(Event::Unread, made);
        match kind.as_str() {
            "ADDED" | "MODIFIED" => Ok(read(Event::Applied)),
            "DELETED" => Ok(read(Event::Deleted)),
            "BOOKMARK" => serde_json::from_slice(object).map(Event::Bookmark).map_err(A::Error::custom),
            "ERROR" => {
                let status = serde_json::from_slice::<ErrorStatus>(object).unwrap_or_default();
                let ErrorStatus { code, reason, message, .. } = status;
                Ok(Event::Error(ApiError { code, reason: Text::from(reason), message }))
            }
            other => Err(A::Error::unknown_variant(other, &["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"])),
        }
    }
}

#[cfg(test)]
mod tests {
    use apis::Registry;
    use serde_json::json;

    use super::*;

    fn object_type() -> ObjectType {
        ObjectType { api_version: "v1".into(), kind: "Pod".into(), fields: crate::watch::projection::POD }
    }

    #[test]
    fn pages_say_what_elements_do_not() {
        let text = json!({"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "77", "continue": "more",
            "remainingItemCount": 3}, "items": [{"metadata": {"name": "a", "managedFields": []}}, {"metadata": {"name": "b"}}]});
        let page = page(text.to_string().as_bytes(), &object_type()).unwrap();
        assert_eq!((page.version.as_str(), page.next.as_str(), page.items.len()), ("77", "more", 2));
        assert_eq!(page.items[0], json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}));
        let last = super::page(br#"{"metadata":{"resourceVersion":"5"},"items":null}"#, &object_type()).unwrap();
        assert_eq!((last.version.as_str(), last.next.as_str(), last.items.len()), ("5", "", 0));
        for failed in ["", "[]", "{", r#"{"items": 3}"#, r#"{"items": []} trailing"#] {
            assert!(super::page(failed.as_bytes(), &object_type()).is_err(), "{failed}");
        }
    }

    #[test]
    fn events_are_read_in_either_order_of_members() {
        let object =
            r#"{"kind":"Pod","metadata":{"name":"a","resourceVersion":"9","managedFields":[]},"spec":{"x":1}}"#;
        let want =
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "resourceVersion": "9"}, "spec": {}});
        for text in
            [format!(r#"{{"type":"MODIFIED","object":{object}}}"#), format!(r#"{{"object":{object},"type":"ADDED"}}"#)]
        {
            let Event::Applied(read) = event(text.as_bytes(), &object_type()).unwrap() else { panic!("{text}") };
            assert_eq!(read, want);
        }
        let text = format!(r#"{{"type":"DELETED","object":{object}}}"#);
        assert!(matches!(event(text.as_bytes(), &object_type()), Ok(Event::Deleted(read)) if read == want));
        let text = r#"{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"12","creationTimestamp":null}}}"#;
        assert!(matches!(event(text.as_bytes(), &object_type()), Ok(Event::Bookmark(read)) if version(&read) == "12"));
        let text = r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}"#;
        let Event::Error(error) = event(text.as_bytes(), &object_type()).unwrap() else { panic!("{text}") };
        assert_eq!((error.code, &*error.reason, error.message.as_str()), (410, "Expired", "too old"));
        for failed in
            ["", "{}", r#"{"type":"ADDED"}"#, r#"{"type":"OTHER","object":{}}"#, r#"{"type":"ADDED","object":{}"#]
        {
            assert!(event(failed.as_bytes(), &object_type()).is_err(), "{failed}");
        }
    }

    #[test]
    fn an_object_nested_too_deep_hides_no_other() {
        let deep = |levels: usize| {
            let (open, close) = ("{\"a\":".repeat(levels), "}".repeat(levels));
            format!(r#"{{"metadata":{{"name":"deep","resourceVersion":"9"}},"spec":{open}1{close}}}"#)
        };
        let jobs = ObjectType { fields: crate::watch::projection::JOB, ..object_type() };
        for levels in [300, 10_000] {
            let deep = deep(levels);
            let text =
                format!(r#"{{"metadata":{{"resourceVersion":"7"}},"items":[{deep},{{"metadata":{{"name":"b"}}}}]}}"#);
            let page = page(text.as_bytes(), &jobs).unwrap();
            let names: Vec<_> = page.items.iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect();
            assert_eq!((names, page.unread.len()), (vec!["deep", "b"], 0));
            let found = apis::manifest::findings(&Registry::all(), &page.items[0]);
            let problems: Vec<_> = found.iter().map(|finding| &*finding.field.problem).collect();
            assert_eq!(
                problems,
                ["an object may be nested at most 64 levels deep"],
                "the part that is read is beyond the bounds"
            );
            let text = format!(r#"{{"type":"ADDED","object":{deep}}}"#);
            let Event::Applied(read) = event(text.as_bytes(), &jobs).unwrap() else { panic!("{levels}") };
            assert_eq!(read, page.items[0]);
        }
    }

    #[test]
    fn an_object_that_cannot_be_read_is_left_out() {
        let text = r#"{"metadata":{"resourceVersion":"7"},"items":[{"spec":1e999},{"metadata":{"name":"b"}}]}"#;
        let jobs = ObjectType { fields: crate::watch::projection::JOB, ..object_type() };
        let page = page(text.as_bytes(), &jobs).unwrap();
        assert_eq!((page.items.len(), page.unread.len(), page.version.as_str()), (1, 1, "7"));
        let event = event(br#"{"type":"MODIFIED","object":{"spec":1e999}}"#, &jobs);
        assert!(matches!(event, Ok(Event::Unread(_))), "{event:?}");
    }

    #[test]
    fn rejections_are_read_in_any_form() {
        let status = r#"{"kind":"Status","status":"Failure","message":"m","reason":"AlreadyExists","code":409}"#;
        assert_eq!(
            refusal(409, status.as_bytes()),
            ApiError { code: 409, reason: "AlreadyExists".into(), message: "m".into() }
        );
        let other = r#"{"kind":"Status","reason":"Invalid","message":"m","code":422,
            "details":{"causes":[{"reason":"FieldValueInvalid","field":"metadata.uid"}]}}"#;
        assert_eq!(refusal(422, other.as_bytes()).code, 409);
        assert_eq!(refusal(422, other.replace("metadata.uid", "spec").as_bytes()).code, 422);
        let proxy = refusal(502, format!("<html>{}</html>\n", "é".repeat(1_000)).as_bytes());
        assert_eq!((proxy.code, &*proxy.reason, proxy.message.chars().count()), (502, "", 300));
        assert_eq!(refusal(500, b"").message, "");
    }
}
