//! Uploads into a directory of this machine, through a shell whose connections break.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use super::*;

/// A shell on this machine. Each of `breaks` cuts off the input of one command after that many bytes.
struct Shell {
    path: String,
    breaks: Vec<u64>,
    sent: Vec<u64>,
    taken: bool,
}

impl Shell {
    fn new(directory: &Path, breaks: &[u64]) -> Self {
        let path = directory.join("workspace.zip").to_string_lossy().into_owned();
        Self { path, breaks: breaks.to_vec(), sent: Vec::new(), taken: false }
    }
}

impl Receiver for Shell {
    async fn wait(&mut self) -> Result<bool, Failure> {
        Ok(!self.taken)
    }

    fn path(&self) -> &str {
        &self.path
    }

    async fn run(&mut self, script: &str, words: &[&str], input: Option<Input<'_>>) -> Result<String, Broken> {
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).args(words);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let mut is_lost = false;
        if let Some(input) = input {
            let mut rest = Vec::new();
            std::io::Seek::seek(&mut &*input.file, std::io::SeekFrom::Start(input.from)).unwrap();
            (&mut &*input.file).read_to_end(&mut rest).unwrap();
            if let Some(at) = self.breaks.pop() {
                rest.truncate(usize::try_from(at).unwrap());
                is_lost = true;
            }
            stdin.write_all(&rest).unwrap();
            input.bar.inc(rest.len().try_into().unwrap());
            self.sent.push(rest.len().try_into().unwrap());
        }
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        if is_lost {
            return Err(Broken::Lost("cut off".to_owned()));
        }
        if !output.status.success() {
            return Err(Broken::Failed(String::from_utf8_lossy(&output.stderr).into_owned()));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// An archive of bytes that are not the same anywhere.
fn archive(bytes: u64) -> Archive {
    let mut file = tempfile::tempfile().unwrap();
    for number in 0..bytes / 8 {
        file.write_all(&number.to_le_bytes()).unwrap();
    }
    let sum = Command::new("sha256sum").stdin(Stdio::from(file.try_clone().map(rewound).unwrap())).output().unwrap();
    let digest = String::from_utf8(sum.stdout).unwrap().split_whitespace().next().unwrap().to_owned();
    Archive { file, bytes, digest, files: 1 }
}

fn rewound(mut file: File) -> File {
    std::io::Seek::rewind(&mut file).unwrap();
    file
}

fn send(shell: &mut Shell, archive: &Archive, mark: &str) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let bar = ProgressBar::hidden();
    runtime.block_on(upload(shell, archive, mark, &bar)).map_err(|error| error.to_string())
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn an_upload_that_breaks_goes_on_where_it_was() {
    let place = tempfile::tempdir().unwrap();
    let archive = archive(100_000);
    let mut shell = Shell::new(place.path(), &[30_000, 20_000]);
    send(&mut shell, &archive, "1").unwrap();
    assert_eq!(shell.sent, [20_000, 30_000, 50_000], "no byte was sent twice");
    let sent = std::fs::read(place.path().join("workspace.zip")).unwrap();
    assert_eq!(sent.len(), 100_000);
    assert_eq!(names(place.path()), [".uploaded", "workspace.zip"]);

    // Repeated, it sends nothing; for another generation it does.
    std::fs::remove_file(place.path().join("workspace.zip")).unwrap();
    let mut again = Shell::new(place.path(), &[]);
    send(&mut again, &archive, "1").unwrap();
    assert_eq!((again.sent.len(), names(place.path()).len()), (0, 1));
    send(&mut again, &archive, "2").unwrap();
    assert_eq!(again.sent, [100_000]);
}

#[test]
fn an_upload_is_continued_by_another_process_and_replaced_by_another_archive() {
    let place = tempfile::tempdir().unwrap();
    let (old, new) = (archive(50_000), archive(60_000));
    let mut shell = Shell::new(place.path(), &[0, 0, 0, 0, 0, 10_000]);
    let error = send(&mut shell, &old, "1").unwrap_err();
    assert!(error.contains("broke 5 times without a byte in between: cut off"), "{error}");
    let mut later = Shell::new(place.path(), &[]);
    send(&mut later, &old, "1").unwrap();
    assert_eq!(later.sent, [40_000]);
    // Parts of an archive that no client will finish do not stay.
    let mut broken = Shell::new(place.path(), &[0, 0, 0, 0, 0, 10_000]);
    send(&mut broken, &old, "2").unwrap_err();
    send(&mut later, &new, "2").unwrap();
    assert_eq!(later.sent, [40_000, 60_000]);
    assert_eq!(names(place.path()), [".uploaded", "workspace.zip"]);
}

#[test]
fn what_arrived_damaged_is_sent_again() {
    let place = tempfile::tempdir().unwrap();
    let archive = archive(8_000);
    let part = place.path().join(format!(".upload-{}", &archive.digest[..16]));
    std::fs::write(&part, [7; 4_000]).unwrap();
    let mut shell = Shell::new(place.path(), &[]);
    send(&mut shell, &archive, "1").unwrap();
    assert_eq!(shell.sent, [4_000, 8_000]);
    let mut gone = Shell { taken: true, ..Shell::new(place.path(), &[]) };
    send(&mut gone, &archive, "2").unwrap();
    assert!(gone.sent.is_empty(), "no client waits for it");
    let error = send(&mut Shell::new(&place.path().join("no-such"), &[]), &archive, "1").unwrap_err();
    assert!(error.starts_with("the upload failed: ") && error.contains("no-such"), "{error}");
}
