//! Runs the sections of documents, some at a time.
//!
//! Owns which section runs when, and with what. A section has a directory of its own, and a control plane on which there is nothing of another
//! section, so their order does not matter.

use std::ffi::OsString;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use super::Document;
use super::bash;
use super::leftovers::Leftovers;
use super::place::Place;
use super::plane::Plane;
use super::section::{self, Cluster, Section};
use crate::run::Problem;

/// Sections that run at once: most of the time of one is waiting for its control plane. One takes about 750 MB of memory.
const LANES: usize = 4;

/// A section that is to be run.
struct Work<'a> {
    /// Index of its document.
    document: usize,
    section: Section<'a>,
}

/// What became of the sections of a document so far.
#[derive(Debug, Default)]
struct Done {
    sections: usize,
    seconds: f64,
    failures: Vec<String>,
}

/// Runs them all, prints a line for each document, and returns the reports of failures in the order of the documents.
pub(super) fn run(documents: &[Document], python: &Path) -> Result<Vec<String>, Problem> {
    println!("{:<32} {:>4} {:>8} {:>8}", "document", "run", "by hand", "seconds");
    let divided: Vec<Vec<Section<'_>>> = documents.iter().map(|document| section::divide(&document.blocks)).collect();
    let counts: Vec<usize> = divided.iter().map(Vec::len).collect();
    for (document, _) in documents.iter().zip(&counts).filter(|(_, count)| **count == 0) {
        print_line(document, 0.0);
    }
    let sections = divided.into_iter().enumerate();
    let mut work: Vec<Work<'_>> = sections
        .flat_map(|(document, sections)| sections.into_iter().map(move |section| Work { document, section }))
        .collect();
    // Those that can have one control plane come one after the other. The short ones fill the time in which the last of the others runs.
    work.sort_by_key(|work| match work.section.cluster {
        Cluster::Served => 0,
        Cluster::Empty => 1,
        Cluster::None => 2,
    });
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<Done>> = Mutex::new(documents.iter().map(|_| Done::default()).collect());
    let ports = Mutex::new(());
    let lane = |lane: usize| -> Result<(), Problem> {
        let mut served = Served::default();
        while let Some(Work { document, section }) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
            let Some(own) = documents.get(*document) else { continue };
            let begin = Instant::now();
            // What listens on the ports that users know does so alone.
            let _alone = section.has_ports.then(|| ports.lock().unwrap_or_else(PoisonError::into_inner));
            let failure = run_section(&own.name(), section, python, lane, &mut served)?;
            let mut all = done.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(so_far) = all.get_mut(*document) else { continue };
            so_far.sections += 1;
            so_far.seconds += begin.elapsed().as_secs_f64();
            so_far.failures.extend(failure);
            if counts.get(*document) == Some(&so_far.sections) {
                print_line(own, so_far.seconds);
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        let lanes: Vec<_> = (0..LANES).map(|number| scope.spawn(move || lane(number))).collect();
        let gone = |_| Err(Problem::failed("a thread that runs documents has panicked"));
        lanes.into_iter().try_for_each(|lane| lane.join().unwrap_or_else(gone))
    })?;
    let done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(done.into_iter().flat_map(|done| done.failures).collect())
}

fn print_line(document: &Document, seconds: f64) {
    let (run, by_hand) = (document.count(true), document.count(false));
    if run + by_hand > 0 {
        println!("{:<32} {run:>4} {by_hand:>8} {seconds:>8.1}", document.name());
    }
}

/// A control plane with Trainyard, and what was on it at first.
type Served = Option<(Plane, Leftovers)>;

/// Runs a section in a directory of its own; returns the report of a failure.
fn run_section(
    name: &str,
    section: &Section<'_>,
    python: &Path,
    lane: usize,
    served: &mut Served,
) -> Result<Option<String>, Problem> {
    let mut empty = None;
    let plane = match section.cluster {
        Cluster::None => None,
        Cluster::Empty => {
            *served = None;
            Some(&*empty.insert(Plane::start(lane, false)?))
        }
        Cluster::Served => Some(&serve(lane, served)?.0),
    };
    let place = Place::new(python, plane)?;
    let mut seen = place.environment()?;
    for (variable, value) in plane.into_iter().flat_map(Plane::environment) {
        seen.push((variable, OsString::from(value)));
    }
    bash::run(name, section, &place, &seen)
}

/// The control plane of the section before, where nothing is left on it; else a new one.
fn serve(lane: usize, served: &mut Served) -> Result<&(Plane, Leftovers), Problem> {
    if let Some((plane, leftovers)) = served.take()
        && leftovers.clear(&plane)?
    {
        return Ok(served.insert((plane, leftovers)));
    }
    let plane = Plane::start(lane, true)?;
    let leftovers = Leftovers::note(&plane)?;
    Ok(served.insert((plane, leftovers)))
}
