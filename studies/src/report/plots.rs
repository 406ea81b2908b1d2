//! The plots, drawn with `plotters` as SVG, each once for wide and once for narrow screens. Names of lines stand in the page.
//!
//! Tests: through the page.

use plotters::coord::Shift;
use plotters::coord::ranged1d::ValueFormatter;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::TextStyle;
use scheduler::Micros;

use super::series::Bins;
use super::{Error, Shown};
use crate::input::Workload;
use crate::sim::{JobRecord, Sample, StudyOutcome};
use crate::summary::{ratio, seconds};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// A chart over time.
type Timed<'a> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

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

/// A drawing in one of the two widths in which each plot stands in the page.
struct Format {
    /// Class of the drawing.
    class: &'static str,
    width: u32,
    height: u32,
    /// Size of its texts.
    font: u32,
    /// Labels of the horizontal axis.
    labels: usize,
    /// Points of a line over time.
    bins: usize,
}

const FORMATS: [Format; 2] = [
    Format { class: "wide", width: 1000, height: 340, font: 13, labels: 10, bins: 480 },
    Format { class: "narrow", width: 340, height: 230, font: 11, labels: 4, bins: 160 },
];
/// Jobs that get a colour of their own.
const COLOURED_JOBS: usize = 16;

fn colour(i: usize) -> RGBColor {
    COLOURS[i % COLOURS.len()]
}

/// Draws a plot in every format.
fn svg(
    plot: &'static str,
    draw: impl Fn(&Area<'_>, &Format) -> Result<(), Box<dyn std::error::Error>>,
) -> Result<String, Error> {
    let mut all = String::new();
    for format in &FORMATS {
        let size = (format.width, format.height);
        let mut text = String::new();
        {
            let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
            let drawn = draw(&area, format).and_then(|()| area.present().map_err(Into::into));
            drawn.map_err(|error| Error { plot, problem: error.to_string() })?;
        }
        // Without a fixed size the page's style decides, and the view box keeps the shape.
        let fixed = format!("width=\"{}\" height=\"{}\" ", size.0, size.1);
        let class = format!("class=\"{}\" role=\"img\" aria-label=\"{plot}\" ", format.class);
        all.push_str(&text.replacen(&fixed, &class, 1));
    }
    Ok(all)
}

/// The policies with their colours.
pub(super) fn policies(studies: &[Shown<'_>]) -> Vec<(String, String)> {
    studies.iter().enumerate().map(|(i, study)| (study.name.to_owned(), css(colour(i)))).collect()
}

fn css(RGBColor(red, green, blue): RGBColor) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

impl Format {
    fn style(&self) -> TextStyle<'static> {
        ("sans-serif", self.font).into_text_style(&(self.width, self.height))
    }

    /// Width of the labels of the vertical axis, by the number of letters of the longest: a letter is three fifths of its height wide.
    fn label_width(&self, letters: usize) -> u32 {
        let letters = u32::try_from(letters).unwrap_or(u32::MAX);
        self.font.saturating_mul(letters).saturating_mul(3) / 5 + 12
    }

    /// Height of the labels of the horizontal axis, with its name.
    const fn label_height(&self) -> u32 {
        self.font * 3
    }

    /// Begins a chart; `letters` is the length of the longest label of the vertical axis.
    fn chart<'a, 'b>(&self, area: &'a Area<'b>, letters: usize) -> ChartBuilder<'a, 'b, SVGBackend<'b>> {
        let mut chart = ChartBuilder::on(area);
        chart
            .margin(8)
            .margin_right(self.label_width(3))
            .x_label_area_size(self.label_height())
            .y_label_area_size(self.label_width(letters));
        chart
    }

    /// Draws the axes of a chart. The horizontal one has a name.
    fn axes<'a, X: Ranged<ValueType = f64> + ValueFormatter<f64>>(
        &self,
        chart: &mut ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, RangedCoordf64>>,
        name: &str,
        x: &dyn Fn(&f64) -> String,
        y: &dyn Fn(&f64) -> String,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let mut mesh = chart.configure_mesh();
        mesh.max_light_lines(1)
            .x_labels(self.labels)
            .y_labels(6)
            .label_style(self.style())
            .axis_desc_style(self.style());
        mesh.x_desc(name).x_label_formatter(x).y_label_formatter(y).draw()?;
        Ok(())
    }
}

/// Distribution of completion times.
pub(super) fn cdf(studies: &[Shown<'_>]) -> Result<String, Error> {
    let sorted = |s: &Shown<'_>| {
        let mut times: Vec<Micros> = s.outcome.jobs.iter().map(JobRecord::completion).collect();
        times.sort_unstable();
        times
    };
    let all: Vec<Vec<Micros>> = studies.iter().map(sorted).collect();
    let ends = all.iter().filter_map(|t| Some((seconds(*t.first()?), seconds(*t.last()?))));
    let (least, most) = ends.fold((f64::MAX, 1.0_f64), |(l, m), (a, b)| (l.min(a.max(0.1)), m.max(b)));
    svg("completion times", |area, format| {
        let seconds_axis = (least.min(most)..most * 1.01).log_scale();
        let mut chart = format.chart(area, 3).build_cartesian_2d(seconds_axis, 0.0..1.0)?;
        format.axes(&mut chart, "seconds (logarithmic)", &|x| short(*x), &|y| format!("{y:.1}"))?;
        for (i, times) in all.iter().enumerate() {
            let step = times.len().div_ceil(format.bins * 2).max(1);
            let share = |k: usize| ratio(k as u128 + 1, times.len() as u128);
            let points = times.iter().enumerate().filter(|(k, _)| k % step == 0 || k + 1 == times.len());
            let points = points.map(|(k, &t)| (seconds(t).max(0.1), share(k)));
            chart.draw_series(LineSeries::new(points, colour(i).stroke_width(2)))?;
        }
        Ok(())
    })
}

/// Returns a number of seconds in few letters: `0.1`, `20`, `500`, `20k`, `3M`.
fn short(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{}M", v / 1e6),
        v if v >= 1e4 => format!("{}k", v / 1e3),
        v => format!("{v}"),
    }
}

/// The span of time of all studies: the one axis of every plot over time.
fn span(studies: &[Shown<'_>], format: &Format) -> Bins {
    let samples = || studies.iter().map(|study| &study.outcome.samples);
    let from = samples().filter_map(|samples| samples.first()).map(|s| s.at).min().unwrap_or_default();
    let to = samples().filter_map(|samples| samples.last()).map(|s| s.at).max().unwrap_or_default();
    Bins::new(from, to, format.bins)
}

/// A chart whose horizontal axis is time in hours, and whose vertical axis ends at `most`.
fn timed<'a>(
    area: &Area<'a>,
    format: &Format,
    bins: &Bins,
    most: f64,
) -> Result<Timed<'a>, Box<dyn std::error::Error>> {
    let (first, last) = (bins.middle_hours(0), bins.middle_hours(bins.count - 1));
    let digits = if last - first >= 20.0 { 0 } else { usize::from(last - first < 0.5) + 1 };
    let letters = format!("{most:.0}").len().max(3);
    let mut chart = format.chart(area, letters).build_cartesian_2d(first..last, 0.0..most)?;
    let values = |y: &f64| if most < 10.0 { format!("{y:.1}") } else { format!("{y:.0}") };
    format.axes(&mut chart, "hours", &|x| format!("{x:.digits$}"), &values)?;
    Ok(chart)
}

/// A number of the samples over time, one line per policy.
pub(super) fn over_time(
    plot: &'static str,
    studies: &[Shown<'_>],
    value: impl Fn(&Sample) -> u32 + Copy,
) -> Result<String, Error> {
    svg(plot, |area, format| {
        let bins = span(studies, format);
        let lines: Vec<Vec<f64>> = studies.iter().map(|s| bins.of_samples(&s.outcome.samples, value)).collect();
        let most = lines.iter().flatten().copied().fold(1.0, f64::max);
        let mut chart = timed(area, format, &bins, most * 1.05)?;
        for (i, line) in lines.iter().enumerate() {
            let points = line.iter().enumerate().map(|(bin, &v)| (bins.middle_hours(bin), v));
            chart.draw_series(LineSeries::new(points, colour(i).mix(0.85).stroke_width(1)))?;
        }
        Ok(())
    })
}

/// GPUs of one of the studies over time, stacked by job, and its jobs with their colours.
pub(super) fn by_job(
    workload: &Workload,
    studies: &[Shown<'_>],
    outcome: &StudyOutcome,
) -> Result<(String, Vec<(String, String)>), Error> {
    let mut largest: Vec<&JobRecord> = outcome.jobs.iter().collect();
    largest.sort_by_key(|r| (std::cmp::Reverse(r.attained), r.place));
    largest.truncate(COLOURED_JOBS);
    largest.sort_by_key(|r| r.place);
    let plot = svg("GPUs by job", |area, format| {
        let bins = span(studies, format);
        let mut chart = timed(area, format, &bins, f64::from(workload.cluster.gpus()))?;
        // From the back: all of it in grey, then each sum of the jobs up to one, the last job first.
        let held = bins.of_samples(&outcome.samples, |s| s.gpus);
        let points = |line: &[f64]| -> Vec<(f64, f64)> {
            line.iter().enumerate().map(|(bin, &v)| (bins.middle_hours(bin), v)).collect()
        };
        chart.draw_series(AreaSeries::new(points(&held), 0.0, GREY))?;
        let mut stack = vec![0.0; bins.count];
        let mut layers: Vec<Vec<f64>> = Vec::new();
        for record in &largest {
            for (sum, own) in stack.iter_mut().zip(bins.of_job(&outcome.changes, record.place)) {
                *sum += own;
            }
            layers.push(stack.clone());
        }
        for (i, layer) in layers.iter().enumerate().rev() {
            chart.draw_series(AreaSeries::new(points(layer), 0.0, colour(i)))?;
        }
        Ok(())
    })?;
    let coloured = largest.iter().enumerate().map(|(i, record)| (record.name.to_string(), css(colour(i))));
    let others = (outcome.jobs.len() > largest.len()).then(|| ("others".to_owned(), css(GREY)));
    Ok((plot, coloured.chain(others).collect()))
}
