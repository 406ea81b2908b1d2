//! Durable appends and verified reads per second, against a bare file and against raw sled, in one interleaved run.
//!
//! Prints two tables of medians and ratios; ratios within one run are what may be quoted. Usage:
//! `append_bench [--commits N] [--rounds N] [--read RECORDS] [--dir DIR]`.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use event_log::{EventLog, MAX_BLOCK_BYTES, NewRecord, Options, SledLog, Verify};
use model::Term;

type AnyError = Box<dyn std::error::Error>;

struct Arguments {
    commits: usize,
    rounds: usize,
    read: usize,
    dir: PathBuf,
}

fn arguments() -> Result<Arguments, AnyError> {
    let mut out = Arguments { commits: 200, rounds: 5, read: 1_000_000, dir: std::env::temp_dir() };
    let mut args = std::env::args().skip(1);
    while let Some(flag) = args.next() {
        let value = args.next().ok_or_else(|| format!("{flag} needs a value"))?;
        match flag.as_str() {
            "--commits" => out.commits = value.parse()?,
            "--rounds" => out.rounds = value.parse()?,
            "--read" => out.read = value.parse()?,
            "--dir" => out.dir = PathBuf::from(value),
            _ => return Err(format!("unknown argument {flag}").into()),
        }
    }
    Ok(out)
}

/// Records of about 300 bytes that differ from each other, as the engine's do.
fn bodies(count: usize) -> Vec<Vec<u8>> {
    let body = |n: usize| {
        format!(
            r#"{{"at":{},"behaviour":1,"causes":[{}],"events":[{{"PhaseChanged":{{"to":"Running"}}}}],"facts":[{{"Pod":{{"name":"job-{:04}-worker-{}","phase":"Running","node":"node-{:03}","rv":{},"uid":"{:08x}-1f2e-4c5d-9b8a-{:012x}"}}}}],"scope":{{"Job":{{"kind":"TrainingJob","namespace":"research","name":"job-{:04}"}}}}}}"#,
            1_767_225_599_000 + n, n, n % 997, n % 8, n % 251, n * 3, n.wrapping_mul(2_654_435_761) & 0xffff_ffff, n, n % 997
        )
        .into_bytes()
    };
    (0..count).map(body).collect()
}

/// Appends all groups one by one, durably; gives the time it took.
trait Target {
    fn name(&self) -> &'static str;
    fn append(&mut self, group: &[Vec<u8>]) -> Result<(), AnyError>;
}

struct BareFile(File);

impl Target for BareFile {
    fn name(&self) -> &'static str {
        "bare file"
    }

    fn append(&mut self, group: &[Vec<u8>]) -> Result<(), AnyError> {
        self.0.write_all(&group.concat())?;
        Ok(self.0.sync_data()?)
    }
}

/// The same bytes as blocks in sled, flushed and synced: what the engine alone costs.
struct RawSled(sled::Db, File, u64);

impl Target for RawSled {
    fn name(&self) -> &'static str {
        "raw sled"
    }

    fn append(&mut self, group: &[Vec<u8>]) -> Result<(), AnyError> {
        let mut batch = sled::Batch::default();
        for block in group.concat().chunks(MAX_BLOCK_BYTES) {
            self.2 += 1;
            batch.insert(&self.2.to_be_bytes(), block);
        }
        self.0.apply_batch(batch)?;
        self.0.flush()?;
        Ok(self.1.sync_data()?)
    }
}

struct Ours(SledLog);

impl Target for Ours {
    fn name(&self) -> &'static str {
        "event log"
    }

    fn append(&mut self, group: &[Vec<u8>]) -> Result<(), AnyError> {
        let records: Vec<NewRecord<'_>> = group.iter().map(|body| NewRecord { term: Term(1), body }).collect();
        self.0.append(&records)?;
        Ok(())
    }
}

fn targets(dir: &Path) -> Result<Vec<Box<dyn Target>>, AnyError> {
    let bare = OpenOptions::new().create_new(true).append(true).open(dir.join("bare"))?;
    let sled_dir = dir.join("sled");
    let config = sled::Config::new().path(&sled_dir).flush_every_ms(None).cache_capacity(8 << 20);
    let db = config.mode(sled::Mode::LowSpace).open()?;
    let data = File::open(sled_dir.join("db"))?;
    let ours = SledLog::open(dir.join("log"), Options::default())?;
    Ok(vec![Box::new(BareFile(bare)), Box::new(RawSled(db, data, 0)), Box::new(Ours(ours))])
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

#[allow(clippy::cast_precision_loss)] // counts far below 2^52
fn rate(records: usize, time: Duration) -> f64 {
    records as f64 / time.as_secs_f64().max(1e-9)
}

fn append_table(arguments: &Arguments) -> Result<(), AnyError> {
    println!("durable appends, records/s (medians of {} interleaved rounds)", arguments.rounds);
    println!(
        "{:>6} {:>12} {:>12} {:>12} {:>12} {:>12}",
        "group", "bare file", "raw sled", "event log", "log/bare", "log/sled"
    );
    for size in [1, 64, 256] {
        let dir = tempfile::tempdir_in(&arguments.dir)?;
        let mut targets = targets(dir.path())?;
        let mut times = vec![Vec::new(); targets.len()];
        let group = bodies(size);
        for _ in 0..arguments.rounds {
            for (target, times) in targets.iter_mut().zip(&mut times) {
                let start = Instant::now();
                for _ in 0..arguments.commits {
                    target.append(&group).map_err(|e| format!("{}: {e}", target.name()))?;
                }
                times.push(start.elapsed());
            }
        }
        let rates: Vec<f64> = times.into_iter().map(|t| rate(size * arguments.commits, median(t))).collect();
        let [bare, raw, ours] = rates[..] else { return Err("three targets expected".into()) };
        println!("{size:>6} {bare:>12.0} {raw:>12.0} {ours:>12.0} {:>12.2} {:>12.2}", ours / bare, ours / raw);
    }
    Ok(())
}

fn read_table(arguments: &Arguments) -> Result<(), AnyError> {
    let dir = tempfile::tempdir_in(&arguments.dir)?;
    let (path, bare) = (dir.path().join("log"), dir.path().join("bare"));
    let mut log = SledLog::open(&path, Options::default())?;
    let mut file = File::create(&bare)?;
    for group in bodies(arguments.read).chunks(256) {
        let records: Vec<NewRecord<'_>> = group.iter().map(|body| NewRecord { term: Term(1), body }).collect();
        log.append(&records)?;
        file.write_all(&group.concat())?;
    }
    file.sync_data()?;
    println!(
        "\n{} records, {} bytes of bodies, {} on disk",
        arguments.read,
        log.stats().body_bytes,
        log.stats().disk_bytes
    );
    let mut times = [const { Vec::new() }; 6];
    for _ in 0..arguments.rounds {
        let start = Instant::now();
        let mut bytes = Vec::new();
        File::open(&bare)?.read_to_end(&mut bytes)?;
        times[0].push(start.elapsed());
        let start = Instant::now();
        let mut count = 0;
        for frame in log.read(log.first())? {
            frame?;
            count += 1;
        }
        times[1].push(start.elapsed());
        if count != arguments.read {
            return Err("records are missing".into());
        }
        drop(log);
        let start = Instant::now();
        log = SledLog::open(&path, Options { verify: Verify::Tail, ..Options::default() })?;
        times[2].push(start.elapsed());
        drop(log);
        let start = Instant::now();
        log = SledLog::open(&path, Options::default())?;
        times[3].push(start.elapsed());
        let start = Instant::now();
        SledLog::open_copy(&path)?;
        times[4].push(start.elapsed());
        // What verification must cost at least on one core: the digests, of bytes that are already in memory.
        let start = Instant::now();
        let mut digest = [0; 32];
        for body in bytes.chunks(bytes.len().div_ceil(arguments.read)) {
            let mut input = [0; 512];
            let (head, rest) = input.split_at_mut(48);
            head[..32].copy_from_slice(&digest);
            let length = body.len().min(rest.len());
            rest[..length].copy_from_slice(&body[..length]);
            digest = *blake3::hash(&input[..48 + length]).as_bytes();
        }
        std::hint::black_box(digest);
        times[5].push(start.elapsed());
    }
    let names = [
        "bare file, read whole",
        "read, verified",
        "open, quick",
        "open, full",
        "open a copy",
        "digests alone, one core",
    ];
    for (name, times) in names.iter().zip(times) {
        println!("{name:>26} {:>10.3} s", median(times).as_secs_f64());
    }
    Ok(())
}

fn main() -> Result<(), AnyError> {
    let arguments = arguments()?;
    append_table(&arguments)?;
    if arguments.read > 0 {
        read_table(&arguments)?;
    }
    Ok(())
}
