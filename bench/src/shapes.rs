//! From apply to all Running, in several shapes: the bare client and the operator in turn, in the same control plane.
//!
//! A round is over when the API server has come to rest; what it used at rest is taken off. Each round has a namespace of its
//! own, which is cleared before the next begins. Each of the operator's rounds has a process of its own.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::api;
use crate::bare::Bare;
use crate::operator::{Operator, difference};
use crate::table::{AnyError, Row, figure, heading, mb, median, note};
use crate::test_bed::{Mark, TestBed};
use crate::watcher::{Group, last};
use crate::work::{self, Shape};

/// Time without any watch event after which pods count as stuck.
const STALL_TIMEOUT: Duration = Duration::from_secs(120);

/// The aim of 0.4 CPU seconds per 1,000 pods is for a machine whose API server spends 5.2 on the bare client's 1,000 pods without
/// services. On others this share of it is what can be compared.
const CPU_SHARE: f64 = 0.4 / 5.2;

/// Measurements of one round.
#[derive(Debug, Clone, Default)]
pub(crate) struct Round {
    pub(crate) created: f64,
    pub(crate) running: f64,
    api_server: f64,
    etcd: f64,
    pub(crate) operator: Option<Used>,
}

/// Resources the operator used, and calls it made.
#[derive(Debug, Clone)]
pub(crate) struct Used {
    /// CPU seconds of the round.
    pub(crate) cpu: f64,
    /// In memory at its end, and at most, in bytes.
    resident: u64,
    peak: u64,
    pub(crate) calls: BTreeMap<String, f64>,
}

/// Measures shapes, each in `rounds` rounds of both.
pub(crate) fn run(test_bed: &TestBed, shapes: &[Shape], rounds: u32) -> Result<(), AnyError> {
    for (n, &shape) in shapes.iter().enumerate() {
        let (mut bare, mut ours) = (Vec::new(), Vec::new());
        for round in 0..rounds {
            bare.push(bare_round(test_bed, shape, &format!("bare-{n}-{round}"))?);
            let namespace = format!("operator-{n}-{round}");
            let jobs = work::jobs(test_bed.kind, &namespace, shape);
            ours.push(operator_round(test_bed, shape, &namespace, &jobs, |_| Ok(()))?);
        }
        print(shape, &bare, &ours);
    }
    Ok(())
}

pub(crate) fn bare_round(test_bed: &TestBed, shape: Shape, namespace: &str) -> Result<Round, AnyError> {
    test_bed.runtime.block_on(test_bed.admin.namespace(namespace))?;
    let mut calls = Vec::new();
    for manifest in work::jobs(test_bed.kind, namespace, shape) {
        calls.extend(work::creations(&manifest)?);
    }
    let client = test_bed.runtime.block_on(Bare::prepare(&test_bed.account, calls))?;
    test_bed.until_rest()?;
    let group = Group::Namespace(namespace.to_owned());
    test_bed.watcher.follow(group.clone());
    let (mark, started) = (test_bed.mark()?, Instant::now());
    let sending = test_bed.runtime.spawn(client.send());
    let waited = test_bed.watcher.until_running(&group, shape.all_pods() as usize, STALL_TIMEOUT);
    test_bed.runtime.block_on(sending)??;
    waited?;
    finish(test_bed, shape, namespace, mark, started, None)
}

/// One round of an operator of its own. `prepare`: what is done once it leads, and not measured.
pub(crate) fn operator_round(
    test_bed: &TestBed,
    shape: Shape,
    namespace: &str,
    jobs: &[Value],
    prepare: impl FnOnce(&TestBed) -> Result<(), AnyError>,
) -> Result<Round, AnyError> {
    test_bed.runtime.block_on(test_bed.admin.namespace(namespace))?;
    let operator = test_bed.operator(namespace)?;
    prepare(test_bed)?;
    let group = Group::Namespace(namespace.to_owned());
    test_bed.watcher.follow(group.clone());
    let before = (operator.usage()?.cpu_seconds, operator.calls()?);
    let (mark, started) = (test_bed.mark()?, Instant::now());
    test_bed.runtime.block_on(test_bed.admin.create_all(&test_bed.kind.path(namespace)?, jobs))?;
    test_bed.watcher.until_running(&group, shape.all_pods() as usize, STALL_TIMEOUT)?;
    finish(test_bed, shape, namespace, mark, started, Some((operator, before.0, before.1)))
}

/// Waits for rest, takes the figures, and clears the namespace.
fn finish(
    test_bed: &TestBed,
    shape: Shape,
    namespace: &str,
    mark: Mark,
    started: Instant,
    operator: Option<(Operator, f64, BTreeMap<String, f64>)>,
) -> Result<Round, AnyError> {
    let services = test_bed.runtime.block_on(until_services(test_bed, shape, namespace));
    services?;
    test_bed.until_rest()?;
    let spent = test_bed.spent(mark)?;
    let used = match &operator {
        None => None,
        Some((operator, cpu, calls)) => {
            let now = operator.usage()?;
            let calls = difference(&operator.calls()?, calls);
            Some(Used { cpu: now.cpu_seconds - cpu, resident: now.rss_bytes, peak: now.peak_rss_bytes, calls })
        }
    };
    let pods = test_bed.watcher.leave(&Group::Namespace(namespace.to_owned()));
    if pods.len() != shape.all_pods() as usize {
        return Err(format!("{namespace}: {} pods were made for {}", pods.len(), shape.all_pods()).into());
    }
    let (created, running) = last(&pods, started);
    if let Some((operator, ..)) = operator {
        operator.stop()?;
    }
    test_bed.clear(namespace)?;
    Ok(Round { created, running, api_server: spent.api_server, etcd: spent.etcd, operator: used })
}

async fn until_services(test_bed: &TestBed, shape: Shape, namespace: &str) -> Result<(), AnyError> {
    let (wanted, started) = (u64::from(shape.all_services()), Instant::now());
    loop {
        let there = test_bed.admin.count(&api::services(namespace)).await?;
        if there >= wanted {
            return Ok(());
        }
        if started.elapsed() > STALL_TIMEOUT {
            return Err(format!("{there} of {wanted} services are there").into());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

fn print(shape: Shape, bare: &[Round], ours: &[Round]) {
    let thousands = f64::from(shape.all_pods()) / 1000.0;
    let of = |rounds: &[Round], figure: fn(&Round) -> f64| median(rounds.iter().map(figure));
    let pods = f64::from(shape.all_pods());
    heading(&format!("{shape}; medians of {} of each in turn", rounds_words(bare.len())));
    let both = |figure: fn(&Round) -> f64| (of(bare, figure), of(ours, figure));
    let (theirs, own) = both(|round| round.running);
    Row::new("apply to all Running, seconds").both(theirs, own, 2, Some(1.1)).print();
    let (theirs, own) = both(|round| round.created);
    let faster = Row::new("pods created per second").both(pods / theirs, pods / own, 0, None);
    faster.aim(">= 0.91", theirs / own >= 1.0 / 1.1).print();
    let (theirs, own) = both(|round| round.api_server);
    Row::new("API server, CPU seconds per 1,000 pods").both(theirs / thousands, own / thousands, 2, Some(1.3)).print();
    let bare_api_server = theirs / thousands;
    let (theirs, own) = both(|round| round.etcd);
    Row::new("etcd, CPU seconds per 1,000 pods").both(theirs / thousands, own / thousands, 2, None).print();
    let used: Vec<&Used> = ours.iter().filter_map(|round| round.operator.as_ref()).collect();
    let cpu = median(used.iter().map(|used| used.cpu)) / thousands;
    Row::new("operator, CPU seconds per 1,000 pods").operator(format!("{cpu:.2}")).aim("< 0.40", cpu < 0.4).print();
    let share = cpu / bare_api_server;
    let row = Row::new("  as a share of the API server's for the bare client").operator(format!("{share:.3}"));
    row.aim_where(shape.plain, format!("< {CPU_SHARE:.3}"), share < CPU_SHARE).print();
    let memory = median(used.iter().map(|used| figure(used.resident)));
    let row = Row::new("operator, resident memory at rest, MB").operator(mb(memory));
    row.aim_where(shape.all_pods() == 1000, "< 40", memory < 40e6).print();
    let peak = median(used.iter().map(|used| figure(used.peak)));
    Row::new("operator, most resident memory, MB").operator(mb(peak)).print();
    if let Some(last) = used.last() {
        Row::new("calls in the last round").print();
        for (call, count) in &last.calls {
            Row::new(format!("  {call}")).operator(format!("{count:.0}")).print();
        }
    }
    let each = |rounds: &[Round], figure: fn(&Round) -> f64| {
        rounds.iter().map(|round| format!("{:.2}", figure(round))).collect::<Vec<_>>().join(", ")
    };
    note(&format!(
        "to all Running, each round: bare {}; operator {}",
        each(bare, |r| r.running),
        each(ours, |r| r.running)
    ));
}

fn rounds_words(count: usize) -> String {
    if count == 1 { "1 round".to_owned() } else { format!("{count} rounds") }
}
