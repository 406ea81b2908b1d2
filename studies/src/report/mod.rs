//! A report of studies as one HTML file that opens anywhere: tables, and plots as inline SVG. No script, no font, no
//! network.
//!
//! Owns the page ([`html`]); the numbers are `summary`'s, the plots are drawn by a library in `plots`, from series binned in
//! `series`. Tests: at the end of each file.

mod plots;
mod series;

use std::fmt::Write as _;

use model::printable::in_markup;

use super::input::Workload;
use super::sim::StudyOutcome;
use super::summary::{Summary, ratio, seconds};

/// One study in a report.
#[derive(Debug, Clone, Copy)]
pub struct Shown<'a> {
    /// Name of the policy.
    pub name: &'a str,
    /// Outcome of the jobs.
    pub outcome: &'a StudyOutcome,
    /// Its figures.
    pub summary: &'a Summary,
}

/// A plot could not be drawn.
#[derive(Debug, thiserror::Error)]
#[error("plot {plot} cannot be drawn: {problem}")]
pub struct Error {
    /// Name of the plot.
    pub plot: &'static str,
    /// Error of the plotting library.
    pub problem: String,
}

/// A file that a report was made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    /// Its name, as it was given.
    pub name: String,
    /// Its size, with the unit.
    pub size: String,
    /// Digest of its contents, with the name of the hash.
    pub digest: String,
}

/// What a report was made by and from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Provenance {
    /// The command line.
    pub command: String,
    /// Program and version, with the commit where it is known.
    pub version: String,
    /// The files.
    pub inputs: Vec<Input>,
}

const STYLE: &str = "
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; color: #1b1f24; background: #fff;
  overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; margin-bottom: .2rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .4rem; }
p.what, p.note { color: #57606a; margin: .2rem 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: .9rem; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid #d8dee4; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } td.best { font-weight: 600; background: #e6f4ea; }
figure { margin: .6rem 0; } svg { display: block; width: 100%; height: auto; } svg.narrow { display: none; }
ul.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .1rem 1rem; margin: .4rem 0; padding: 0; font-size: .9rem; }
ul.legend i { display: inline-block; width: .8rem; height: .8rem; margin-right: .4rem; vertical-align: -.05rem; }
.bars .name { font-weight: 600; margin-top: .5rem; }
.bars .row { display: flex; align-items: center; gap: .5rem; font-size: .9rem; font-variant-numeric: tabular-nums; }
.bars .what { flex: 0 0 2.8rem; color: #57606a; } .bars .track { flex: 1 1 auto; min-width: 0; }
.bars .bar { display: block; height: .8rem; min-width: 1px; } .bars .value { flex: 0 0 6.5rem; text-align: right; }
footer { margin: 3rem 0 2rem; border-top: 1px solid #d8dee4; font-size: .85rem; color: #57606a; }
footer pre { white-space: pre-wrap; margin: .2rem 0; } footer dt { font-weight: 600; } footer dd { margin: 0 0 .1rem 1rem; }
@media (max-width: 700px) { svg.wide { display: none; } svg.narrow { display: block; max-width: 480px; } }
";

/// The report.
///
/// `config` says in words how the studies were played. Plots of GPUs by job need outcomes that kept their changes; they
/// are left out of the report for those that did not. All plots over time have one axis of time.
///
/// # Errors
/// The plotting library failed.
pub fn html(
    workload: &Workload,
    config: &str,
    studies: &[Shown<'_>],
    provenance: &Provenance,
) -> Result<String, Error> {
    let mut page = String::new();
    let title = format!("Scheduling study: {}", workload.name);
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\"><title>{0}</title><style>{STYLE}</style></head><body>\n\
         <h1>{0}</h1>\n<p class=\"what\">{1} jobs on {2} ({3} GPUs). {4}</p>\n",
        in_markup(&title),
        workload.jobs.len(),
        in_markup(&workload.cluster.label()),
        workload.cluster.gpus(),
        in_markup(config),
    );
    if !workload.skipped.is_empty() {
        let _ = writeln!(page, "<p class=\"note\">{} rows of the trace were left out.</p>", workload.skipped.len());
    }
    page.push_str(&table(studies));
    let gpus = workload.cluster.gpus();
    let mut section = |heading: &str, note: &str, figure: &str| {
        let _ = write!(page, "<h2>{heading}</h2>\n<p class=\"note\">{}</p>\n{figure}\n", in_markup(note));
    };
    section("Policies", "Mean and 99th percentile of the completion time.", &bars(studies));
    let names = plots::policies(studies);
    let share = "Share of the jobs that took at most this time, from submission to end.";
    section("Completion times", share, &figure(&plots::cdf(studies)?, &names));
    let waiting = plots::over_time("queue", studies, |s| s.waiting)?;
    section("Queue", "Number of jobs that hold no GPU.", &figure(&waiting, &names));
    let held = plots::over_time("utilisation", studies, |s| s.gpus)?;
    let note = format!("GPUs held by jobs, of {gpus}. Held is not the same as useful: see efficiency above.");
    section("Utilisation", &note, &figure(&held, &names));
    for study in studies.iter().filter(|s| !s.outcome.changes.is_empty()) {
        let note = "GPUs held. The jobs that held most GPU time are in colours, all others in grey.";
        let heading = format!("GPUs over time by job: {}", in_markup(study.name));
        let (plot, jobs) = plots::by_job(workload, studies, study.outcome)?;
        section(&heading, note, &figure(&plot, &jobs));
    }
    page.push_str(&foot(provenance));
    page.push_str("</body></html>\n");
    Ok(page)
}

/// A plot with its legend, which is text of the page: it wraps, and no name is cut.
fn figure(plot: &str, legend: &[(String, String)]) -> String {
    let mut text = format!("<figure>{plot}<ul class=\"legend\">");
    for (name, colour) in legend {
        let _ = write!(text, "<li><i style=\"background:{colour}\"></i>{}</li>", in_markup(name));
    }
    text.push_str("</ul></figure>");
    text
}

/// Mean and 99th percentile of every policy as bars from zero, on one scale.
fn bars(studies: &[Shown<'_>]) -> String {
    let values = |s: &Shown<'_>| [("mean", s.summary.average_completion()), ("p99", seconds(s.summary.completion.p99))];
    let most = studies.iter().flat_map(values).map(|(_, value)| value).fold(f64::MIN_POSITIVE, f64::max);
    let mut text = String::from("<div class=\"bars\">");
    for (study, (_, colour)) in studies.iter().zip(plots::policies(studies)) {
        let _ = write!(text, "<div class=\"name\">{}</div>", in_markup(study.name));
        for ((what, value), opacity) in values(study).into_iter().zip(["1", ".4"]) {
            let _ = write!(
                text,
                "<div class=\"row\"><span class=\"what\">{what}</span><span class=\"track\"><span class=\"bar\" \
                 style=\"width:{:.1}%;background:{colour};opacity:{opacity}\"></span></span>\
                 <span class=\"value\">{value:.0} s</span></div>",
                value / most * 100.0
            );
        }
    }
    text.push_str("</div>");
    text
}

/// What the report was made by and from.
fn foot(provenance: &Provenance) -> String {
    let Provenance { command, version, inputs } = provenance;
    let mut text = format!(
        "<footer><h2>Provenance</h2>\n<p class=\"note\">Made by {}:</p>\n<pre>{}</pre>\n",
        in_markup(version),
        in_markup(command)
    );
    text.push_str("<dl>\n");
    for Input { name, size, digest } in inputs {
        let [name, size, digest] = [name, size, digest].map(|part| in_markup(part));
        let _ = writeln!(text, "<dt>{name}</dt><dd>{size}</dd><dd>{digest}</dd>");
    }
    text.push_str("</dl>\n</footer>\n");
    text
}

/// The figures of each study; the best of a column is marked where less or more is plainly better.
fn table(studies: &[Shown<'_>]) -> String {
    type Column = (&'static str, usize, Option<bool>, fn(&Summary) -> f64);
    let columns: [Column; 12] = [
        ("mean JCT s", 1, Some(true), Summary::average_completion),
        ("median", 0, Some(true), |s| seconds(s.completion.median)),
        ("p90", 0, Some(true), |s| seconds(s.completion.p90)),
        ("p95", 0, Some(true), |s| seconds(s.completion.p95)),
        ("p99", 0, Some(true), |s| seconds(s.completion.p99)),
        ("max", 0, Some(true), |s| seconds(s.completion.max)),
        ("makespan", 0, Some(true), |s| seconds(s.makespan)),
        ("mean queue s", 1, None, Summary::average_queued),
        ("utilisation", 3, None, Summary::utilisation),
        ("efficiency", 3, None, Summary::efficiency),
        ("restarts/job", 2, None, |s| ratio(u128::from(s.restarts), s.jobs as u128)),
        ("worst fairness", 2, Some(true), |s| s.worst_fairness),
    ];
    let mut text = String::from("<div class=\"scroll\"><table><thead><tr><th>policy</th>");
    for (heading, ..) in &columns {
        let _ = write!(text, "<th>{heading}</th>");
    }
    text.push_str("</tr></thead><tbody>\n");
    for study in studies {
        let _ = write!(text, "<tr><td>{}</td>", in_markup(study.name));
        for (_, digits, less_is_better, value) in &columns {
            let own = value(study.summary);
            let mut others = studies.iter().map(|s| value(s.summary));
            let best = studies.len() > 1 && *less_is_better == Some(true) && others.all(|other| own <= other);
            let class = if best { " class=\"best\"" } else { "" };
            let _ = write!(text, "<td{class}>{own:.digits$}</td>");
        }
        text.push_str("</tr>\n");
    }
    text.push_str("</tbody></table></div>\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::{Cluster, OnBadRow, Trace};
    use crate::lineup::Candidate;
    use crate::sim::{Settings, run};

    #[test]
    fn a_report_holds_its_plots_and_nothing_from_elsewhere() {
        let rows = "a&b,0,4,100\n<c>,10,2,50\nd,20,3,500\n";
        let text = format!("job_id,submit_time_s,gpus_requested,duration_s\n{rows}");
        let trace = Trace::read("<t>.csv", text.as_bytes(), OnBadRow::Refuse).unwrap();
        let workload = Workload::join(trace, None, Cluster::parse("4").unwrap(), OnBadRow::Refuse).unwrap();
        let settings = Settings { keep_changes: true, ..Settings::default() };
        let names = ["fifo-strict", "srtf"];
        let outcomes = names.map(|n| run(&workload, Candidate::find(n).unwrap().policy.as_ref(), &settings).unwrap());
        let summaries = [0, 1].map(|i| Summary::of(&workload, &outcomes[i]));
        let studies: Vec<Shown<'_>> =
            (0..2).map(|i| Shown { name: names[i], outcome: &outcomes[i], summary: &summaries[i] }).collect();
        let provenance = Provenance {
            command: "trainyard schedule compare --trace '<t>.csv'".to_owned(),
            version: "trainyard 1.0 (commit abc)".to_owned(),
            inputs: vec![Input { name: "<t>.csv".into(), size: "9 bytes".into(), digest: "SHA-256 00ff".into() }],
        };
        let page = html(&workload, "a < b", &studies, &provenance).unwrap();
        let plots = 5; // cdf, queue, utilisation, and one by job for each policy
        assert_eq!(page.matches("<svg class=\"wide\"").count(), plots);
        assert_eq!(page.matches("<svg class=\"narrow\"").count(), plots, "each again for a narrow screen");
        let foot = page.split("<footer>").nth(1).unwrap();
        for part in ["trainyard 1.0 (commit abc)", "--trace '&lt;t&gt;.csv'", "<dd>9 bytes</dd>", "SHA-256 00ff"] {
            assert!(foot.contains(part), "{part}: {foot}");
        }
        assert!(page.contains("&lt;t&gt;.csv") && page.contains("a &lt; b"));
        assert!(page.contains("<td class=\"best\">"), "the better mean is marked");
        for word in ["<script", "src=", "@import", "url(", "<link", "<c>", "a&b"] {
            assert!(!page.contains(word), "{word}");
        }
        let elsewhere = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!elsewhere.contains("http"), "only the SVG name space is named");
    }
}
