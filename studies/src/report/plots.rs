//! The plots, drawn with `plotters` as SVG.
//!
//! Tests: through the page.

use plotters::coord::Shift;
use plotters::prelude::*;
use scheduler::Micros;

use super::series::Bins;
use super::{Error, Shown};
use crate::input::Workload;
use crate::sim::{JobRecord, Outcome, Sample};
use crate::summary::{ratio, seconds};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Colours that colour-blind readers can distinguish, then others.
const COLOURS: [RGBColor; 16] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(120, 94, 240),
    RGBColor(240, 228, 66),
    RGBColor(139, 69, 19),
    RGBColor(0, 128, 128),
    RGBColor(178, 34, 34),
    RGBColor(85, 107, 47),
    RGBColor(72, 61, 139),
    RGBColor(219, 112, 147),
    RGBColor(184, 134, 11),
    RGBColor(47, 79, 79),
];
const GREY: RGBColor = RGBColor(200, 205, 210);
/// Points of a line over time.
const BINS: usize = 480;
/// Jobs that get a colour of their own.
const COLOURED_JOBS: usize = 16;

fn colour(i: usize) -> RGBColor {
    COLOURS[i % COLOURS.len()]
}

/// Draws into a string.
fn svg(
    plot: &'static str,
    size: (u32, u32),
    draw: impl FnOnce(&Area<'_>) -> Result<(), Box<dyn std::error::Error>>,
) -> Result<String, Error> {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        let drawn = draw(&area).and_then(|()| area.present().map_err(Into::into));
        drawn.map_err(|error| Error { plot, problem: error.to_string() })?;
    }
    // Without a fixed size the page's style decides, and the view box keeps the shape.
    Ok(text.replacen(&format!("width=\"{}\" height=\"{}\" ", size.0, size.1), "", 1))
}

/// Mean and 99th percentile of every policy as bars.
pub(super) fn bars(studies: &[Shown<'_>]) -> Result<String, Error> {
    let rows = u32::try_from(studies.len()).unwrap_or(u32::MAX).min(100);
    svg("policies", (1000, 90 + 46 * rows), |area| {
        let value = |s: &Shown<'_>| (s.summary.average_completion(), seconds(s.summary.completion.p99));
        let most = studies.iter().map(|s| value(s).1.max(value(s).0)).fold(1.0, f64::max);
        let least = studies.iter().map(|s| value(s).0.min(value(s).1)).fold(most, f64::min).max(0.1);
        let count = i32::try_from(studies.len()).unwrap_or(i32::MAX);
        let mut chart = ChartBuilder::on(area)
            .margin(10)
            .x_label_area_size(45)
            .y_label_area_size(230)
            .build_cartesian_2d((least / 2.0..most * 1.1).log_scale(), 0..count * 3)?;
        // The first policy on top.
        let name = |y: &i32| match (usize::try_from(count - 1 - y / 3), y % 3) {
            (Ok(i), 1) => studies.get(i).map_or_else(String::new, |s| s.name.to_owned()),
            _ => String::new(),
        };
        chart
            .configure_mesh()
            .disable_y_mesh()
            .y_labels(studies.len() * 3 + 1)
            .y_label_formatter(&name)
            .x_desc("seconds (logarithmic)")
            .x_label_formatter(&|x| format!("{x:.0}"))
            .draw()?;
        for (place, study) in studies.iter().enumerate() {
            let (mean, p99) = value(study);
            let i = count - 1 - i32::try_from(place).unwrap_or_default();
            let bar = |low: i32, to: f64, style: ShapeStyle| Rectangle::new([(least / 2.0, low), (to, low + 1)], style);
            let main = colour(place);
            chart.draw_series([bar(i * 3 + 1, mean, main.filled()), bar(i * 3, p99, main.mix(0.35).filled())])?;
            let font = ("sans-serif", 13).into_font();
            let text =
                |at: f64, y: i32, what: &str| Text::new(format!("{at:.0} {what}"), (at * 1.01, y + 1), font.clone());
            chart.draw_series([text(mean, i * 3 + 1, "mean"), text(p99, i * 3, "p99")])?;
        }
        Ok(())
    })
}

/// Distribution of completion times.
pub(super) fn cdf(studies: &[Shown<'_>]) -> Result<String, Error> {
    svg("completion times", (1000, 420), |area| {
        let sorted = |s: &Shown<'_>| {
            let mut times: Vec<Micros> = s.outcome.jobs.iter().map(JobRecord::completion).collect();
            times.sort_unstable();
            times
        };
        let all: Vec<Vec<Micros>> = studies.iter().map(sorted).collect();
        let ends = all.iter().filter_map(|t| Some((seconds(*t.first()?), seconds(*t.last()?))));
        let (least, most) = ends.fold((f64::MAX, 1.0_f64), |(l, m), (a, b)| (l.min(a.max(0.1)), m.max(b)));
        let mut chart = ChartBuilder::on(area)
            .margin(10)
            .x_label_area_size(45)
            .y_label_area_size(60)
            .build_cartesian_2d((least.min(most)..most * 1.01).log_scale(), 0.0..1.0)?;
        chart
            .configure_mesh()
            .max_light_lines(1)
            .x_desc("completion time, seconds (logarithmic)")
            .y_desc("share of jobs")
            .x_label_formatter(&|x| format!("{x:.0}"))
            .draw()?;
        for (i, (times, study)) in all.iter().zip(studies).enumerate() {
            let step = times.len().div_ceil(1000).max(1);
            let share = |k: usize| ratio(k as u128 + 1, times.len() as u128);
            let points = times.iter().enumerate().filter(|(k, _)| k % step == 0 || k + 1 == times.len());
            let points = points.map(|(k, &t)| (seconds(t).max(0.1), share(k)));
            let line = chart.draw_series(LineSeries::new(points, colour(i).stroke_width(2)))?;
            line.label(study.name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour(i).stroke_width(2)));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerRight)
            .background_style(WHITE.mix(0.85))
            .border_style(GREY)
            .draw()?;
        Ok(())
    })
}

/// The span of time of some studies.
fn span<'a>(outcomes: impl Iterator<Item = &'a Outcome> + Clone) -> Bins {
    let from = outcomes.clone().filter_map(|o| o.samples.first()).map(|s| s.at).min().unwrap_or_default();
    let to = outcomes.filter_map(|o| o.samples.last()).map(|s| s.at).max().unwrap_or_default();
    Bins::new(from, to, BINS)
}

/// A number of the samples over time, one line per policy.
pub(super) fn over_time(
    plot: &'static str,
    what: &str,
    studies: &[Shown<'_>],
    value: impl Fn(&Sample) -> u32 + Copy,
) -> Result<String, Error> {
    svg(plot, (1000, 320), |area| {
        let bins = span(studies.iter().map(|s| s.outcome));
        let lines: Vec<Vec<f64>> = studies.iter().map(|s| bins.of_samples(&s.outcome.samples, value)).collect();
        let most = lines.iter().flatten().copied().fold(1.0, f64::max);
        let hours = bins.middle_hours(0)..bins.middle_hours(bins.count - 1);
        let mut chart = ChartBuilder::on(area)
            .margin(10)
            .x_label_area_size(45)
            .y_label_area_size(60)
            .build_cartesian_2d(hours, 0.0..most * 1.05)?;
        chart
            .configure_mesh()
            .max_light_lines(1)
            .x_desc("hours")
            .y_desc(what)
            .x_label_formatter(&|x| format!("{x:.1}"))
            .draw()?;
        for (i, (line, study)) in lines.iter().zip(studies).enumerate() {
            let points = line.iter().enumerate().map(|(bin, &v)| (bins.middle_hours(bin), v));
            let drawn = chart.draw_series(LineSeries::new(points, colour(i).mix(0.85).stroke_width(1)))?;
            drawn
                .label(study.name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour(i).stroke_width(2)));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE.mix(0.85))
            .border_style(GREY)
            .draw()?;
        Ok(())
    })
}

/// GPUs over time, stacked by job.
pub(super) fn by_job(workload: &Workload, outcome: &Outcome) -> Result<String, Error> {
    svg("GPUs by job", (1000, 420), |area| {
        let bins = span(std::iter::once(outcome));
        let mut largest: Vec<&JobRecord> = outcome.jobs.iter().collect();
        largest.sort_by_key(|r| (std::cmp::Reverse(r.attained), r.place));
        largest.truncate(COLOURED_JOBS);
        largest.sort_by_key(|r| r.place);
        let gpus = f64::from(workload.cluster.gpus());
        let hours = bins.middle_hours(0)..bins.middle_hours(bins.count - 1);
        let mut chart = ChartBuilder::on(area)
            .margin(10)
            .x_label_area_size(45)
            .y_label_area_size(60)
            .build_cartesian_2d(hours.start..hours.end + (hours.end - hours.start) * 0.25, 0.0..gpus)?;
        chart
            .configure_mesh()
            .max_light_lines(1)
            .x_desc("hours")
            .y_desc("GPUs")
            .x_label_formatter(&|x| format!("{x:.1}"))
            .draw()?;
        // From the back: all of it in grey, then each sum of the jobs up to one, the last job first.
        let held = bins.of_samples(&outcome.samples, |s| s.gpus);
        let points = |line: &[f64]| -> Vec<(f64, f64)> {
            line.iter().enumerate().map(|(bin, &v)| (bins.middle_hours(bin), v)).collect()
        };
        let all = chart.draw_series(AreaSeries::new(points(&held), 0.0, GREY))?;
        all.label("others").legend(|(x, y)| Rectangle::new([(x, y - 5), (x + 14, y + 5)], GREY.filled()));
        let mut stack = vec![0.0; bins.count];
        let mut layers: Vec<(Vec<f64>, String)> = Vec::new();
        for record in &largest {
            for (sum, own) in stack.iter_mut().zip(bins.of_job(&outcome.changes, record.place)) {
                *sum += own;
            }
            layers.push((stack.clone(), record.name.chars().take(20).collect()));
        }
        for (i, (layer, name)) in layers.iter().enumerate().rev() {
            let area = chart.draw_series(AreaSeries::new(points(layer), 0.0, colour(i)))?;
            area.label(name).legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 14, y + 5)], colour(i).filled()));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE)
            .border_style(GREY)
            .label_font(("sans-serif", 12))
            .draw()?;
        Ok(())
    })
}
