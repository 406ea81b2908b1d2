//! What can be wrong with an input, always with the place.

use std::fmt;

/// One row that cannot be used: where, what it says, and what is wrong with that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRow {
    /// Name of the file as it was given.
    pub file: String,
    /// Line in the file, from 1; the header is line 1.
    pub line: u64,
    /// Name of the column.
    pub column: String,
    /// The value.
    pub value: String,
    /// The problem.
    pub problem: String,
}

impl fmt::Display for BadRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, column, value, problem } = self;
        write!(f, "{file}:{line}: column {column}: {value:?} {problem}")
    }
}

impl std::error::Error for BadRow {}

/// Why an input was refused.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file could not be read.
    #[error("{file}: cannot be read")]
    Read {
        /// The file.
        file: String,
        /// Error of the system.
        source: std::io::Error,
    },
    /// A row cannot be used.
    #[error(transparent)]
    Row(#[from] BadRow),
    /// The header lacks a column.
    #[error("{file}:1: no column {column}; found {found}")]
    NoColumn {
        /// The file.
        file: String,
        /// The column, or the columns of which one is needed.
        column: String,
        /// The columns there are.
        found: String,
    },
    /// There is nothing in it.
    #[error("{file}: no usable row")]
    Empty {
        /// The file.
        file: String,
    },
    /// A cluster spec is no cluster spec.
    #[error("cluster {text:?}: {problem}")]
    Cluster {
        /// The text given.
        text: String,
        /// The problem.
        problem: String,
    },
}
