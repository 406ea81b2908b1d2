//! What can go wrong, by what the caller does about it. Refused API writes are [`apis::ApiError`]s instead.

use std::path::PathBuf;

use apis::ApiError;

/// A scenario's or a user's action that cannot be done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No such pod.
    #[error("pod {namespace}/{name} does not exist")]
    NoSuchPod {
        /// Namespace looked in.
        namespace: String,
        /// Name looked for.
        name: String,
    },
    /// No such node.
    #[error("node {name} does not exist")]
    NoSuchNode {
        /// Name looked for.
        name: String,
    },
    /// A pod needs a node, and there is none.
    #[error("the cluster has no node")]
    NoNodes,
    /// No node takes the pod.
    #[error("pod {namespace}/{name} fits on no node: {why}")]
    NoRoom {
        /// The pod's namespace.
        namespace: String,
        /// The pod's name.
        name: String,
        /// Reasons, in the scheduler's words.
        why: String,
    },
    /// The pod has ended: nothing happens to it any more.
    #[error("pod {namespace}/{name} has ended ({phase})")]
    PodEnded {
        /// The pod's namespace.
        namespace: String,
        /// The pod's name.
        name: String,
        /// Its phase, `Succeeded` or `Failed`.
        phase: String,
    },
    /// The pod is bound to another node already.
    #[error("pod {namespace}/{name} is already on node {node}")]
    AlreadyPlaced {
        /// The pod's namespace.
        namespace: String,
        /// The pod's name.
        name: String,
        /// The node it is on.
        node: String,
    },
    /// The pod has no such container.
    #[error("pod {namespace}/{name} has no container {container}")]
    NoSuchContainer {
        /// The pod's namespace.
        namespace: String,
        /// The pod's name.
        name: String,
        /// The container looked for.
        container: String,
    },
    /// The container has ended already.
    #[error("container {container} of pod {namespace}/{name} has already ended")]
    ContainerEnded {
        /// The pod's namespace.
        namespace: String,
        /// The pod's name.
        name: String,
        /// The container.
        container: String,
    },
    /// Watches of that kind do not exist, so they cannot be made to fail.
    #[error("nothing watches objects of kind {kind:?}")]
    NotWatched {
        /// The kind asked for.
        kind: String,
    },
    /// The API server refused it.
    #[error(transparent)]
    Api(#[from] ApiError),
}

/// A `CustomResourceDefinition` that cannot be served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct DefinitionError {
    /// Path of the field inside the definition.
    pub path: String,
    /// The problem.
    pub problem: String,
}

/// Error of saving a cluster to a file, or loading it.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// There is no such file: start with a new cluster.
    #[error("no cluster is stored in {}", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The file system refused.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// Attempted operation, for example `write`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
    /// The file's content is no cluster.
    #[error("{} does not hold a cluster: {problem}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// A later build wrote the file.
    #[error("{} was written in format {found}, this build reads up to {known}", path.display())]
    TooNew {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u64,
        /// The newest format this build reads.
        known: u64,
    },
}

impl DefinitionError {
    /// An error at a path.
    pub(crate) fn at(path: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { path: path.into(), problem: problem.into() }
    }
}

/// The errors an API server answers with.
pub(crate) mod refusal {
    use apis::ApiError;
    use model::Text;

    use crate::kinds::ServedKind;

    fn error(code: u16, reason: &str, message: String) -> ApiError {
        ApiError { code, reason: Text::from(reason), message }
    }

    /// 400: the request makes no sense.
    pub(crate) fn bad_request(message: impl Into<String>) -> ApiError {
        error(400, "BadRequest", message.into())
    }

    /// 403.
    pub(crate) fn forbidden(kind: &ServedKind, name: &str, problem: &str) -> ApiError {
        error(403, "Forbidden", format!("{} \"{name}\" is forbidden: {problem}", kind.qualified_plural()))
    }

    /// 404: no such object.
    pub(crate) fn not_found(kind: &ServedKind, name: &str) -> ApiError {
        error(404, "NotFound", format!("{} \"{name}\" not found", kind.qualified_plural()))
    }

    /// 404: no such type of object. An API server knows no such path then, and answers without a reason.
    pub(crate) fn not_served(api_version: &str, kind: &str) -> ApiError {
        let message = format!("the server could not find the requested resource (kind {kind:?} of {api_version:?})");
        error(404, "", message)
    }

    /// 409: the name is taken.
    pub(crate) fn already_exists(kind: &ServedKind, name: &str) -> ApiError {
        error(409, "AlreadyExists", format!("{} \"{name}\" already exists", kind.qualified_plural()))
    }

    /// 409: a precondition does not hold.
    pub(crate) fn conflict(kind: &ServedKind, name: &str, problem: &str) -> ApiError {
        let plural = kind.qualified_plural();
        error(409, "Conflict", format!("Operation cannot be fulfilled on {plural} \"{name}\": {problem}"))
    }

    /// 422: fields of the object are not acceptable.
    pub(crate) fn invalid(kind: &ServedKind, name: &str, problems: &[String]) -> ApiError {
        let problems = match problems {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        error(422, "Invalid", format!("{} \"{name}\" is invalid: {problems}", kind.qualified_kind()))
    }
}
