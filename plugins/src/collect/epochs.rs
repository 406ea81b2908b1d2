//! Epochs of one job, as its training script writes them line by line into a CSV file: the sums that its progress is reported by.
//!
//! Owns what counts of a file that another program is writing, or was killed while it wrote. Must not read files. Tests: at the end.

use std::str;
use std::time::Duration;

use csv::{ByteRecord, ReaderBuilder};
use model::{Measurement, Progress};

/// The column of the number of an epoch, counted from 0.
const EPOCH: &str = "epoch";
/// The column of the number of GPUs.
const WORKERS: &str = "workers";
/// The column of the time in seconds that the epoch took.
const SECONDS: &str = "epoch_time_sec";
/// The column of the number of epochs in all; it may be missing.
const TOTAL: &str = "total_epochs";

/// Reason for which a file has no epochs.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// It is no CSV file.
    #[error(transparent)]
    Csv(#[from] csv::Error),
    /// Its first line is no header.
    #[error("the first line has no columns {EPOCH}, {WORKERS} and {SECONDS}")]
    NoHeader,
}

/// Epochs of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Epochs {
    /// The progress of the job.
    pub(super) progress: Progress,
    /// Number of lines that cannot be read: torn ones, or nonsense.
    pub(super) unread: u32,
}

/// Places of the columns that are read.
#[derive(Debug, Clone, Copy)]
struct Columns {
    epoch: usize,
    workers: usize,
    seconds: usize,
    total: Option<usize>,
    count: usize,
}

/// One line.
struct Epoch {
    number: u64,
    gpus: u32,
    took_ms: u64,
    total: Option<u64>,
}

impl Columns {
    /// Reads a header; `None` for any other line. A run that begins again may write one into the middle.
    fn of(line: &ByteRecord) -> Option<Self> {
        let place = |name: &str| line.iter().position(|field| field.trim_ascii() == name.as_bytes());
        Some(Self {
            epoch: place(EPOCH)?,
            workers: place(WORKERS)?,
            seconds: place(SECONDS)?,
            total: place(TOTAL),
            count: line.len(),
        })
    }

    fn read(&self, line: &ByteRecord) -> Option<Epoch> {
        if line.len() != self.count {
            return None;
        }
        let text = |column: usize| str::from_utf8(line.get(column)?.trim_ascii()).ok();
        let seconds: f64 = text(self.seconds)?.parse().ok()?;
        let took = Duration::try_from_secs_f64(seconds).ok()?;
        Some(Epoch {
            number: whole(text(self.epoch)?)?,
            gpus: u32::try_from(whole(text(self.workers)?)?).ok().filter(|gpus| *gpus > 0)?,
            took_ms: u64::try_from(took.as_millis()).ok().filter(|ms| *ms > 0)?,
            total: self.total.and_then(text).and_then(whole).filter(|total| *total > 0),
        })
    }
}

/// Reads a whole number; some writers give it a decimal point.
fn whole(text: &str) -> Option<u64> {
    text.strip_suffix(".0").unwrap_or(text).parse().ok()
}

/// Reads a file. A last line without its end is still being written, and does not count.
///
/// # Errors
/// Returns an error if it has lines and the first one is no header.
pub(super) fn read(bytes: &[u8]) -> Result<Epochs, Error> {
    let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last.saturating_add(1));
    let complete = bytes.get(..end).unwrap_or_default();
    // A quotation mark that is torn apart would take all lines after it.
    let mut lines = ReaderBuilder::new().has_headers(false).flexible(true).quoting(false).from_reader(complete);
    let mut epochs = Epochs::default();
    let mut columns: Option<Columns> = None;
    for line in lines.byte_records() {
        let line = line?;
        if let Some(found) = Columns::of(&line) {
            columns = Some(found);
            continue;
        }
        let Some(columns) = columns else {
            return Err(Error::NoHeader);
        };
        let Some(epoch) = columns.read(&line) else {
            epochs.unread = epochs.unread.saturating_add(1);
            continue;
        };
        let progress = &mut epochs.progress;
        // A run that begins again at an older checkpoint does epochs again: they take time, and are done once.
        progress.done = epoch.number.saturating_add(1);
        progress.total = epoch.total.or(progress.total);
        let measured = Measurement { units: 1, took_ms: epoch.took_ms };
        progress.sizes.entry(epoch.gpus).or_default().add(measured);
    }
    Ok(epochs)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HEADER: &str = "epoch,accuracy,epoch_time_sec,loss,start_time,step_time_sec,total_epochs,workers\n";

    fn row(epoch: u64, seconds: f64, workers: u32) -> String {
        format!("{epoch},0.5,{seconds},1.25,2022-01-17 16:56:48.123456,0.1,60,{workers}\n")
    }

    /// Epochs done, epochs in all, GPUs with epochs and milliseconds, lines that cannot be read.
    type Sums = (u64, Option<u64>, Vec<(u32, u64, u64)>, u32);

    fn sums(epochs: &Epochs) -> Sums {
        let Epochs { progress, unread } = epochs;
        let sizes = progress.sizes.iter().map(|(gpus, measured)| (*gpus, measured.units, measured.took_ms));
        (progress.done, progress.total, sizes.collect(), *unread)
    }

    #[test]
    fn epochs_add_up_by_the_number_of_gpus() {
        let text = [HEADER, &row(0, 105.5, 1), &row(1, 104.5, 1), &row(2, 55.0, 2)].concat();
        let read = read(text.as_bytes()).unwrap();
        assert_eq!(sums(&read), (3, Some(60), vec![(1, 2, 210_000), (2, 1, 55_000)], 0));
    }

    #[test]
    fn a_run_that_begins_again_repeats_epochs_and_its_header() {
        let text = [HEADER, &row(0, 10.0, 2), &row(1, 10.0, 2), "workers,epoch,epoch_time_sec\n", "4,1,6\n4.0,2.0,6\n"];
        let read = read(text.concat().as_bytes()).unwrap();
        assert_eq!(sums(&read), (3, Some(60), vec![(2, 2, 20_000), (4, 2, 12_000)], 0));
    }

    #[test]
    fn torn_lines_and_nonsense_count_as_nothing() {
        let unfinished = "3,0.5,9,1.25,x,0.1,60,2";
        for (lines, unread) in [
            (vec![unfinished.to_owned()], 0),
            (vec![format!("1,0.5,{}", row(1, 9.0, 2))], 1),
            (vec!["\n\n".to_owned()], 0),
            (vec!["1,\"0.5,9,1.25,x,0.1,60,two\n".to_owned()], 1),
            (["NaN", "inf", "-4", "", "0", "1e400"].map(|time| format!("1,0.5,{time},1,x,0.1,60,2\n")).to_vec(), 6),
            (["0", "-1", "x", "4294967296"].map(|gpus| format!("1,0.5,9,1,x,0.1,60,{gpus}\n")).to_vec(), 4),
            (vec!["-1,0.5,9,1,x,0.1,60,2\n".to_owned(), "18446744073709551616,0,9,1,x,0,60,2\n".to_owned()], 2),
        ] {
            let text = format!("{HEADER}{}{}", row(0, 8.0, 2), lines.concat());
            assert_eq!(sums(&read(text.as_bytes()).unwrap()), (1, Some(60), vec![(2, 1, 8000)], unread), "{text}");
        }
        let odd = [HEADER.as_bytes(), b"1,\xff,9,1,x,0.1,\xfe,2\n0,\xff,9,1,x,0.1,60,\xff\n"].concat();
        assert_eq!(sums(&read(&odd).unwrap()), (2, None, vec![(2, 1, 9000)], 1));
    }

    #[test]
    fn a_file_without_a_header_is_refused_and_an_empty_one_gives_no_epochs() {
        let error = read(row(0, 1.0, 1).as_bytes()).unwrap_err().to_string();
        assert_eq!(error, "the first line has no columns epoch, workers and epoch_time_sec");
        for text in ["", "epoch", HEADER] {
            assert_eq!(read(text.as_bytes()).unwrap(), Epochs::default(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_file_is_too_odd(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let with_header = [HEADER.as_bytes(), &bytes].concat();
            prop_assert!(read(&with_header).is_ok());
            drop(read(&bytes));
        }

        #[test]
        fn what_was_complete_when_it_was_cut_counts(rows in proptest::collection::vec((0_u64..50, 1_u32..9), 1..20), cut in 0_usize..900) {
            let text: String = rows.iter().map(|(epoch, workers)| row(*epoch, 2.0, *workers)).collect();
            let text = format!("{HEADER}{text}");
            let cut = text.get(..cut).unwrap_or(&text);
            let read = read(cut.as_bytes()).unwrap();
            let complete = cut.matches('\n').count().saturating_sub(1);
            let counted: u64 = read.progress.sizes.values().map(|measured| measured.units).sum();
            prop_assert_eq!((counted, read.unread), (u64::try_from(complete).unwrap(), 0));
        }
    }
}
