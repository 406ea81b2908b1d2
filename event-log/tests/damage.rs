//! Damaged files: whatever is done to them, opening neither panics nor hangs nor loses records silently, and what can be
//! saved is saved.

mod support;

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use event_log::{Error, EventLog as _, Frame, Head, Options, SledLog, Verify, salvage, verify};
use model::Position;
use support::{
    Failing, OnDisk, Place as _, Rng, append_next, check_contents, checkpoint_at, copy_tree, fill, frames, live_epoch,
};

/// A log as its files lie there, how it was left, and what it holds.
struct Image {
    place: OnDisk,
    all: Vec<Frame>,
    first: u64,
}

impl Image {
    /// `crashed`: the files as they are while the log is open, which is what a killed process leaves.
    fn new(crashed: bool, compacted: bool) -> Self {
        let (place, source) = (OnDisk::new(), OnDisk::new());
        let mut log = source.reopen();
        fill(&mut *log, 700);
        let mut first = 1;
        if compacted {
            let checkpoint = checkpoint_at(&*log, 300, vec![b'7'; 30_000]);
            log.compact(&checkpoint).unwrap();
            first = 301;
        }
        fill(&mut *log, 1_000);
        let all = frames(&*log, first);
        if crashed {
            copy_tree(&source.path(), &place.path());
        } else {
            drop(log);
            copy_tree(&source.path(), &place.path());
        }
        Self { place, all, first }
    }

    fn copy(&self) -> OnDisk {
        let copy = OnDisk::new();
        copy_tree(&self.place.path(), &copy.path());
        copy
    }
}

/// Something done to a log's files; gives its description.
fn harm(log: &Path, rng: &mut Rng) -> String {
    let epoch = live_epoch(log);
    let db = epoch.join("db");
    let length = fs::metadata(&db).unwrap().len();
    let file = OpenOptions::new().read(true).write(true).open(&db).unwrap();
    let at = rng.below(length);
    let block = |n: u64| {
        let mut bytes = vec![0; 4096];
        let read = file.read_at(&mut bytes, n * 4096).unwrap();
        bytes.truncate(read);
        bytes
    };
    match rng.below(9) {
        0 | 1 => {
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            byte[0] ^= 1 << rng.below(8);
            file.write_all_at(&byte, at).unwrap();
            format!("bit flipped at {at}")
        }
        2 | 3 => {
            let size = [1, 64, 300, 4096, 70_000, 512 * 1024][rng.index(6)].min(length - at);
            file.write_all_at(&vec![0; usize::try_from(size).unwrap()], at).unwrap();
            format!("{size} bytes zeroed at {at}")
        }
        4 => {
            let cut = [1, 100, 4096, 512 * 1024, length][rng.index(5)].min(length);
            file.set_len(length - cut).unwrap();
            format!("{cut} bytes cut")
        }
        5 => {
            let (a, b) = (rng.below(length / 4096), rng.below(length / 4096));
            let (one, other) = (block(a), block(b));
            file.write_all_at(&one, b * 4096).unwrap();
            file.write_all_at(&other, a * 4096).unwrap();
            format!("disk blocks {a} and {b} exchanged")
        }
        6 => {
            let junk: Vec<u8> = (0..200).map(|_| u8::try_from(rng.below(256)).unwrap()).collect();
            file.write_all_at(&junk, at).unwrap();
            format!("junk written at {at}")
        }
        7 => {
            let mut done = String::from("snapshots emptied or halved:");
            for entry in fs::read_dir(&epoch).unwrap().flatten() {
                if entry.file_name().to_string_lossy().starts_with("snap.") {
                    let half = fs::metadata(entry.path()).unwrap().len() / 2;
                    let size = [0, half][rng.index(2)];
                    OpenOptions::new().write(true).open(entry.path()).unwrap().set_len(size).unwrap();
                    write!(done, " {size}").unwrap();
                }
            }
            done
        }
        _ => {
            let conf = epoch.join("conf");
            if rng.below(2) == 0 {
                fs::write(&conf, b"garbage").unwrap();
            } else {
                fs::remove_file(&conf).unwrap();
            }
            "conf spoilt".to_owned()
        }
    }
}

/// Checks that `salvage` returns a prefix of what was written, and as much as `verify` promises.
fn saved_prefix(image: &Image, log: &Path, what: &str) -> usize {
    let report = verify(log).unwrap_or_else(|e| panic!("{what}: {e}"));
    let saved = salvage(log).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_eq!(saved.head(), report.good_prefix_head, "{what}");
    let got = if saved.head() == Head::default() { Vec::new() } else { frames(&saved, saved.first().0) };
    assert!(got.len() <= image.all.len() && got[..] == image.all[..got.len()], "{what}: not a prefix");
    assert_eq!(report.records, got.len() as u64, "{what}");
    assert_eq!(report.first_bad.is_none(), got.len() == image.all.len(), "{what}: {report:?}");
    if let Some((at, reason)) = report.first_bad
        && report.good_prefix_head != Head::default()
    {
        assert_eq!(at, report.good_prefix_head.position.next(), "{what}: {reason}");
    }
    got.len()
}

fn storm(image: &Image, verify: Verify, seeds: std::ops::Range<u64>) {
    let (mut opened, mut refused) = (0, 0);
    for seed in seeds {
        let place = image.copy();
        let mut rng = Rng(seed);
        let what = format!("seed {seed}: {}", harm(&place.path(), &mut rng));
        let before = saved_prefix(image, &place.path(), &what);
        match place.open(verify) {
            Ok(mut log) => {
                let read: Result<Vec<Frame>, Error> = log.read(log.first()).unwrap().collect();
                match read {
                    Ok(all) => assert!(all == image.all, "{what}: records lost silently"),
                    // A quick open may leave damage for the reader to find, never undetected.
                    Err(error) => {
                        assert!(verify == Verify::Tail && matches!(error, Error::Damaged { .. }), "{what}: {error}");
                    }
                }
                assert_eq!(log.head().position.0, 1_000, "{what}");
                append_next(&mut *log, 3).unwrap_or_else(|e| panic!("{what}: {e}"));
                opened += 1;
            }
            Err(Error::Damaged { at, reason }) => {
                assert!(at.0 <= 1_000, "{what}: {reason} at {at}");
                assert_eq!(saved_prefix(image, &place.path(), &what), before, "{what}: opening made it worse");
                assert!(before < image.all.len(), "{what}: refused though all records are there: {reason}");
                refused += 1;
            }
            Err(other) => panic!("{what}: {other}"),
        }
    }
    assert!(opened > 0 && refused > 0, "the storm did not try both: {opened} opened, {refused} refused");
}

#[test]
fn after_a_crash() {
    storm(&Image::new(true, false), Verify::Full, 0..60);
}

#[test]
fn after_a_crash_opened_quickly() {
    storm(&Image::new(true, false), Verify::Tail, 1_000..1_060);
}

#[test]
fn after_an_orderly_end() {
    storm(&Image::new(false, false), Verify::Full, 2_000..2_040);
}

#[test]
fn with_a_checkpoint() {
    let image = Image::new(true, true);
    assert_eq!(image.first, 301);
    storm(&image, Verify::Full, 3_000..3_040);
}

#[test]
fn a_quick_open_after_an_orderly_end_loses_nothing_silently() {
    let image = Image::new(false, false);
    for seed in 4_000..4_040 {
        let place = image.copy();
        let what = format!("seed {seed}: {}", harm(&place.path(), &mut Rng(seed)));
        let Ok(log) = place.open(Verify::Tail) else { continue };
        let read: Result<Vec<Frame>, Error> = log.read(log.first()).unwrap().collect();
        assert!(read.is_err() || read.is_ok_and(|all| all == image.all), "{what}");
    }
}

#[test]
fn records_the_engine_loses_are_recovered_from_its_own_file() {
    // Segment headers hold none of our bytes, and sled erases the segments it cannot read.
    let image = Image::new(true, true);
    let length = fs::metadata(live_epoch(&image.place.path()).join("db")).unwrap().len();
    let mut rebuilt = 0;
    for segment in 0..length.div_ceil(512 * 1024) {
        for verify in [Verify::Full, Verify::Tail] {
            let place = image.copy();
            let epoch = live_epoch(&place.path());
            let db = OpenOptions::new().write(true).open(epoch.join("db")).unwrap();
            db.write_all_at(&[0; 20], segment * 512 * 1024).unwrap();
            let mut log = place.open(verify).unwrap_or_else(|e| panic!("segment {segment}: {e}"));
            assert!(frames(&*log, image.first) == image.all, "segment {segment}");
            assert_eq!(log.checkpoint().unwrap().unwrap().position, Position(300));
            append_next(&mut *log, 3).unwrap();
            drop(log);
            assert_eq!(place.reopen().head().position, Position(1_003));
            rebuilt += usize::from(live_epoch(&place.path()) != epoch);
        }
    }
    assert!(rebuilt > 0, "sled lost nothing, so nothing was tried");
}

#[test]
fn recovering_may_be_interrupted_at_every_step() {
    let image = Image::new(true, true);
    let db = live_epoch(&image.place.path()).join("db");
    let whole = fs::read(&db).unwrap();
    // Some segment without which sled loses records.
    let lossy = (0..whole.len()).step_by(512 * 1024).find(|at| {
        let mut bytes = whole.clone();
        bytes[*at..*at + 20].fill(0);
        fs::write(&db, bytes).unwrap();
        let place = image.copy();
        drop(place.reopen());
        live_epoch(&place.path()).file_name() != live_epoch(&image.place.path()).file_name()
    });
    assert!(lossy.is_some());
    let mut steps = 0;
    for nth in 1.. {
        let mut reached = false;
        for after in [false, true] {
            let place = image.copy();
            let medium = Arc::new(Failing { left: AtomicUsize::new(nth), after, kind: io::ErrorKind::Other });
            let interrupted = SledLog::open_with(place.path(), Options::default(), medium.clone());
            reached |= interrupted.is_err();
            drop(interrupted);
            // By now sled has erased what it could not read; the blocks live on in the copy that was kept.
            assert!(frames(&SledLog::open_copy(place.path()).unwrap(), image.first) == image.all, "step {nth}");
            let log = place.reopen();
            assert!(frames(&*log, image.first) == image.all, "step {nth}, after {after}");
        }
        steps = nth;
        if !reached {
            break;
        }
    }
    assert!(steps > 8, "{steps} steps: nothing was rebuilt");
}

#[test]
fn an_empty_snapshot_is_set_aside() {
    let image = Image::new(false, false);
    for size in [0, 5] {
        let place = image.copy();
        let epoch = live_epoch(&place.path());
        let snaps: Vec<PathBuf> = fs::read_dir(&epoch)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("snap."))
            .collect();
        let spoilt = if snaps.is_empty() { vec![epoch.join("snap.0000000000000010")] } else { snaps };
        for path in &spoilt {
            fs::write(path, vec![0; size]).unwrap();
        }
        check_contents(&*place.open(Verify::Tail).unwrap(), Head::default());
        let aside = fs::read_dir(&epoch)
            .unwrap()
            .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("aside.snap."));
        assert_eq!(aside.count(), spoilt.len());
    }
}

#[test]
fn a_log_cut_cleanly_is_behind_its_head() {
    // An older database under a newer head: what restoring only the epoch's directory gives.
    let place = OnDisk::new();
    let mut log = place.reopen();
    fill(&mut *log, 50);
    let old = OnDisk::new();
    copy_tree(&place.path(), &old.path());
    fill(&mut *log, 60);
    drop(log);
    let epoch = live_epoch(&place.path());
    fs::remove_dir_all(&epoch).unwrap();
    copy_tree(&live_epoch(&old.path()), &epoch);
    for verify in [Verify::Full, Verify::Tail] {
        let Err(Error::Damaged { at, reason }) = place.open(verify) else { panic!("opened") };
        assert_eq!((at, reason.to_string()), (Position(51), "log ends before its noted head 60".to_owned()));
    }
    assert_eq!(salvage(place.path()).unwrap().head().position, Position(50));
    // The older head under a newer log is what a power failure leaves.
    let place = OnDisk::new();
    let mut log = place.reopen();
    fill(&mut *log, 50);
    let head = fs::read(place.path().join("HEAD")).unwrap();
    fill(&mut *log, 60);
    drop(log);
    fs::write(place.path().join("HEAD"), head).unwrap();
    for verify in [Verify::Tail, Verify::Full] {
        assert_eq!(place.open(verify).unwrap().head().position, Position(60));
    }
}

#[test]
fn a_head_of_another_log_is_noticed() {
    let (place, other) = (OnDisk::new(), OnDisk::new());
    fill(&mut *place.reopen(), 50);
    let mut log = other.reopen();
    log.append(&[event_log::NewRecord { term: model::Term(1), body: b"{}" }]).unwrap();
    drop(log);
    fs::copy(other.path().join("HEAD"), place.path().join("HEAD")).unwrap();
    for verify in [Verify::Full, Verify::Tail] {
        assert!(matches!(place.open(verify), Err(Error::Damaged { at: Position(1), .. })));
    }
}

#[test]
fn the_small_files_may_be_lost_but_not_wrong() {
    let image = Image::new(true, false);
    // HEAD: gone or zeroed is what a power failure does, anything else is damage.
    let place = image.copy();
    fs::remove_file(place.path().join("HEAD")).unwrap();
    check_contents(&*place.reopen(), Head::default());
    let place = image.copy();
    let length = fs::metadata(place.path().join("HEAD")).unwrap().len();
    fs::write(place.path().join("HEAD"), vec![0; usize::try_from(length).unwrap()]).unwrap();
    check_contents(&*place.reopen(), Head::default());
    let place = image.copy();
    fs::write(place.path().join("HEAD"), "trainyard-head 1").unwrap();
    assert!(matches!(place.open(Verify::Full), Err(Error::Damaged { .. })));
    assert_eq!(salvage(place.path()).unwrap().head().position, Position(1_000));
    assert!(verify(place.path()).unwrap().first_bad.is_some());
    // current: without it nothing is thrown away.
    for text in [
        None,
        Some(""),
        Some("trainyard-log 1\n"),
        Some("trainyard-log 1\nepoch-x\n"),
        Some("trainyard-log 1\nepoch-9\n"),
    ] {
        for keep_head in [true, false] {
            let place = image.copy();
            match text {
                Some(text) => fs::write(place.path().join("current"), text).unwrap(),
                None => fs::remove_file(place.path().join("current")).unwrap(),
            }
            if !keep_head {
                fs::remove_file(place.path().join("HEAD")).unwrap();
            }
            assert!(matches!(place.open(Verify::Full), Err(Error::Damaged { .. })), "{text:?}");
            fs::write(place.path().join("current"), "trainyard-log 1\nepoch-1\n").unwrap();
            check_contents(&*place.reopen(), Head::default());
        }
    }
}

#[test]
fn damage_refuses_read_only_too() {
    let image = Image::new(true, false);
    let place = image.copy();
    let db = live_epoch(&place.path()).join("db");
    OpenOptions::new().write(true).open(&db).unwrap().set_len(100_000).unwrap();
    let read_only = Options { read_only: true, ..Options::default() };
    assert!(matches!(SledLog::open(place.path(), read_only), Err(Error::Damaged { .. })));
}
