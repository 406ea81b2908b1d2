//! Processors that a release is built for, and what each tool calls them.
//!
//! Owns the names. It must not say how a program is built: `dist` does.

use std::fmt;

use crate::run::Problem;

/// What `--arch` takes: the name of Rust and Python, and that of Go, which Krew and images have.
const RELEASED: [(&str, &str); 2] = [("aarch64", "arm64"), ("x86_64", "amd64")];

/// A processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Arch(&'static str);

impl Arch {
    /// That of this machine.
    pub(crate) const OWN: Self = Self(std::env::consts::ARCH);

    /// Reads the word behind `--arch`.
    pub(crate) fn read(word: &str) -> Result<Self, Problem> {
        let known = RELEASED.iter().find(|(name, _)| *name == word);
        known.map(|(name, _)| Self(name)).ok_or_else(|| {
            let names = RELEASED.map(|(name, _)| name).join(" or ");
            Problem::Usage(format!("no release is built for `{word}`: --arch takes {names}"))
        })
    }

    /// The target whose programs are static and run on every Linux of this processor.
    pub(crate) fn triple(self) -> String {
        format!("{self}-unknown-linux-musl")
    }

    /// Its name in Go.
    pub(crate) fn in_go(self) -> &'static str {
        RELEASED.iter().find(|(name, _)| *name == self.0).map_or(self.0, |(_, go)| go)
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tool_has_its_own_name() {
        let arch = Arch::read("aarch64").expect("it is released");
        assert_eq!(arch.to_string(), "aarch64");
        assert_eq!(arch.triple(), "aarch64-unknown-linux-musl");
        assert_eq!(arch.in_go(), "arm64");
        assert_eq!(Arch::read("x86_64").map(Arch::in_go).ok(), Some("amd64"));
    }

    #[test]
    fn an_unknown_processor_is_named_with_those_that_are_known() {
        let problem = Arch::read("arm64").expect_err("it is the name of Go").to_string();
        assert_eq!(problem, "no release is built for `arm64`: --arch takes aarch64 or x86_64");
    }
}
