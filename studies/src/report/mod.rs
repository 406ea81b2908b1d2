//! A report of studies as one HTML file that opens anywhere: tables, and plots as inline SVG. No script, no font, no
//! network.
//!
//! Owns the page ([`html`]); the numbers are `summary`'s, the plots are drawn by a library in `plots`, from series binned in
//! `series`. Tests: at the end of each file.

mod plots;
mod series;

use std::fmt::Write as _;

use super::input::Workload;
use super::sim::Outcome;
use super::summary::{Summary, ratio, seconds};

/// One study in a report.
#[derive(Debug, Clone, Copy)]
pub struct Shown<'a> {
    /// Name of the policy.
    pub name: &'a str,
    /// Outcome of the jobs.
    pub outcome: &'a Outcome,
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

const STYLE: &str = "
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; color: #1b1f24; background: #fff; }
h1 { font-size: 1.5rem; margin-bottom: .2rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .4rem; }
p.what, p.note { color: #57606a; margin: .2rem 0; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: .9rem; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid #d8dee4; text-align: right; }
th:first-child, td:first-child { text-align: left; } td.best { font-weight: 600; background: #e6f4ea; }
figure { margin: 1rem 0; } svg { width: 100%; height: auto; }
";

/// The report.
///
/// `config` says in words how the studies were played. Plots of GPUs by job need outcomes that kept their changes; they
/// are left out of the report for those that did not.
///
/// # Errors
/// The plotting library failed.
pub fn html(workload: &Workload, config: &str, studies: &[Shown<'_>]) -> Result<String, Error> {
    let mut page = String::new();
    let title = format!("Scheduling study: {}", workload.name);
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\"><title>{0}</title><style>{STYLE}</style></head><body>\n\
         <h1>{0}</h1>\n<p class=\"what\">{1} jobs on {2} ({3} GPUs). {4}</p>\n",
        escape(&title),
        workload.jobs.len(),
        escape(&workload.cluster.label()),
        workload.cluster.gpus(),
        escape(config),
    );
    if !workload.skipped.is_empty() {
        let _ = writeln!(page, "<p class=\"note\">{} rows of the trace were left out.</p>", workload.skipped.len());
    }
    page.push_str(&table(studies));
    let gpus = workload.cluster.gpus();
    let mut figure = |heading: &str, note: &str, svg: &str| {
        let _ = write!(page, "<h2>{heading}</h2>\n<p class=\"note\">{}</p>\n<figure>{svg}</figure>\n", escape(note));
    };
    figure("Policies", "Mean and 99th percentile of the completion time.", &plots::bars(studies)?);
    figure(
        "Completion times",
        "Share of the jobs that took at most this time, from submission to end.",
        &plots::cdf(studies)?,
    );
    figure("Queue", "Jobs that hold no GPU.", &plots::over_time("queue", "waiting jobs", studies, |s| s.waiting)?);
    let held = plots::over_time("utilisation", "GPUs held", studies, |s| s.gpus)?;
    figure(
        "Utilisation",
        &format!("GPUs held by jobs, of {gpus}. Held is not the same as useful: see efficiency above."),
        &held,
    );
    for study in studies.iter().filter(|s| !s.outcome.changes.is_empty()) {
        let note = "The jobs that held most GPU time in colours, all others in grey.";
        let heading = format!("GPUs over time by job: {}", escape(study.name));
        figure(&heading, note, &plots::by_job(workload, study.outcome)?);
    }
    page.push_str("</body></html>\n");
    Ok(page)
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
    let mut text = String::from("<table><thead><tr><th>policy</th>");
    for (heading, ..) in &columns {
        let _ = write!(text, "<th>{heading}</th>");
    }
    text.push_str("</tr></thead><tbody>\n");
    for study in studies {
        let _ = write!(text, "<tr><td>{}</td>", escape(study.name));
        for (_, digits, less_is_better, value) in &columns {
            let own = value(study.summary);
            let mut others = studies.iter().map(|s| value(s.summary));
            let best = studies.len() > 1 && *less_is_better == Some(true) && others.all(|other| own <= other);
            let class = if best { " class=\"best\"" } else { "" };
            let _ = write!(text, "<td{class}>{own:.digits$}</td>");
        }
        text.push_str("</tr>\n");
    }
    text.push_str("</tbody></table>\n");
    text
}

/// Returns text as it may stand in HTML and XML.
pub fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::{Cluster, OnBadRow, Trace};
    use crate::lineup::Entrant;
    use crate::sim::{Settings, run};

    #[test]
    fn a_report_holds_its_plots_and_nothing_from_elsewhere() {
        let rows = "a&b,0,4,100\n<c>,10,2,50\nd,20,3,500\n";
        let text = format!("job_id,submit_time_s,gpus_requested,duration_s\n{rows}");
        let trace = Trace::read("<t>.csv", text.as_bytes(), OnBadRow::Refuse).unwrap();
        let workload = Workload::join(trace, None, Cluster::parse("4").unwrap(), OnBadRow::Refuse).unwrap();
        let settings = Settings { keep_changes: true, ..Settings::default() };
        let names = ["fifo-strict", "srtf"];
        let outcomes = names.map(|n| run(&workload, Entrant::find(n).unwrap().policy.as_ref(), &settings).unwrap());
        let summaries = [0, 1].map(|i| Summary::of(&workload, &outcomes[i]));
        let studies: Vec<Shown<'_>> =
            (0..2).map(|i| Shown { name: names[i], outcome: &outcomes[i], summary: &summaries[i] }).collect();
        let page = html(&workload, "a < b", &studies).unwrap();
        assert_eq!(page.matches("<svg").count(), 6, "bars, cdf, queue, utilisation, and one by job for each policy");
        assert!(page.contains("&lt;t&gt;.csv") && page.contains("a &lt; b"));
        assert!(page.contains("<td class=\"best\">"), "the better mean is marked");
        for word in ["<script", "src=", "@import", "url(", "<link", "<c>", "a&b"] {
            assert!(!page.contains(word), "{word}");
        }
        let elsewhere = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!elsewhere.contains("http"), "only the SVG name space is named");
    }
}
