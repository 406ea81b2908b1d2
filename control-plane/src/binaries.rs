//! Which programs are run: those of `KUBEBUILDER_ASSETS`, or one that holds them all and is built from `go/`.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::build::Module;
use crate::component::Component;
use crate::error::Error;

/// The directory with etcd, kube-apiserver and kubectl, as tools for tests of operators name it.
const ASSETS: &str = "KUBEBUILDER_ASSETS";

/// Sets the version that the programs report.
const LINK: &str = "-s -w -X k8s.io/component-base/version.gitVersion=v1.36.3 \
                    -X k8s.io/client-go/pkg/version.gitVersion=v1.36.3 \
                    -X helm.sh/helm/v4/internal/version.version=v4.2.4";
/// All programs in one file.
const MODULE: Module = Module {
    what: "the control plane",
    sources: &[
        ("go.mod", include_str!("../go/go.mod")),
        ("go.sum", include_str!("../go/go.sum")),
        ("main.go", include_str!("../go/main.go")),
    ],
    link: LINK,
    package: ".",
    program: "control-plane",
    beside: None,
};

/// Paths of the programs.
#[derive(Debug, Clone)]
pub struct Binaries {
    programs: Programs,
}

#[derive(Debug, Clone)]
enum Programs {
    /// Each a file of its own, looked for in these directories.
    Files(Vec<PathBuf>),
    /// One file, with the program as its first argument.
    One(PathBuf),
}

impl Binaries {
    /// Finds or builds them. The build takes minutes the first time; what it makes is kept in a cache, and says so on stderr.
    ///
    /// With `KUBEBUILDER_ASSETS` set, all are looked for there, then on `PATH`. Otherwise they are built with Go into
    /// `TRAINYARD_CONTROL_PLANE_CACHE`, or `control-plane` in cargo's target directory. Processes that come at the same time wait
    /// for the one that builds.
    ///
    /// # Errors
    /// When etcd, kube-apiserver or kubectl are not in `KUBEBUILDER_ASSETS`, when there is no Go, or the build fails.
    pub fn ensure() -> Result<Self, Error> {
        let Some(assets) = env::var_os(ASSETS).filter(|value| !value.is_empty()) else {
            return Ok(Self { programs: Programs::One(MODULE.ensure()?) });
        };
        let path = env::var_os("PATH").unwrap_or_default();
        let directories = std::iter::once(PathBuf::from(assets)).chain(env::split_paths(&path)).collect();
        let binaries = Self { programs: Programs::Files(directories) };
        binaries.require(&["etcd", "kube-apiserver", "kubectl"])?;
        Ok(binaries)
    }

    /// That the programs of these components are there.
    pub(crate) fn require_components(&self, components: &[Component]) -> Result<(), Error> {
        let programs: Vec<&'static str> = components.iter().map(|component| component.program()).collect();
        self.require(&programs)
    }

    fn require(&self, programs: &[&'static str]) -> Result<(), Error> {
        let Programs::Files(directories) = &self.programs else { return Ok(()) };
        let missing = |program: &&&'static str| find(directories, program).is_none();
        let programs: Vec<&'static str> = programs.iter().filter(missing).copied().collect();
        if programs.is_empty() {
            return Ok(());
        }
        let assets = directories.first().map(|directory| directory.display().to_string()).unwrap_or_default();
        let looked = format!("looked in {ASSETS} ({assets}) and on PATH; unset {ASSETS} to have them built with Go");
        Err(Error::Missing { programs, looked })
    }

    /// A command that runs one of them: `etcd`, `kubectl` and so on.
    pub fn command(&self, program: &str) -> Command {
        match &self.programs {
            Programs::One(file) => {
                let mut command = Command::new(file);
                command.arg(program);
                command
            }
            Programs::Files(directories) => Command::new(find(directories, program).unwrap_or_else(|| program.into())),
        }
    }
}

fn find(directories: &[PathBuf], program: &str) -> Option<PathBuf> {
    directories.iter().map(|directory| directory.join(program)).find(|file| is_program(file))
}

fn is_program(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}
