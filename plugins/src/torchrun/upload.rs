//! Uploading an archive, piece by piece, into a directory behind a shell.
//!
//! Owns the protocol: what has arrived is asked for, the rest is appended to a part named after the archive's digest, and the whole is
//! verified and renamed at once. So a connection that breaks loses nothing, and half an archive is never seen. It must not know
//! clusters. Tests: `upload/tests.rs`.

#[cfg(test)]
mod tests;

use std::fs::File;
use std::time::Duration;

use indicatif::ProgressBar;
use inputs::archive::{Archive, size};
use terminal::out::{self, Failure};

/// Connections that may break one after the other without a byte in between.
const MAX_IDLE_TRIES: u32 = 5;
/// Time after a connection broke; it doubles with each that brought nothing.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// Digits of the digest in the name of a part.
const NAME_DIGITS: usize = 16;

/// Arguments: directory, archive, part, mark of what was delivered. Prints `done`, or the size of the part. Parts of other
/// archives are removed.
const ASK: &str = r#"cd "$1" || exit 1
if [ "$(cat .uploaded 2>/dev/null)" = "$4" ]; then echo done; exit; fi
for other in .upload-*; do [ "$other" = "$3" ] || rm -f -- "$other"; done
if [ -f "$3" ]; then wc -c < "$3"; else echo 0; fi"#;
/// Arguments as before, then a number of bytes: appends that many of the input.
const APPEND: &str = r#"cd "$1" && head -c "$5" >> "$3""#;
/// Arguments as before, then a digest: makes the part the archive. Prints `done`, or `damaged`, and then the part is gone.
const FINISH: &str = r#"cd "$1" || exit 1
sum=$(sha256sum < "$3") || exit 1
if [ "${sum%% *}" = "$5" ]; then printf %s "$4" > .uploaded && mv -f "$3" "$2" && echo done; else rm -f "$3" && echo damaged; fi"#;

/// What went wrong with a command.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The connection: it may be tried again.
    Lost(String),
    /// The command itself, in its own words.
    Failed(String),
}

/// A part of a file that becomes the input of a command.
#[derive(Debug)]
pub(crate) struct Input<'a> {
    pub(crate) file: &'a File,
    pub(crate) from: u64,
    pub(crate) bar: &'a ProgressBar,
}

/// Where an archive goes.
pub(crate) trait Receiver {
    /// Waits until commands can be run. False: the archive is not needed any more, since it was taken.
    async fn wait(&mut self) -> Result<bool, Failure>;

    /// The path of the archive.
    fn path(&self) -> &str;

    /// Runs a shell script with arguments; returns its output.
    async fn run(&mut self, script: &str, words: &[&str], input: Option<Input<'_>>) -> Result<String, Broken>;
}

/// Uploads an archive. `mark` says what it is for: the same archive is uploaded again for another purpose.
pub(crate) async fn upload(
    receiver: &mut impl Receiver,
    archive: &Archive,
    mark: &str,
    bar: &ProgressBar,
) -> Result<(), Failure> {
    let (mut idle, mut furthest) = (0, 0);
    loop {
        if !receiver.wait().await? {
            return Ok(());
        }
        let why = match attempt(receiver, archive, mark, bar).await {
            Ok(true) => return Ok(()),
            Ok(false) => "the archive arrived damaged".to_owned(),
            Err(Broken::Failed(message)) => return Err(Failure::missing(format!("the upload failed: {message}"))),
            Err(Broken::Lost(message)) => message,
        };
        idle = if bar.position() > furthest { 0 } else { idle + 1 };
        furthest = furthest.max(bar.position());
        if idle >= MAX_IDLE_TRIES {
            return Err(Failure::missing(format!("the upload broke {idle} times without a byte in between: {why}")));
        }
        let text = format!("the upload broke at {}: {why}; it is continued", size(bar.position()));
        bar.suspend(|| out::warn(&text));
        tokio::time::sleep(FIRST_PAUSE * 2_u32.pow(idle)).await;
    }
}

/// One connection. False: what arrived is damaged, and gone.
async fn attempt(
    receiver: &mut impl Receiver,
    archive: &Archive,
    mark: &str,
    bar: &ProgressBar,
) -> Result<bool, Broken> {
    let path = receiver.path().to_owned();
    let (directory, name) = path.rsplit_once('/').unwrap_or((".", &path));
    let part = format!(".upload-{}", archive.digest.get(..NAME_DIGITS).unwrap_or_default());
    let mark = format!("{mark} {}", archive.digest);
    let words = [directory, name, part.as_str(), mark.as_str()];
    let with = |word: String| words.iter().map(|word| (*word).to_owned()).chain([word]).collect::<Vec<_>>();
    let answer = receiver.run(ASK, &words, None).await?;
    if answer.trim() == "done" {
        bar.set_position(archive.bytes);
        return Ok(true);
    }
    let arrived: u64 = answer.trim().parse().map_err(|_| Broken::Failed(format!("{answer:?} is no size of a file")))?;
    bar.set_position(arrived.min(archive.bytes));
    if arrived < archive.bytes {
        let words = with((archive.bytes - arrived).to_string());
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        receiver.run(APPEND, &words, Some(Input { file: &archive.file, from: arrived, bar })).await?;
    }
    // One that ended early, or was appended to by two at once, shows here.
    let words = with(archive.digest.clone());
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match receiver.run(FINISH, &words, None).await?.trim() {
        "done" => Ok(true),
        "damaged" => {
            bar.set_position(0);
            Ok(false)
        }
        answer => Err(Broken::Failed(format!("{answer:?}"))),
    }
}
