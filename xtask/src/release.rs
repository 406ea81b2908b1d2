//! `cargo xtask release`: everything that is published, in one directory.
//!
//! Owns what each package holds and where it goes. The binary is `dist`'s, the wheel `wheel`'s. Files of the same commit have the same
//! bytes: times are the commit's, or `SOURCE_DATE_EPOCH`.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::dist::{self, Built, megabytes};
use crate::run::{Problem, Scratch, VERSION, io, is_there, output, root, succeed, target, text};
use crate::wheel::{self, Platforms};
use crate::{krew, sbom};

const SHELLS: [(&str, &str); 3] = [("bash", "trainyard.bash"), ("zsh", "_trainyard"), ("fish", "trainyard.fish")];
/// Begins the part of `deploy/Containerfile` that needs no compiler.
const LAST_STAGE: &str = "\nFROM scratch\n";
/// What that part copies, and what the context has in its place.
const COPIED: (&str, &str) = ("COPY --from=build /src/target/dist/trainyard ", "COPY trainyard ");

/// Builds the binary and packs it. `--url URL`: the directory in which the archive will be published.
pub(crate) fn run(words: &[String]) -> Result<(), Problem> {
    let url = match words {
        [] => None,
        [flag, url] if flag == "--url" => Some(url),
        _ => return Err(Problem::Usage("release takes --url URL: where the archive will be published".to_owned())),
    };
    if !is_there("python3") {
        return Err(Problem::Missing("python3 is not installed: it packs the wheel".to_owned()));
    }
    let built = dist::build(&[])?;
    let packages = target().join("packages");
    if packages.exists() {
        fs::remove_dir_all(&packages).map_err(io(packages.display()))?;
    }
    fs::create_dir_all(&packages).map_err(io(packages.display()))?;
    let epoch = epoch()?;
    let mut files = vec![
        archive(&built, &epoch, &packages)?,
        chart(&epoch, &packages)?,
        wheel::write(&built.binary, Platforms::Any, &epoch, &packages)?,
        sbom::write(&built.target, &epoch, &packages)?,
    ];
    if let (Some(url), Some(archive)) = (url, files.first().cloned()) {
        files.push(krew::write(url, &archive, &folder_of(&built), &sha256(&archive)?, &packages)?);
    }
    let names: Vec<_> = files.iter().filter_map(|path| path.file_name()).collect();
    let sums = packages.join("SHA256SUMS");
    let written = File::create(&sums).map_err(io(sums.display()))?;
    succeed(Command::new("sha256sum").args(names).current_dir(&packages).stdout(written))?;
    for path in files.iter().chain([&built.binary, &built.tables]) {
        println!("{} {}", path.display(), megabytes(path)?);
    }
    println!("{}", sums.display());
    println!("{}", image(&built, &packages)?.display());
    if url.is_none() {
        println!("no manifest for Krew: `cargo xtask release --url URL` names where the archive will be published");
    }
    Ok(())
}

/// Name of the directory in the archive.
fn folder_of(built: &Built) -> String {
    format!("trainyard-{VERSION}-{}", built.target)
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

/// The binary with what a package manager would put beside it.
fn archive(built: &Built, epoch: &str, to: &Path) -> Result<PathBuf, Problem> {
    let name = folder_of(built);
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
        succeed(Command::new(&built.binary).args(["completion", shell]).stdout(script))?;
    }
    succeed(Command::new(&built.binary).args(["man", "--to"]).arg(folder.join("man")))?;
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

/// A directory that `podman build` makes the image of, without compiling.
fn image(built: &Built, to: &Path) -> Result<PathBuf, Problem> {
    let context = to.join("image");
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
