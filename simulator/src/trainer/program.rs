//! Reads the program of an `MPIJob` from its object: the number of epochs, and the duration of one by the number of workers.
//!
//! Owns the annotation with the measured durations. Tests: at the end of this file.

use apis::api::SchedulingApi as _;
use apis::mpijob::MpiJob;
use apis::objects::annotation;
use apis::{Referenced, Registry};
use serde_json::Value;
use settings::duration;

use super::Program;

/// Annotation with the durations of an epoch with 1, 2, 3 and more workers, with spaces between them.
const EPOCH_DURATIONS: &str = "simulator.trainyard.dev/epoch-durations";
/// Time of an epoch with one worker where the annotation is absent. Twice as many workers take half of it.
const EPOCH_MS: u64 = 60_000;
/// Number of workers up to which a program without the annotation gets faster.
const MAX_WORKERS: u64 = 256;

/// Returns the program of a job; `None` if its launcher names no epochs.
///
/// # Errors
/// Returns an error that names the annotation if it does not hold durations.
pub(super) fn of(job: &Value) -> Result<Option<Program>, String> {
    let Some(epochs) = MpiJob.units(job) else { return Ok(None) };
    let key = Registry::all().job_key(job);
    let spec = key.and_then(|key| apis::translation::spec_fact(&MpiJob, &key, job, &Referenced::new()).spec.ok());
    let width = spec.and_then(|spec| spec.gpu_groups().next().map(|(_, request)| request.count)).unwrap_or(1);
    let (unit, speeds) = match annotation(job, EPOCH_DURATIONS) {
        Some(text) => measured(text).ok_or_else(|| {
            format!("metadata.annotations[{EPOCH_DURATIONS}]: give durations such as 90s with 1, 2, 3 workers and so on, none of them 0 (\"{text}\")")
        })?,
        None => (u128::from(EPOCH_MS), (0..=MAX_WORKERS).collect()),
    };
    Ok(Some(Program { work: unit.saturating_mul(epochs.into()), unit, speeds, width, restart_ms: 0 }))
}

/// Returns the work of an epoch, and the speeds at which epochs take exactly these times.
fn measured(text: &str) -> Option<(u128, Vec<u64>)> {
    let time = |word| duration::parse_ms(word).ok().filter(|ms| *ms > 0);
    let times: Option<Vec<u64>> = text.split_whitespace().map(time).collect();
    let times = times.filter(|times| !times.is_empty())?;
    let unit = times.iter().try_fold(1_u128, |all, time| least_common_multiple(all, u128::from(*time)))?;
    let speed = |time: &u64| u64::try_from(unit.checked_div(u128::from(*time))?).ok();
    let speeds: Option<Vec<u64>> = std::iter::once(Some(0)).chain(times.iter().map(speed)).collect();
    Some((unit, speeds?))
}

fn least_common_multiple(one: u128, other: u128) -> Option<u128> {
    let (mut divisor, mut rest) = (one, other);
    while rest > 0 {
        (divisor, rest) = (rest, divisor.checked_rem(rest)?);
    }
    one.checked_div(divisor)?.checked_mul(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_take_exactly_the_measured_times() {
        let (unit, speeds) = measured("2m 65.5s 40s").unwrap();
        let times: Vec<u128> = speeds[1..].iter().map(|speed| unit / u128::from(*speed)).collect();
        assert_eq!((speeds[0], &times[..]), (0, &[120_000, 65_500, 40_000][..]));
        for wrong in [
            "",
            "0",
            "0s",
            "1 x",
            "1s x",
            "-1",
            "-1s",
            "1.2345",
            "1.2345s",
            "1e3",
            "+1",
            "99999999999999999999",
            "99999999999999999999s",
        ] {
            assert_eq!(measured(wrong), None, "{wrong}");
        }
    }
}
