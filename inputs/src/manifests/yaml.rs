//! YAML and JSON documents with the place of every field.
//!
//! Owns what a document is: values as JSON, strict booleans, and for each path where its name and its value stand. Fields that
//! occur twice are kept as findings; the last one counts. It must not know what a manifest is. Tests: at the end of this file.

use std::collections::BTreeMap;
use std::fmt;

use apis::bounds::MAX_DEPTH;
use apis::fields::join;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::options::DuplicateKeyPolicy;
use serde_saphyr::{Location, Spanned};

/// A line and a column, both from 1; zeros mean the whole file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LineColumn {
    pub(super) line: u64,
    pub(super) column: u64,
}

/// One document.
#[derive(Debug)]
pub(super) struct Document {
    pub(super) value: Value,
    /// Path, place and first place of fields that occur twice.
    pub(super) duplicates: Vec<(String, LineColumn, LineColumn)>,
    /// Places of name and value by path; items of lists have no name.
    places: BTreeMap<String, (Option<LineColumn>, LineColumn)>,
}

/// Why a file is no YAML.
#[derive(Debug)]
pub(super) struct SyntaxError {
    pub(super) place: LineColumn,
    pub(super) message: String,
}

/// Reads every document of a file; empty ones are left out.
pub(super) fn read(bytes: &[u8]) -> Result<Vec<Document>, SyntaxError> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
        let lines = before.split(|b| *b == b'\n');
        let last = lines.clone().next_back().map(|line| String::from_utf8_lossy(line).chars().count());
        let place = LineColumn { line: count(lines.count()), column: count(last.unwrap_or_default() + 1) };
        SyntaxError { place, message: "not UTF-8 text".to_owned() }
    })?;
    let options = serde_saphyr::options! {
        strict_booleans: true,
        with_snippet: false,
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        // Each level takes stack of the thread: 100 of them overflow one of 2 MiB.
        budget: serde_saphyr::budget! { max_depth: MAX_DEPTH },
    };
    let nodes: Vec<Node> =
        serde_saphyr::from_multiple_with_options(text, options).map_err(|e| syntax_error(text, &e))?;
    Ok(nodes.into_iter().map(Document::new).filter(|document| !document.value.is_null()).collect())
}

fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

fn syntax_error(text: &str, error: &serde_saphyr::Error) -> SyntaxError {
    let place = error.location().map(LineColumn::from).unwrap_or_default();
    let message = error.to_string().replace('\n', " ");
    // The parser appends the place, which the line begins with.
    let message = match message.rsplit_once(" at line ") {
        Some((before, after)) if after.chars().all(|c| c.is_ascii_digit() || ", column".contains(c)) => {
            before.to_owned()
        }
        Some(_) | None => message,
    };
    let message = match error {
        serde_saphyr::Error::Budget { breach: BudgetBreach::Depth { depth }, .. } => {
            format!("nested {depth} levels deep; a manifest may be nested at most {MAX_DEPTH} levels deep")
        }
        _ => message,
    };
    let tab = message.contains("tab").then(|| first_tab(text, place.line)).flatten();
    match tab {
        Some(place) => SyntaxError { place, message: "a tab cannot indent YAML: use spaces".to_owned() },
        None => SyntaxError { place, message },
    }
}

/// The first tab in the indentation of a line, from a line on.
fn first_tab(text: &str, from: u64) -> Option<LineColumn> {
    let lines = text.lines().enumerate().map(|(n, line)| (count(n + 1), line));
    lines.filter(|(n, _)| *n >= from).find_map(|(n, line)| {
        let column = line.chars().take_while(|c| c.is_whitespace()).position(|c| c == '\t')?;
        Some(LineColumn { line: n, column: count(column + 1) })
    })
}

impl From<Location> for LineColumn {
    fn from(location: Location) -> Self {
        Self { line: location.line(), column: location.column() }
    }
}

impl Document {
    fn new(node: Node) -> Self {
        let mut document = Self { value: Value::Null, duplicates: Vec::new(), places: BTreeMap::new() };
        document.value = document.take(node, "", None);
        document
    }

    /// Notes the places of a node and of all below; returns its value.
    fn take(&mut self, node: Node, path: &str, name: Option<LineColumn>) -> Value {
        self.places.insert(path.to_owned(), (name, node.place));
        match node.tree {
            Tree::Scalar(value) => value,
            Tree::List(items) => {
                let items = items.into_iter().enumerate();
                items.map(|(n, item)| self.take(item, &format!("{path}[{n}]"), None)).collect()
            }
            Tree::Members(members) => {
                let mut map = Map::new();
                for (key, place, node) in members {
                    let path = if path.is_empty() { key.clone() } else { join(path, &key) };
                    if map.contains_key(&key) {
                        let first = self.places.get(&path).and_then(|(name, _)| *name).unwrap_or_default();
                        self.duplicates.push((path.clone(), place, first));
                    }
                    let value = self.take(node, &path, Some(place));
                    map.insert(key, value);
                }
                Value::Object(map)
            }
        }
    }

    /// Returns where a field stands: its name, or its value if that is on the same line. A field that is missing stands where
    /// the nearest one above it does.
    pub(super) fn place(&self, path: &str, of_name: bool) -> LineColumn {
        let mut path = path;
        let mut of_name = of_name;
        loop {
            match self.places.get(path) {
                Some((Some(name), value)) if of_name || name.line != value.line => return *name,
                Some((_, value)) => return *value,
                None => {}
            }
            of_name = true;
            path = match path.rfind(['.', '[']) {
                Some(end) => path.get(..end).unwrap_or_default(),
                None if path.is_empty() => return LineColumn::default(),
                None => "",
            };
        }
    }

    /// Returns the value of a member by its path.
    pub(super) fn value_at(&self, path: &str) -> Option<&Value> {
        let mut value = &self.value;
        let mut rest = path;
        while !rest.is_empty() {
            rest = rest.strip_prefix('.').unwrap_or(rest);
            (value, rest) = match value {
                Value::Object(map) => map.iter().find_map(|(key, value)| {
                    let after = rest.strip_prefix(key.as_str())?;
                    (after.is_empty() || after.starts_with(['.', '['])).then_some((value, after))
                })?,
                Value::Array(items) => {
                    let (n, after) = rest.strip_prefix('[')?.split_once(']')?;
                    (items.get(n.parse::<usize>().ok()?)?, after)
                }
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return None,
            };
        }
        Some(value)
    }
}

/// A value and where it stands.
struct Node {
    place: LineColumn,
    tree: Tree,
}

enum Tree {
    Scalar(Value),
    List(Vec<Node>),
    Members(Vec<(String, LineColumn, Node)>),
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // What an alias stands for is where its anchor is: that is what has to be corrected.
        let spanned = Spanned::<Tree>::deserialize(deserializer)?;
        Ok(Self { place: spanned.defined.into(), tree: spanned.value })
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value that JSON can hold")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Tree, E> {
        Ok(Tree::Scalar(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Tree, E> {
        Ok(Tree::Scalar(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Tree, E> {
        Ok(Tree::Scalar(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Tree, E> {
        let number = Number::from_f64(value).ok_or_else(|| E::custom("this is not a number that JSON can hold"))?;
        Ok(Tree::Scalar(number.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Tree, E> {
        Ok(Tree::Scalar(value.into()))
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Scalar(Value::Null))
    }

    fn visit_none<E>(self) -> Result<Tree, E> {
        Ok(Tree::Scalar(Value::Null))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Tree, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Tree::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Tree, A::Error> {
        let mut list = Vec::new();
        while let Some(key) = members.next_key::<Spanned<String>>()? {
            list.push((key.value, key.defined.into(), members.next_value()?));
        }
        Ok(Tree::Members(list))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn place(line: u64, column: u64) -> LineColumn {
        LineColumn { line, column }
    }

    fn only(text: &str) -> Document {
        let mut documents = read(text.as_bytes()).unwrap();
        assert_eq!(documents.len(), 1);
        documents.remove(0)
    }

    #[test]
    fn every_field_has_a_place() {
        let document = only("# c\na: 1\nb:\n  - x: yes\n    y.z: [true]\n  - ~\n");
        assert_eq!(document.value, json!({"a": 1, "b": [{"x": "yes", "y.z": [true]}, null]}));
        for (path, in_name, want) in [
            ("", false, place(2, 1)),
            ("a", false, place(2, 4)),
            ("a", true, place(2, 1)),
            ("b", false, place(3, 1)),
            ("b[0]", false, place(4, 5)),
            ("b[0].x", false, place(4, 8)),
            ("b[0].y.z[0]", false, place(5, 11)),
            ("b[0].missing", false, place(4, 5)),
            ("b[1].missing.too", false, place(6, 5)),
            ("missing", false, place(2, 1)),
        ] {
            assert_eq!(document.place(path, in_name), want, "{path}");
        }
        assert_eq!(document.value_at("b[0].y.z[0]"), Some(&json!(true)));
        assert_eq!(document.value_at("b[2]"), None);
    }

    #[test]
    fn json_documents_and_anchors_have_places_too() {
        let document = only("{\n  \"a\": {\"b\": 1}\n}\n");
        assert_eq!((document.place("a.b", true), document.place("a.b", false)), (place(2, 9), place(2, 14)));
        let document = only("a: &x\n  b: 1\nc: *x\nd:\n  <<: *x\n  e: 2\n");
        assert_eq!(document.value, json!({"a": {"b": 1}, "c": {"b": 1}, "d": {"b": 1, "e": 2}}));
        assert_eq!((document.place("c.b", true), document.place("d.b", true)), (place(2, 3), place(2, 3)));
    }

    #[test]
    fn fields_that_occur_twice_are_reported_and_the_last_one_counts() {
        let document = only("a: 1\nb: {c: 1, c: 2}\na: 3\na: 4\n");
        assert_eq!(document.value, json!({"a": 4, "b": {"c": 2}}));
        let expect = |path: &str, at, first| (path.to_owned(), at, first);
        assert_eq!(
            document.duplicates,
            [
                expect("b.c", place(2, 11), place(2, 5)),
                expect("a", place(3, 1), place(1, 1)),
                expect("a", place(4, 1), place(3, 1)),
            ]
        );
    }

    #[test]
    fn empty_documents_are_left_out() {
        for text in ["", "# only a comment\n", "---\n---\n", "null\n", "---\n~\n---\n"] {
            assert!(read(text.as_bytes()).unwrap().is_empty(), "{text:?}");
        }
        assert_eq!(read(b"---\na: 1\n---\n---\nb: 2\n").unwrap().len(), 2);
    }

    #[test]
    fn syntax_errors_have_a_place_and_one_line() {
        for (text, at, part) in [
            (&b"a: 1\n\tb: 2\n"[..], place(2, 1), "a tab cannot indent YAML: use spaces"),
            (b"a: [1, 2\nb: 3\n", place(2, 2), "illegal placement of ':' indicator"),
            (b"a: *nope\n", place(1, 4), "unknown anchor"),
            (b"a: b: c\n", place(1, 5), "mapping values are not allowed"),
            (b"a:\n  - b\n c: d\n", place(3, 2), "did not find expected key"),
            (b"a: 1\nb: \xff\n", place(2, 4), "not UTF-8 text"),
            (b"a: .nan\n", place(1, 4), ""),
            (("[".repeat(70) + &"]".repeat(70)).as_bytes(), place(1, 65), "nested 65 levels deep"),
        ] {
            let error = read(text).unwrap_err();
            assert_eq!(error.place, at, "{error:?}");
            assert!(error.message.contains(part) && !error.message.contains(['\n']), "{error:?}");
            assert!(!error.message.contains(" at line "), "{error:?}");
        }
    }
}
