//! A trace joined with a profile on a cluster: jobs with their true work and true speeds.
//!
//! Owns the join and its checks. Work is exact: the product of the duration and the speed at the size asked for, so that a
//! job left alone at that size takes its duration to the microsecond. Tests: at the end of this file.

use std::collections::BTreeMap;

use model::id::Text;
use scheduler::{Curve, GpuType, Micros, Speed, Speeds};

use super::profile::Measured;
use super::trace::TraceJob;
use super::{BadRow, Cluster, Error, OnBadRow, Profile, Trace};

/// Work: microseconds times [`Speed`], so billionths of a microsecond of the reference GPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Work(pub u128);

impl Work {
    /// Returns the work done at `speed` in `span`.
    pub fn of(speed: Speed, span: Micros) -> Self {
        Self(u128::from(speed.0) * u128::from(span.0))
    }

    /// Returns the time it takes at `speed`, rounded up; [`Micros::MAX`] at speed zero.
    pub fn time_at(self, speed: Speed) -> Micros {
        match u128::from(speed.0) {
            0 if self.0 > 0 => Micros::MAX,
            0 => Micros::ZERO,
            speed => Micros(u64::try_from(self.0.div_ceil(speed)).unwrap_or(u64::MAX)),
        }
    }

    /// Time on one reference GPU, rounded up.
    pub fn serial(self) -> Micros {
        self.time_at(Speed::ONE)
    }

    /// Returns the work left after `done`.
    #[must_use]
    pub fn minus(self, done: Self) -> Self {
        Self(self.0.saturating_sub(done.0))
    }
}

/// A job as it truly is.
#[derive(Debug, Clone)]
pub struct WorkloadJob {
    /// Its id in the trace.
    pub name: Text,
    /// Its id in decisions: its place in the trace, so that ties fall as the trace is ordered.
    pub key: Text,
    /// Model that it trains: the key under which speeds are learnt.
    pub category: Text,
    /// Tenant; empty when not known.
    pub tenant: Text,
    /// Time of submission.
    pub submitted: Micros,
    /// GPUs asked for.
    pub requested: u32,
    /// Fewest GPUs when elastic.
    pub min: u32,
    /// Most GPUs when elastic, within what was measured and what there is.
    pub max: u32,
    /// Run time alone at the size asked for.
    pub duration: Micros,
    /// All it has to do.
    pub work: Work,
    /// True speeds, home type first.
    pub speeds: Speeds,
}

impl WorkloadJob {
    /// True speed on `gpus` GPUs of a type.
    pub fn speed(&self, gpu_type: GpuType, gpus: u32) -> Speed {
        self.speeds.on(gpu_type).map_or(Speed::ZERO, |curve| curve.at(gpus))
    }
}

/// The jobs of a study on a cluster.
#[derive(Debug, Clone)]
pub struct Workload {
    /// Name of the trace.
    pub name: String,
    /// The GPUs.
    pub cluster: Cluster,
    /// The jobs, in order of submission.
    pub jobs: Vec<WorkloadJob>,
    /// Rows left out, of the trace and by the join.
    pub skipped: Vec<BadRow>,
}

/// Speeds by what they are looked up with, so that jobs share tables.
type Shared = BTreeMap<(String, String), Option<(Speeds, (u32, u32))>>;

impl Workload {
    /// Joins. Without a profile every job is rigid: it runs at the size it asks for, without regard to its range.
    ///
    /// # Errors
    /// Unless bad rows are skipped: the profile does not know a job's model and batch size or not at the size asked for
    /// or below its minimum, or the job asks for more GPUs than its type has.
    pub fn join(trace: Trace, profile: Option<&Profile>, cluster: Cluster, on_bad: OnBadRow) -> Result<Self, Error> {
        let mut shared = Shared::new();
        let (mut jobs, mut skipped) = (Vec::with_capacity(trace.jobs.len()), trace.skipped);
        let width = trace.jobs.len().to_string().len();
        for (place, job) in trace.jobs.iter().enumerate() {
            let key = Text::from(format!("{place:0width$}"));
            let joined = match profile {
                Some(profile) => elastic(&trace.name, job, key, profile, &cluster, &mut shared),
                None => rigid(&trace.name, job, key, &cluster),
            };
            match (joined, on_bad) {
                (Ok(job), _) => jobs.push(job),
                (Err(row), OnBadRow::Refuse) => return Err(row.into()),
                (Err(row), OnBadRow::Skip) => skipped.push(row),
            }
        }
        if jobs.is_empty() {
            return Err(Error::Empty { file: trace.name });
        }
        Ok(Self { name: trace.name, cluster, jobs, skipped })
    }
}

fn bad(file: &str, job: &TraceJob, column: &str, value: &impl ToString, problem: String) -> BadRow {
    BadRow { file: file.to_owned(), line: job.line, column: column.to_owned(), value: value.to_string(), problem }
}

/// A job without scaling data: linear up to its size, which is the only one it gets.
fn rigid(file: &str, job: &TraceJob, key: Text, cluster: &Cluster) -> Result<WorkloadJob, BadRow> {
    let size = job.requested;
    let range = (size, size);
    let speeds = Speeds::new(cluster.capacity().into_iter().map(|(t, _)| (t, Curve::linear(size))));
    finish(file, job, key, speeds, range, cluster)
}

fn elastic(
    file: &str,
    job: &TraceJob,
    key: Text,
    profile: &Profile,
    cluster: &Cluster,
    shared: &mut Shared,
) -> Result<WorkloadJob, BadRow> {
    let entry = shared.entry((job.model.clone(), job.batch.clone()));
    let Some((speeds, (low, high))) = entry.or_insert_with(|| look_up(profile, job, cluster)).clone() else {
        let batches = profile.batches(&job.model);
        return Err(if batches.is_empty() {
            bad(file, job, "model", &job.model, format!("is not in {}", profile.name))
        } else {
            let known = batches.join(", ");
            bad(
                file,
                job,
                "batch_size",
                &job.batch,
                format!("is not in {} for {}; known: {known}", profile.name, job.model),
            )
        });
    };
    let range = || format!("{} was measured on {low} to {high} GPUs in {}", job.model, profile.name);
    if job.requested < low || job.requested > high {
        return Err(bad(file, job, "gpus_requested", &job.requested, format!("has no speed: {}", range())));
    }
    if job.min < low || job.min > high {
        return Err(bad(file, job, "min_gpus", &job.min, format!("has no speed: {}", range())));
    }
    finish(file, job, key, speeds, (job.min, job.max.min(high)), cluster)
}

/// Speeds on all types of the cluster that the profile knows for the model, and the sizes measured on the first of them.
fn look_up(profile: &Profile, job: &TraceJob, cluster: &Cluster) -> Option<(Speeds, (u32, u32))> {
    let measured: Vec<(GpuType, &Measured)> = (cluster.pools.iter().zip(0..))
        .filter_map(|(pool, i)| profile.find(&pool.gpu_type, &job.model, &job.batch).map(|m| (GpuType(i), m)))
        .collect();
    let &(_, reference) = measured.first()?;
    let speeds = Speeds::new(measured.iter().map(|&(t, m)| (t, m.curve(reference))));
    Some((speeds, reference.range()))
}

fn finish(
    file: &str,
    job: &TraceJob,
    key: Text,
    speeds: Speeds,
    (min, max): (u32, u32),
    cluster: &Cluster,
) -> Result<WorkloadJob, BadRow> {
    let Some((home, curve)) = speeds.home().cloned() else {
        return Err(bad(file, job, "model", &job.model, "runs on no GPU type of the cluster".to_owned()));
    };
    let there_are = cluster.capacity().iter().find(|(t, _)| *t == home).map_or(0, |(_, gpus)| *gpus);
    if job.requested > there_are {
        let problem = format!("is more than the cluster has: {there_are} of that type");
        return Err(bad(file, job, "gpus_requested", &job.requested, problem));
    }
    let category = if job.batch.is_empty() { job.model.clone() } else { format!("{}/{}", job.model, job.batch) };
    Ok(WorkloadJob {
        name: job.id.as_str().into(),
        key,
        category: category.into(),
        tenant: job.tenant.as_str().into(),
        submitted: job.submitted,
        requested: job.requested,
        min,
        max: max.min(there_are),
        duration: job.duration,
        work: Work::of(curve.at(job.requested), job.duration),
        speeds,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(rows: &str) -> Trace {
        let text = format!("job_id,submit_time_s,gpus_requested,duration_s,min_gpus,max_gpus,model,batch_size\n{rows}");
        Trace::read("t.csv", text.as_bytes(), OnBadRow::Refuse).unwrap()
    }

    fn profile() -> Profile {
        let text = "model,batch_size,gpus,speedup\nm,8,1,1\nm,8,2,1.7\nm,8,4,3\nn,8,2,1\n";
        Profile::read("p.csv", text.as_bytes(), OnBadRow::Refuse).unwrap()
    }

    #[test]
    fn a_job_alone_at_its_size_takes_its_duration() {
        let cluster = Cluster::parse("8").unwrap();
        let workload =
            Workload::join(trace("a,0,2,100,1,64,m,8\n"), Some(&profile()), cluster, OnBadRow::Refuse).unwrap();
        let job = &workload.jobs[0];
        assert_eq!(job.work.time_at(job.speed(GpuType(0), 2)), Micros::from_secs(100));
        assert_eq!(job.work.serial(), Micros::from_secs(170));
        assert_eq!((job.min, job.max), (1, 4), "no further than was measured");
    }

    #[test]
    fn without_a_profile_jobs_are_rigid() {
        let cluster = Cluster::parse("8").unwrap();
        let workload = Workload::join(trace("a,0,2,100,1,4,m,8\n"), None, cluster, OnBadRow::Refuse).unwrap();
        assert_eq!((workload.jobs[0].min, workload.jobs[0].max), (2, 2));
    }

    #[test]
    fn what_cannot_be_joined_names_the_row() {
        let cases = [
            ("a,0,2,9,1,4,x,8\n", r#"t.csv:2: column model: "x" is not in p.csv"#),
            ("a,0,2,9,1,4,m,9\n", r#"t.csv:2: column batch_size: "9" is not in p.csv for m; known: 8"#),
            (
                "a,0,5,9,1,8,m,8\n",
                r#"t.csv:2: column gpus_requested: "5" has no speed: m was measured on 1 to 4 GPUs in p.csv"#,
            ),
            (
                "a,0,2,9,1,2,n,8\n",
                r#"t.csv:2: column min_gpus: "1" has no speed: n was measured on 2 to 2 GPUs in p.csv"#,
            ),
        ];
        for (rows, message) in cases {
            let cluster = Cluster::parse("8").unwrap();
            let error = Workload::join(trace(rows), Some(&profile()), cluster, OnBadRow::Refuse).unwrap_err();
            assert_eq!(error.to_string(), message);
        }
        let small = Cluster::parse("3").unwrap();
        let error = Workload::join(trace("a,0,4,9,4,4,m,8\n"), None, small, OnBadRow::Refuse).unwrap_err();
        let message = r#"t.csv:2: column gpus_requested: "4" is more than the cluster has: 3 of that type"#;
        assert_eq!(error.to_string(), message);
    }

    #[test]
    fn rows_that_cannot_be_joined_can_be_left_out() {
        let rows = trace("a,0,2,9,1,4,x,8\nb,0,2,9,1,4,m,8\n");
        let cluster = Cluster::parse("8").unwrap();
        let workload = Workload::join(rows, Some(&profile()), cluster, OnBadRow::Skip).unwrap();
        assert_eq!((workload.jobs.len(), workload.skipped.len()), (1, 1));
    }
}
