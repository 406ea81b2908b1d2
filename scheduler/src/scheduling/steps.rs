//! Converts GPUs to steps: policies grant GPUs one by one, and workers may have several.
//!
//! A queue whose workers all have one width is decided in units of that width, exactly. With several widths the unit is
//! their greatest common divisor; what a policy gives is rounded down to whole workers, and what that leaves goes to the
//! jobs that lost by it. Tests: at the end of this file.

use crate::job::{Curve, Grant, JobView, Speeds};

/// Returns the greatest common divisor of widths; 1 of none.
pub(super) fn common(widths: impl IntoIterator<Item = u32>) -> u32 {
    let gcd = |a: u32, b: u32| {
        let (mut a, mut b) = (a, b);
        while let Some(rest) = a.checked_rem(b) {
            (a, b) = (b, rest);
        }
        a
    };
    widths.into_iter().fold(0, gcd).max(1)
}

/// Returns GPUs in units of a step, rounded down.
pub(super) fn in_steps(gpus: u32, step: u32) -> u32 {
    gpus.checked_div(step).unwrap_or_default()
}

/// Returns the GPUs of whole workers only.
pub(super) fn whole(gpus: u32, width: u32) -> u32 {
    in_steps(gpus, width).saturating_mul(width)
}

/// Returns a view by GPUs as a view by steps of GPUs.
pub(super) fn view_in_steps(view: JobView, step: u32) -> JobView {
    if step <= 1 {
        return view;
    }
    let curve = |curve: &Curve| {
        let sizes = 0..=in_steps(curve.reach(), step);
        Curve::new(sizes.map(|size| curve.at(size.saturating_mul(step))))
    };
    JobView {
        min: in_steps(view.min, step),
        num: in_steps(view.num, step),
        max: in_steps(view.max, step),
        // A size that was measured in part counts as measured.
        tried: view.tried.map(|tried| tried.div_ceil(step)),
        held: Grant::of(view.held.gpu_type, in_steps(view.held.gpus, step)),
        speeds: Speeds::new(view.speeds.iter().map(|(gpu_type, table)| (*gpu_type, curve(table)))),
        ..view
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{GpuType, Micros, Speed};

    #[test]
    fn the_common_step_divides_every_width() {
        assert_eq!(common([8, 8, 8]), 8);
        assert_eq!(common([8, 4, 6]), 2);
        assert_eq!(common([8, 1]), 1);
        assert_eq!(common([]), 1);
        assert_eq!((whole(15, 4), whole(3, 4), in_steps(15, 4)), (12, 0, 3));
    }

    #[test]
    fn a_view_in_steps_has_the_speeds_of_its_sizes() {
        let view =
            JobView { tried: Some(5), held: Grant::of(GpuType(0), 8), ..JobView::waiting("a", 4, 8, 16, Micros::ZERO) };
        let view = view_in_steps(view, 4);
        assert_eq!((view.min, view.num, view.max, view.held.gpus, view.tried), (1, 2, 4, 2, Some(2)));
        let curve = &view.speeds.home().unwrap().1;
        assert_eq!((curve.reach(), curve.at(1), curve.at(4)), (4, Speed::from_milli(4000), Speed::from_milli(16_000)));
    }
}
