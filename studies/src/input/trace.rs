//! Job traces in the neutral CSV format: one row per job, sorted by submission.
//!
//! Columns: `job_id`, `submit_time_s`, `gpus_requested`, `duration_s` (run time alone at that size, without any start-up
//! cost), and optionally `min_gpus`, `max_gpus` (default: the request), `model`, `batch_size`, `user`, `vc`. Further
//! columns are ignored. Tests: at the end of this file.

use std::collections::BTreeSet;
use std::io::Read;

use scheduler::Micros;

use super::table::{Row, Table};
use super::{BadRow, Error, OnBadRow};

/// A job as a trace describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceJob {
    /// Line in the file, for complaints found later.
    pub line: u64,
    /// Its id, unique in the trace.
    pub id: String,
    /// Time of submission, after the trace's origin.
    pub submitted: Micros,
    /// GPUs it asks for; what rigid policies give.
    pub requested: u32,
    /// Run time alone at the size asked for, without start-up cost. Never zero.
    pub duration: Micros,
    /// Fewest GPUs it runs on when elastic.
    pub min: u32,
    /// Most GPUs it can use when elastic.
    pub max: u32,
    /// Model, the first half of the key into a profile; empty when the trace has none.
    pub model: String,
    /// Batch size as written, the second half of that key.
    pub batch: String,
    /// User who submitted it; empty if unknown.
    pub user: String,
    /// Virtual cluster or tenant; empty when not known.
    pub tenant: String,
}

/// A trace.
#[derive(Debug, Clone)]
pub struct Trace {
    /// Name of the file as it was given.
    pub name: String,
    /// The jobs, in the order of the file, which is the order of submission.
    pub jobs: Vec<TraceJob>,
    /// Rows that were left out.
    pub skipped: Vec<BadRow>,
}

impl Trace {
    /// Reads a trace; `name` is what complaints call it.
    ///
    /// # Errors
    /// The input cannot be read, lacks a column, has no usable row, or, unless bad rows are skipped, has a bad row:
    /// fields missing or malformed, no GPUs, no duration, `min_gpus` above `max_gpus`, an id seen before, or a submission
    /// earlier than the row before.
    pub fn read(name: &str, input: impl Read, on_bad: OnBadRow) -> Result<Self, Error> {
        let table = Table::open(name, input)?;
        let id = table.need("job_id")?;
        let submit = table.need("submit_time_s")?;
        let requested = table.need("gpus_requested")?;
        let duration = table.need("duration_s")?;
        let (min, max) = (table.find("min_gpus"), table.find("max_gpus"));
        let (model, batch) = (table.find("model"), table.find("batch_size"));
        let (user, tenant) = (table.find("user"), table.find("vc"));
        let mut ids = BTreeSet::new();
        let mut last = (Micros::ZERO, 1);
        let read = |row: &Row<'_>| {
            let submitted = Micros(row.nano(submit)? / 1000);
            let asked = row.gpus(requested)?;
            let size = |column: Option<_>| match column {
                Some(c) if !row.text(c).is_empty() => row.gpus(c),
                _ => Ok(asked),
            };
            let job = TraceJob {
                line: row.line(),
                id: row.text(id).to_owned(),
                submitted,
                requested: asked,
                duration: Micros((row.positive_nano(duration)? / 1000).max(1)),
                min: size(min)?,
                max: size(max)?,
                model: row.text_or_empty(model).to_owned(),
                batch: row.text_or_empty(batch).to_owned(),
                user: row.text_or_empty(user).to_owned(),
                tenant: row.text_or_empty(tenant).to_owned(),
            };
            if let Some(column) = min
                && job.min > job.max
            {
                return Err(row.bad(column, format!("is above max_gpus, which is {}", job.max)));
            }
            if submitted < last.0 {
                let problem = format!("is before line {}: rows must be sorted by submission", last.1);
                return Err(row.bad(submit, problem));
            }
            if job.id.is_empty() {
                return Err(row.bad(id, "is empty; every job needs an id"));
            }
            if !ids.insert(job.id.clone()) {
                return Err(row.bad(id, "was used by an earlier row"));
            }
            last = (submitted, row.line());
            Ok(job)
        };
        let (jobs, skipped) = table.rows(on_bad, read)?;
        if jobs.is_empty() {
            return Err(Error::Empty { file: name.to_owned() });
        }
        Ok(Self { name: name.to_owned(), jobs, skipped })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "job_id,submit_time_s,gpus_requested,duration_s,min_gpus,max_gpus,model,batch_size";

    fn read(rows: &str, on_bad: OnBadRow) -> Result<Trace, Error> {
        Trace::read("t.csv", format!("{HEADER}\n{rows}").as_bytes(), on_bad)
    }

    #[test]
    fn a_row_becomes_a_job() {
        let trace = read("a,0.5,4,10,1,8,bert,384\nb,2,2,3,,,,\n", OnBadRow::Refuse).unwrap();
        let [a, b] = &trace.jobs[..] else { panic!("two jobs") };
        assert_eq!((a.submitted, a.duration), (Micros(500_000), Micros::from_secs(10)));
        assert_eq!((a.min, a.requested, a.max), (1, 4, 8));
        assert_eq!((a.model.as_str(), a.batch.as_str(), a.line), ("bert", "384", 2));
        assert_eq!((b.min, b.requested, b.max, b.line), (2, 2, 2, 3));
    }

    #[test]
    fn a_short_header_is_enough() {
        let text = "job_id,submit_time_s,gpus_requested,duration_s,vc\n0,0,8,2240194,7f04ca\n";
        let trace = Trace::read("t.csv", text.as_bytes(), OnBadRow::Refuse).unwrap();
        assert_eq!((trace.jobs[0].min, trace.jobs[0].max, trace.jobs[0].tenant.as_str()), (8, 8, "7f04ca"));
    }

    #[test]
    fn every_fault_names_its_place_and_value() {
        let cases = [
            ("a,0,0,10,,,,", r#"t.csv:2: column gpus_requested: "0" must be at least 1"#),
            ("a,0,x,10,,,,", r#"t.csv:2: column gpus_requested: "x" is not a whole number of GPUs"#),
            ("a,NaN,1,10,,,,", r#"t.csv:2: column submit_time_s: "NaN" is not a plain decimal number"#),
            ("a,-3,1,10,,,,", r#"t.csv:2: column submit_time_s: "-3" is negative"#),
            ("a,0,1,0,,,,", r#"t.csv:2: column duration_s: "0" must be larger than 0"#),
            ("a,0,1,,,,,", r#"t.csv:2: column duration_s: "" is empty; a number is needed"#),
            ("a,0,4,10,5,3,,", r#"t.csv:2: column min_gpus: "5" is above max_gpus, which is 3"#),
            (",0,4,10,,,,", r#"t.csv:2: column job_id: "" is empty; every job needs an id"#),
            ("a,0,1,10,,,,\na,0,1,10,,,,", r#"t.csv:3: column job_id: "a" was used by an earlier row"#),
            (
                "a,5,1,10,,,,\nb,4,1,10,,,,",
                r#"t.csv:3: column submit_time_s: "4" is before line 2: rows must be sorted by submission"#,
            ),
            ("a,5,1", r#"t.csv:2: column (whole row): "3 fields" where the header has 8"#),
        ];
        for (rows, message) in cases {
            let error = read(rows, OnBadRow::Refuse).unwrap_err();
            assert_eq!(error.to_string(), message, "{rows}");
        }
    }

    #[test]
    fn bad_rows_can_be_left_out() {
        let trace = read("a,5,1,10,,,,\nb,4,1,10,,,,\nc,6,0,1,,,,\nd,6,1\ne,7,1,1,,,,\n", OnBadRow::Skip).unwrap();
        assert_eq!(trace.jobs.iter().map(|j| j.id.as_str()).collect::<Vec<_>>(), ["a", "e"]);
        assert_eq!(trace.skipped.iter().map(|b| b.line).collect::<Vec<_>>(), [3, 4, 5]);
        assert!(matches!(read("a,5,0,10,,,,", OnBadRow::Skip), Err(Error::Empty { .. })));
    }

    #[test]
    fn a_missing_column_is_named() {
        let error = Trace::read("t.csv", "job_id,gpus_requested\n".as_bytes(), OnBadRow::Refuse).unwrap_err();
        assert_eq!(error.to_string(), "t.csv:1: no column submit_time_s; found job_id, gpus_requested");
    }
}
