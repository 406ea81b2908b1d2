//! `cargo xtask release`: everything that is published, in one directory.
//!
//! Owns for which processors packages are made, what each holds and where it goes. The binaries are `dist`'s, the wheels `wheel`'s. Files of
//! the same commit have the same bytes: times are the commit's, or `SOURCE_DATE_EPOCH`.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::arch::Arch;
use crate::dist::{Built, Toolchain, megabytes};
use crate::krew::{self, Platform};
use crate::run::{self, Problem, Scratch, VERSION, io, is_there, output, root, succeed, target, text};
use crate::sbom;
use crate::wheel::{self, Platforms};

const SHELLS: [(&str, &str); 3] = [("bash", "trainyard.bash"), ("zsh", "_trainyard"), ("fish", "trainyard.fish")];
/// Begins the part of `deploy/Containerfile` that needs no compiler.
const LAST_STAGE: &str = "\nFROM scratch\n";
/// What that part copies, and what the context has in its place.
const COPIED: (&str, &str) = ("COPY --from=build /src/target/dist/trainyard ", "COPY trainyard ");

/// What the command is asked for.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    archs: BTreeSet<Arch>,
    /// The directory in which the archives will be published.
    url: Option<String>,
}

impl Wanted {
    fn read(words: &[String]) -> Result<Self, Problem> {
        let (mut archs, mut url) = (BTreeSet::new(), None);
        let mut words = words.iter();
        while let Some(flag) = words.next() {
            match (flag.as_str(), words.next()) {
                ("--arch", Some(arch)) => {
                    archs.insert(Arch::read(arch)?);
                }
                ("--url", Some(given)) if url.is_none() => url = Some(given.clone()),
                _ => {
                    return Err(Problem::Usage(
                        "release takes --arch ARCH for each processor, and once --url URL: where the archives will be \
                         published"
                            .to_owned(),
                    ));
                }
            }
        }
        if archs.is_empty() {
            archs.insert(Arch::OWN);
        }
        Ok(Self { archs, url })
    }
}

/// Builds the binaries and packs them.
pub(crate) fn run(words: &[String]) -> Result<(), Problem> {
    let Wanted { archs, url } = Wanted::read(words)?;
    if !is_there("python3") {
        return Err(Problem::Missing("python3 is not installed: it packs the wheel".to_owned()));
    }
    // What is missing for any of them is named before the first is built.
    let toolchains: Vec<_> = archs.into_iter().map(Toolchain::of).collect::<Result<_, _>>()?;
    let built: Vec<_> = toolchains.iter().map(|toolchain| toolchain.build(&[])).collect::<Result<_, _>>()?;
    let writer = writer(&built)?;
    let packages = target().join("packages");
    if packages.exists() {
        fs::remove_dir_all(&packages).map_err(io(packages.display()))?;
    }
    fs::create_dir_all(&packages).map_err(io(packages.display()))?;
    let epoch = epoch()?;
    let (mut files, mut images, mut platforms) = (vec![chart(&epoch, &packages)?], Vec::new(), Vec::new());
    for built in &built {
        let archive = archive(built, &writer, &epoch, &packages)?;
        platforms.push(platform(built.arch, &archive)?);
        files.push(archive);
        files.push(wheel::write(built.arch, &built.binary, Platforms::Any, &epoch, &packages)?);
        files.push(sbom::write(&built.arch.triple(), &epoch, &packages)?);
        images.push(image(built, &packages)?);
    }
    if let Some(url) = &url {
        files.push(krew::write(url, &platforms, &packages)?);
    }
    let names: Vec<_> = files.iter().filter_map(|path| path.file_name()).collect();
    let sums = packages.join("SHA256SUMS");
    let written = File::create(&sums).map_err(io(sums.display()))?;
    succeed(Command::new("sha256sum").args(names).current_dir(&packages).stdout(written))?;
    for path in files.iter().chain(built.iter().flat_map(|built| [&built.binary, &built.tables])) {
        println!("{} {}", path.display(), megabytes(path)?);
    }
    for path in images.iter().chain([&sums]) {
        println!("{}", path.display());
    }
    if url.is_none() {
        println!("no manifest for Krew: `cargo xtask release --url URL` names where the archives will be published");
    }
    Ok(())
}

/// The program that writes completions and manual pages, which are the same for every processor. It has to run on this machine.
fn writer(built: &[Built]) -> Result<PathBuf, Problem> {
    if let Some(own) = built.iter().find(|built| built.arch == Arch::OWN) {
        return Ok(own.binary.clone());
    }
    run::build_quietly(&["trainyard"])?;
    Ok(run::built("trainyard"))
}

/// Name of the directory in the archive.
fn folder_of(arch: Arch) -> String {
    format!("trainyard-{VERSION}-{}", arch.triple())
}

/// The archive as Krew has it.
fn platform(arch: Arch, archive: &Path) -> Result<Platform, Problem> {
    let name = archive.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Platform { arch, archive: name, folder: folder_of(arch), sha256: sha256(archive)? })
}

fn sha256(path: &Path) -> Result<String, Problem> {
    let printed = output(Command::new("sha256sum").arg(path))?;
    let digest = text(&printed).split_whitespace().next().map(str::to_owned);
    digest.filter(|_| printed.status.success()).ok_or_else(|| Problem::failed(text(&printed)))
}

/// Time of every file, in seconds since 1970.
fn epoch() -> Result<String, Problem> {
    if let Ok(epoch) = std::env::var("SOURCE_DATE_EPOCH") {
        return Ok(epoch);
    }
    let commit = output(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(root()));
    match commit {
        Ok(commit) if commit.status.success() => Ok(String::from_utf8_lossy(&commit.stdout).trim().to_owned()),
        _ => Err(Problem::Missing("no commit to take the time from: set SOURCE_DATE_EPOCH".to_owned())),
    }
}

/// The binary with what a package manager would put beside it. `writer` prints completions and manual pages.
fn archive(built: &Built, writer: &Path, epoch: &str, to: &Path) -> Result<PathBuf, Problem> {
    let name = folder_of(built.arch);
    let scratch = Scratch::new("archive")?;
    let folder = scratch.join(&name);
    let completions = folder.join("completions");
    fs::create_dir_all(&completions).map_err(io(completions.display()))?;
    let sources = ["LICENSE", "README.md", "CHANGELOG.md"].map(|name| root().join(name));
    for path in sources.iter().chain([&built.binary]) {
        fs::copy(path, folder.join(path.file_name().unwrap_or_default())).map_err(io(path.display()))?;
    }
    for plugin in ["kubectl-torchrun", "kubectl-trainyard"].map(|name| folder.join(name)) {
        symlink("trainyard", &plugin).map_err(io(plugin.display()))?;
    }
    for (shell, file) in SHELLS {
        let path = completions.join(file);
        let script = File::create(&path).map_err(io(path.display()))?;
        succeed(Command::new(writer).args(["completion", shell]).stdout(script))?;
    }
    succeed(Command::new(writer).args(["man", "--to"]).arg(folder.join("man")))?;
    let file = to.join(format!("{name}.tar.gz"));
    tar(&file, epoch, &scratch.join(""), &[&name])?;
    Ok(file)
}

/// The chart as Helm takes it, with files in place of the links.
fn chart(epoch: &str, to: &Path) -> Result<PathBuf, Problem> {
    let file = to.join(format!("trainyard-{VERSION}.tgz"));
    let flags = ["--dereference", "--exclude=kustomization.yaml", "--transform=s,^chart,trainyard,"];
    tar(&file, epoch, &root().join("deploy"), &[&flags[..], &["chart"]].concat())?;
    Ok(file)
}

/// A directory that `podman build --platform` makes the image of, without compiling.
fn image(built: &Built, to: &Path) -> Result<PathBuf, Problem> {
    let context = to.join("image").join(built.arch.in_go());
    fs::create_dir_all(&context).map_err(io(context.display()))?;
    let source = root().join("deploy/Containerfile");
    let text = fs::read_to_string(&source).map_err(io(source.display()))?;
    let Some((_, stage)) = text.rsplit_once(LAST_STAGE).filter(|(_, stage)| stage.contains(COPIED.0)) else {
        return Err(Problem::failed(format!("{}: its last stage does not copy the binary alone", source.display())));
    };
    let path = context.join("Containerfile");
    fs::write(&path, format!("{}{}", LAST_STAGE.trim_start(), stage.replace(COPIED.0, COPIED.1)))
        .map_err(io(path.display()))?;
    fs::copy(&built.binary, context.join("trainyard")).map_err(io(built.binary.display()))?;
    Ok(context)
}

/// Packs with GNU tar: in the order of names, without the owners and times of this machine.
fn tar(file: &Path, epoch: &str, directory: &Path, words: &[&str]) -> Result<(), Problem> {
    let mut tar = Command::new("tar");
    tar.args(["--create", "--gzip", "--sort=name", "--owner=0", "--group=0", "--numeric-owner"]);
    tar.args(["--mode=u+rwX,go+rX,go-w", &format!("--mtime=@{epoch}"), "--file"]).arg(file);
    succeed(tar.arg("--directory").arg(directory).args(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &str) -> Result<Wanted, String> {
        let words: Vec<_> = words.split_whitespace().map(str::to_owned).collect();
        Wanted::read(&words).map_err(|problem| problem.to_string())
    }

    fn archs(names: &[&str]) -> BTreeSet<Arch> {
        names.iter().map(|name| Arch::read(name).expect("it is released")).collect()
    }

    #[test]
    fn without_a_word_it_is_built_for_this_machine() {
        assert_eq!(read(""), Ok(Wanted { archs: BTreeSet::from([Arch::OWN]), url: None }));
    }

    #[test]
    fn each_processor_is_built_once() {
        let wanted = read("--arch x86_64 --url https://example.com --arch aarch64 --arch x86_64");
        let url = Some("https://example.com".to_owned());
        assert_eq!(wanted, Ok(Wanted { archs: archs(&["aarch64", "x86_64"]), url }));
    }

    #[test]
    fn what_it_does_not_take_is_refused() {
        for words in ["--arch", "--url", "aarch64", "--arch aarch64 more", "--url a --url b"] {
            let problem = read(words).expect_err(words);
            assert!(problem.starts_with("release takes --arch ARCH"), "{words}: {problem}");
        }
        let problem = read("--arch x86_64 --arch riscv64").expect_err("no release is built for it");
        assert_eq!(problem, "no release is built for `riscv64`: --arch takes aarch64 or x86_64");
    }
}
