//! Reading logs: a directory (a copy of it when a run goes on), an export, or a live operator's.

use std::fmt;
use std::fs::{self, File};
use std::io::BufRead;
use std::path::{Path, PathBuf};

use engine::{Record, State};
use event_log::disk::SledLog;
use event_log::{Checkpoint, EventLog, Frame, Head, jsonl};

use crate::out::Failure;
use crate::remote::{self, ServerArgs};

/// Whether reading goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    /// The next record, please.
    Go,
    /// Enough.
    Stop,
}

/// Where a log is.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    /// A log directory, a data directory, or an export.
    Path(PathBuf),
    /// A live operator.
    Server(ServerArgs),
}

impl Source {
    /// The live operator if one is named, or else the path.
    pub(crate) fn of(path: &Path, server: &ServerArgs) -> Self {
        if server.given() { Self::Server(server.clone()) } else { Self::Path(path.to_owned()) }
    }
}

impl From<&Path> for Source {
    fn from(path: &Path) -> Self {
        Self::Path(path.to_owned())
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => path.display().fmt(f),
            Self::Server(server) => server.fmt(f),
        }
    }
}

/// Shows every record of a log to `visit`, in order, holding one at a time. The state begins at the log's checkpoint, if it
/// has one; `visit` brings it up to date. Gives the head of what was read.
pub(crate) fn each(
    source: &Source,
    state: &mut State,
    visit: &mut dyn FnMut(&mut State, Record) -> Result<Flow, Failure>,
) -> Result<Head, Failure> {
    let mut head = Head::default();
    let mut begin = |checkpoint: Option<&Checkpoint>, head: &mut Head| -> Result<(), Failure> {
        if let Some(checkpoint) = checkpoint {
            *head = Head { position: checkpoint.position, digest: checkpoint.digest };
            *state = State::from_checkpoint(&checkpoint.state)
                .map_err(|e| Failure::new(format!("{source}: checkpoint {}: {e}", checkpoint.position)))?;
        }
        Ok(())
    };
    let mut reader = match source {
        Source::Path(path) if path.is_dir() => {
            let log = open_dir(path)?;
            begin(log.checkpoint()?.as_ref(), &mut head)?;
            for frame in log.read(log.first())? {
                let frame = frame.map_err(|e| Failure::new(format!("{source}: {e}")))?;
                if one(source, &frame, state, visit, &mut head)? == Flow::Stop {
                    break;
                }
            }
            return Ok(head);
        }
        Source::Path(path) => jsonl::open(path)?,
        Source::Server(server) => remote::open(server)?,
    };
    begin(reader.checkpoint(), &mut head)?;
    for frame in reader.by_ref() {
        if one(source, &frame?, state, visit, &mut head)? == Flow::Stop {
            break;
        }
    }
    Ok(head)
}

fn one(
    source: &Source,
    frame: &Frame,
    state: &mut State,
    visit: &mut dyn FnMut(&mut State, Record) -> Result<Flow, Failure>,
    head: &mut Head,
) -> Result<Flow, Failure> {
    let record = Record::decode(frame.position, frame.term, &frame.body)
        .map_err(|e| Failure::new(format!("{source}: position {}: {e}", frame.position)))?;
    *head = Head { position: frame.position, digest: frame.digest };
    visit(state, record)
}

/// Folds a log up to where `visit` stops it. `visit` sees each record and the state before it.
pub(crate) fn fold(
    source: &Source,
    visit: &mut dyn FnMut(&State, &Record) -> Result<Flow, Failure>,
) -> Result<State, Failure> {
    let mut state = State::default();
    each(source, &mut state, &mut |state, record| {
        let flow = visit(state, &record)?;
        if flow == Flow::Go {
            state.fold(&record)?;
        }
        Ok(flow)
    })?;
    Ok(state)
}

/// Opens a log directory for reading: the data directory of a run is as good as the log in it.
pub(crate) fn open_dir(path: &Path) -> Result<SledLog, Failure> {
    Ok(SledLog::open_copy(log_dir(path))?)
}

/// The log directory that a path means.
pub(crate) fn log_dir(path: &Path) -> std::path::PathBuf {
    let inner = path.join("log");
    if !path.join("current").exists() && inner.is_dir() { inner } else { path.to_owned() }
}

/// Writes a log as JSON lines, compressed when the file's name ends in `.gz`.
pub(crate) fn export(log: &dyn EventLog, to: &Path) -> Result<Head, Failure> {
    written(
        to,
        |file, packed| {
            if packed { jsonl::export_gz(log, file) } else { jsonl::export(log, file, jsonl::Digests::default()) }
        },
    )
}

/// Writes what a reader gives as JSON lines, compressed when the file's name ends in `.gz`.
pub(crate) fn copy(reader: jsonl::Reader<Box<dyn BufRead>>, to: &Path) -> Result<Head, Failure> {
    written(to, |file, packed| {
        if packed { jsonl::copy_gz(reader, file) } else { jsonl::copy(reader, file, jsonl::Digests::default()) }
    })
}

/// Writes a file beside its name and renames it: a failed export leaves no half file under the name asked for.
fn written(to: &Path, write: impl FnOnce(File, bool) -> Result<Head, jsonl::Error>) -> Result<Head, Failure> {
    let shown = to.display();
    let mut name = to.file_name().unwrap_or_default().to_os_string();
    name.push(".new");
    let new = to.with_file_name(name);
    let file = File::create(&new).map_err(|e| Failure::new(format!("{shown}: {e}")))?;
    let head = match write(file, to.extension().is_some_and(|e| e == "gz")) {
        Ok(head) => head,
        Err(error) => {
            let _ = fs::remove_file(&new);
            return Err(error.into());
        }
    };
    fs::rename(&new, to).map_err(|e| Failure::new(format!("{shown}: {e}")))?;
    Ok(head)
}
