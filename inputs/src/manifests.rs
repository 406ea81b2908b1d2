//! Manifest files: YAML or JSON, several documents each, checked before anything is started.
//!
//! Owns which objects the files hold, and everything that is wrong with them, by file, line and column. What is wrong with one
//! object is said by `apis::manifest`. Tests: `cli/tests/local/validate.rs`, `manifests/tests.rs`, and beside `yaml`.

mod problem;
mod server;
#[cfg(test)]
mod tests;
mod yaml;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use apis::{Registry, Resource, Severity};
use serde_json::Value;
use terminal::out::{self, Failure};
use yaml::{Document, LineColumn};

pub use problem::Problem;
pub use server::Server;

/// Path that stands for standard input.
pub const STDIN: &str = "-";

/// The objects of some files, and what is wrong with them.
#[derive(Debug, Default)]
pub struct Manifests {
    /// Every object that can be applied, Lists unfolded. A missing namespace became `default`.
    pub objects: Vec<Value>,
    /// Problems by file, line and column.
    pub problems: Vec<Problem>,
    /// True if something could not be read at all, or is no object with a type and a name.
    pub unusable: bool,
    /// True if a file could not be read.
    pub unreadable: bool,
    /// Errors about objects whose name an API server makes of their `generateName`: they can be created there, not started here.
    pub unnamed: Vec<Problem>,
    /// Every object as it was written.
    pub sources: Vec<Source>,
    /// Place of the first occurrence of each object.
    seen: BTreeMap<(Resource, String, String), String>,
}

/// An object as it was written, and where.
#[derive(Debug)]
pub struct Source {
    file: String,
    document: Rc<Document>,
    /// Path of the object in its document.
    base: String,
    object: Value,
}

impl Source {
    /// Returns a problem of a field of the object.
    fn problem(&self, severity: Severity, path: &str, problem: String) -> Problem {
        let path = within(&self.base, path);
        let place = self.document.place(&path, false);
        Problem { severity, ..Problem::new(&self.file, place, &path, self.document.value_at(&path), problem) }
    }

    /// Returns a problem of the whole object, at its name.
    fn problem_of_all(&self, severity: Severity, problem: &str) -> Problem {
        let place = self.document.place(&within(&self.base, "metadata.name"), false);
        Problem { severity, ..Problem::of_file(&self.file, place, problem) }
    }

    /// Returns true for the finding that its kind or its version is none of those that are known here.
    fn is_about_kind(&self, problem: &Problem) -> bool {
        let places = ["apiVersion", "kind"].map(|key| self.document.place(&within(&self.base, key), false));
        problem.file == self.file && places.contains(&problem.place)
    }

    /// Returns the only object of a text.
    #[cfg(test)]
    fn of(file: &str, text: &str) -> Self {
        let document = yaml::read(text.as_bytes()).ok().and_then(|mut documents| documents.pop()).unwrap();
        let object = document.value.clone();
        Self { file: file.to_owned(), document: Rc::new(document), base: String::new(), object }
    }
}

/// Joins the path of an object and that of a field in it; either may be empty.
fn within(base: &str, path: &str) -> String {
    match (base, path) {
        ("", path) => path.to_owned(),
        (base, "") => base.to_owned(),
        (base, path) => format!("{base}.{path}"),
    }
}

/// Reads the objects of some files. What is wrong with them is printed on stderr; without `lax` errors are a failure.
///
/// # Errors
/// Returns an error if something is wrong, or without `lax` anything but remarks.
pub fn load(files: &[PathBuf], lax: bool) -> Result<Vec<Value>, Failure> {
    let mut manifests = examine(files);
    manifests.unusable |= !manifests.unnamed.is_empty();
    manifests.problems.append(&mut manifests.unnamed);
    for problem in &manifests.problems {
        out::error_line(&problem.line(lax && !manifests.unusable));
    }
    let errors = manifests.problems.iter().filter(|problem| problem.is_error()).count();
    if errors == 0 || lax && !manifests.unusable {
        return Ok(manifests.objects);
    }
    let found = if errors == 1 { "1 error".to_owned() } else { format!("{errors} errors") };
    Err(Failure::new(if manifests.unusable {
        format!("{found} in the manifests: nothing was started")
    } else {
        format!(
            "{found} in the manifests: nothing was started; correct them, or give --lax to continue with them as they are"
        )
    }))
}

/// Checks objects that were made of the command line.
///
/// # Errors
/// Returns an error if an object is wrong.
pub fn checked(objects: Vec<Value>, origin: &str) -> Result<Vec<Value>, Failure> {
    let registry = Registry::all();
    let errors: Vec<String> = objects
        .iter()
        .flat_map(|object| apis::manifest::findings(&registry, object))
        .filter(|finding| finding.severity != apis::Severity::Remark)
        .map(|finding| format!("{origin}: {}", finding.field))
        .collect();
    if errors.is_empty() { Ok(objects) } else { Err(Failure::new(errors.join("\ntrainyard: "))) }
}

/// Returns the files of some paths: of a directory those in it with the ending of a manifest, by name.
pub fn expanded(paths: &[PathBuf]) -> Vec<PathBuf> {
    let of_path = |path: &PathBuf| {
        let Ok(entries) = fs::read_dir(path) else { return vec![path.clone()] };
        let is_manifest = |file: &PathBuf| {
            let ending = file.extension().and_then(OsStr::to_str);
            ending.is_some_and(|ending| ["yaml", "yml", "json"].contains(&ending)) && file.is_file()
        };
        let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_manifest).collect();
        files.sort();
        // That nothing is in it is a problem of the directory.
        if files.is_empty() { vec![path.clone()] } else { files }
    };
    paths.iter().flat_map(of_path).collect()
}

/// Reads a file, or standard input for `-`.
///
/// # Errors
/// Returns an error if it cannot be read, or is a directory: [`expanded`] keeps only directories without manifests.
pub fn read(file: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match file.to_str() {
        Some(STDIN) => drop(io::stdin().read_to_end(&mut bytes)?),
        _ if file.is_dir() => return Err(io::Error::other("no file in it ends in .yaml, .yml or .json")),
        _ => bytes = fs::read(file)?,
    }
    Ok(bytes)
}

/// Reads some files and checks everything in them.
pub fn examine(paths: &[PathBuf]) -> Manifests {
    let registry = Registry::all();
    let mut manifests = Manifests::default();
    for file in expanded(paths) {
        let shown = if file == Path::new(STDIN) { "standard input".to_owned() } else { file.display().to_string() };
        let before = manifests.problems.len();
        match read(&file) {
            Ok(bytes) => manifests.file(&registry, &shown, &bytes),
            Err(error) => {
                manifests.unreadable = true;
                manifests.unusable(Problem::of_file(&shown, LineColumn::default(), &error.to_string()));
            }
        }
        if let Some(found) = manifests.problems.get_mut(before..) {
            found.sort_by(|a, b| (a.place, &a.field.path).cmp(&(b.place, &b.field.path)));
        }
    }
    manifests
}

impl Manifests {
    /// Adds what an API server says of each object.
    ///
    /// # Errors
    /// Returns an error if the server does not answer.
    pub async fn ask(&mut self, server: &mut Server) -> Result<(), Failure> {
        for source in &self.sources {
            // A kind that is served there is good there, known here or not.
            if server.serves(source).await? {
                self.problems.retain(|problem| !source.is_about_kind(problem));
            }
            self.problems.extend(server.problems(source).await?);
        }
        Ok(())
    }

    fn unusable(&mut self, problem: Problem) {
        self.unusable = true;
        self.problems.push(problem);
    }

    fn file(&mut self, registry: &Registry, file: &str, bytes: &[u8]) {
        let documents = match yaml::read(bytes) {
            Ok(documents) => documents,
            Err(error) => return self.unusable(Problem::of_file(file, error.place, &error.message)),
        };
        if documents.is_empty() {
            return self.unusable(Problem::of_file(file, LineColumn { line: 1, column: 1 }, "no manifest in it"));
        }
        for document in documents.into_iter().map(Rc::new) {
            let document = &document;
            for (path, place, first) in &document.duplicates {
                let problem = format!("this field is there already, in line {}", first.line);
                self.problems.push(Problem::new(file, *place, path, document.value_at(path), problem));
            }
            let listed = document.value.get("kind").and_then(Value::as_str) == Some("List");
            match document.value.get("items").and_then(Value::as_array).filter(|_| listed) {
                Some(items) => {
                    for (n, item) in items.iter().enumerate() {
                        self.object(registry, file, document, item, &format!("items[{n}]"));
                    }
                }
                None => self.object(registry, file, document, &document.value, ""),
            }
        }
    }

    /// Checks one object, which stands at `base` in its document.
    fn object(&mut self, registry: &Registry, file: &str, document: &Rc<Document>, object: &Value, base: &str) {
        let (file_of, base_of, object_of) = (file.to_owned(), base.to_owned(), object.clone());
        self.sources.push(Source { file: file_of, document: Rc::clone(document), base: base_of, object: object_of });
        for finding in apis::manifest::findings(registry, object) {
            let path = within(base, &finding.field.path);
            let place = document.place(&path, finding.in_name);
            let mut field = finding.field;
            field.path = path;
            self.problems.push(Problem { file: file.to_owned(), place, severity: finding.severity, field });
        }
        let Some(object) = addressable(object) else {
            let generated = object.pointer("/metadata/generateName").filter(|name| name.as_str() != Some(""));
            let path = if base.is_empty() { "metadata".to_owned() } else { format!("{base}.metadata") };
            match generated {
                Some(name) => {
                    let problem = "an API server makes a name of it; to start the object here, write metadata.name";
                    let path = format!("{path}.generateName");
                    let place = document.place(&path, false);
                    self.unnamed.push(Problem::new(file, place, &path, Some(name), problem.to_owned()));
                }
                None => self.unusable = true,
            }
            return;
        };
        let text = |key: &str| object.pointer(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
        let resource = Resource::of(&object);
        let path = if base.is_empty() { "metadata.name".to_owned() } else { format!("{base}.metadata.name") };
        let place = document.place(&path, false);
        let here = format!("{file}:{}", place.line);
        if let Some(first) = self.seen.insert((resource.clone(), namespace.clone(), name), here) {
            let problem = format!("is the name of another {} of namespace {namespace}, at {first}", resource.kind);
            self.problems.push(Problem::new(file, place, &path, object.pointer("/metadata/name"), problem));
        }
        self.objects.push(object);
    }
}

/// The object with its namespace, if it says its type and its name.
fn addressable(object: &Value) -> Option<Value> {
    let resource = Resource::of(object);
    let mut object = object.clone();
    let metadata = object.get_mut("metadata")?.as_object_mut()?;
    let named = metadata.get("name").and_then(Value::as_str).is_some_and(|name| !name.is_empty());
    if metadata.get("namespace").is_none_or(Value::is_null) {
        metadata.insert("namespace".to_owned(), "default".into());
    }
    (named && !resource.api_version.is_empty() && !resource.kind.is_empty()).then_some(object)
}
