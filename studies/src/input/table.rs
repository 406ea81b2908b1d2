//! A CSV file with a header, and typed access to the fields of a row with the place in every complaint.
//!
//! Tests: through the readers.

use std::io::Read;

use csv::{ErrorKind, Reader, ReaderBuilder, StringRecord};

use super::decimal::parse_nano;
use super::{BadRow, Error, OnBadRow};

/// An open CSV file.
pub(crate) struct Table<R> {
    file: String,
    header: Vec<String>,
    reader: Reader<R>,
}

/// Opens a CSV file; `file` is what complaints call it.
pub(crate) fn open<R: Read>(file: &str, input: R) -> Result<Table<R>, Error> {
    Table::open(file, input)
}

/// Index of a column.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Column(usize);

/// One row, with what is needed to complain about it.
#[derive(Debug)]
pub(crate) struct Row<'a> {
    file: &'a str,
    header: &'a [String],
    record: &'a StringRecord,
    line: u64,
}

impl<R: Read> Table<R> {
    pub(crate) fn open(file: &str, input: R) -> Result<Self, Error> {
        let mut reader = ReaderBuilder::new().trim(csv::Trim::All).from_reader(input);
        let header: Vec<String> = match reader.headers() {
            Ok(header) => header.iter().map(str::to_owned).collect(),
            Err(error) => return Err(malformed(file, error, 1)),
        };
        Ok(Self { file: file.to_owned(), header, reader })
    }

    /// The column of that name.
    pub(crate) fn find(&self, name: &str) -> Option<Column> {
        self.header.iter().position(|h| h == name).map(Column)
    }

    /// The column of that name, which must be there.
    pub(crate) fn need(&self, name: &str) -> Result<Column, Error> {
        self.find(name).ok_or_else(|| self.missing(name))
    }

    pub(crate) fn missing(&self, column: &str) -> Error {
        Error::NoColumn { file: self.file.clone(), column: column.to_owned(), found: self.header.join(", ") }
    }

    /// Reads all rows with `read`; bad ones are refused or collected, as `on_bad` says. The first bad row of a refused
    /// file is the error.
    pub(crate) fn rows<T>(
        mut self,
        on_bad: OnBadRow,
        mut read: impl FnMut(&Row<'_>) -> Result<T, BadRow>,
    ) -> Result<(Vec<T>, Vec<BadRow>), Error> {
        let (mut good, mut bad) = (Vec::new(), Vec::new());
        let mut record = StringRecord::new();
        let mut line = 1;
        loop {
            let outcome = match self.reader.read_record(&mut record) {
                Ok(false) => break,
                Ok(true) => {
                    line = record.position().map_or(line + 1, csv::Position::line);
                    read(&Row { file: &self.file, header: &self.header, record: &record, line })
                }
                Err(error) => match malformed(&self.file, error, line + 1) {
                    Error::Row(row) => {
                        line = row.line;
                        Err(row)
                    }
                    other => return Err(other),
                },
            };
            match (outcome, on_bad) {
                (Ok(value), _) => good.push(value),
                (Err(row), OnBadRow::Refuse) => return Err(row.into()),
                (Err(row), OnBadRow::Skip) => bad.push(row),
            }
        }
        Ok((good, bad))
    }
}

/// A row that is no row of this table, or a file that cannot be read.
fn malformed(file: &str, error: csv::Error, line: u64) -> Error {
    let place = |line: Option<u64>, value: String, problem: &str| {
        let file = file.to_owned();
        let line = line.unwrap_or_default();
        Error::Row(BadRow { file, line, column: "(whole row)".to_owned(), value, problem: problem.to_owned() })
    };
    match error.into_kind() {
        ErrorKind::Io(source) => Error::Read { file: file.to_owned(), source },
        ErrorKind::UnequalLengths { pos, expected_len, len } => {
            let line = pos.map_or(line, |p| p.line());
            place(Some(line), format!("{len} fields"), &format!("where the header has {expected_len}"))
        }
        ErrorKind::Utf8 { pos, .. } => place(pos.map(|p| p.line()), String::new(), "is not UTF-8"),
        other => place(Some(line), String::new(), &format!("cannot be read as CSV: {other:?}")),
    }
}

impl Row<'_> {
    /// Returns the value in the column.
    pub(crate) fn text(&self, column: Column) -> &str {
        self.record.get(column.0).unwrap_or_default()
    }

    /// Returns the value in a column, or an empty one if the column does not exist.
    pub(crate) fn text_or_empty(&self, column: Option<Column>) -> &str {
        column.map_or("", |c| self.text(c))
    }

    /// A complaint about a column of this row.
    pub(crate) fn bad(&self, column: Column, problem: impl Into<String>) -> BadRow {
        BadRow {
            file: self.file.to_owned(),
            line: self.line,
            column: self.header.get(column.0).cloned().unwrap_or_default(),
            value: self.text(column).to_owned(),
            problem: problem.into(),
        }
    }

    /// A line number for later complaints.
    pub(crate) fn line(&self) -> u64 {
        self.line
    }

    /// A decimal in billionths.
    pub(crate) fn nano(&self, column: Column) -> Result<u64, BadRow> {
        parse_nano(self.text(column)).map_err(|problem| self.bad(column, problem))
    }

    /// A decimal in billionths, larger than 0.
    pub(crate) fn positive_nano(&self, column: Column) -> Result<u64, BadRow> {
        match self.nano(column)? {
            0 => Err(self.bad(column, "must be larger than 0")),
            value => Ok(value),
        }
    }

    /// A whole number of GPUs, at least 1.
    pub(crate) fn gpus(&self, column: Column) -> Result<u32, BadRow> {
        match self.text(column).parse::<u32>() {
            Ok(0) => Err(self.bad(column, "must be at least 1")),
            Ok(gpus) if gpus > MAX_GPUS => Err(self.bad(column, format!("is more than {MAX_GPUS}"))),
            Ok(gpus) => Ok(gpus),
            Err(_) => Err(self.bad(column, "is not a whole number of GPUs")),
        }
    }
}

/// Largest size of one job. A typing error should not allocate gigabytes for its speed table.
const MAX_GPUS: u32 = 1 << 20;
