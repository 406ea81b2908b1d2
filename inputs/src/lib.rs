//! Files that users hand to commands: manifests, and the archive of a working directory.
//!
//! Owns reading them, and everything that is wrong with them. It must not start or change anything. Tests: at the end of each
//! file, `manifests/tests.rs`, and `cli/tests/local/validate.rs`.

pub mod archive;
pub mod manifests;
