//! What all commands share towards the user: printing, exit codes, and words.
//!
//! Owns standard output and standard error of the process, and the form of what is printed there. It must not know what a
//! command does. Tests: at the end of each file, and `cli/tests/local/output.rs`.

pub mod columns;
pub mod completion;
pub mod list;
pub mod near;
pub mod out;
pub mod shell;
pub mod stop;
