//! Multiples of a tick.

use scheduler::Micros;

/// The first multiple of `step` that is not before `at`; [`Micros::MAX`] stays.
pub(super) fn at_or_after(at: Micros, step: Micros) -> Micros {
    if at == Micros::MAX {
        return at;
    }
    Micros(at.0.checked_next_multiple_of(step.0.max(1)).unwrap_or(u64::MAX))
}

/// The first multiple of `step` after `at`.
pub(super) fn after(at: Micros, step: Micros) -> Micros {
    at_or_after(at.plus(Micros(1)), step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multiples_are_found() {
        let step = Micros(10);
        assert_eq!((at_or_after(Micros(20), step), after(Micros(20), step)), (Micros(20), Micros(30)));
        assert_eq!((at_or_after(Micros(21), step), after(Micros(29), step)), (Micros(30), Micros(30)));
        assert_eq!(at_or_after(Micros::MAX, step), Micros::MAX);
    }
}
