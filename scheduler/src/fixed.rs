//! Powers with a fractional exponent, in integers, so that weights are the same on every machine.
//!
//! Method: binary logarithm bit by bit (squaring the mantissa), and its inverse as a product of the constants 2^(-1/2),
//! 2^(-1/4), ...; both textbook. Relative error below one millionth. Tests: at the end of this file.

/// Fraction bits of a logarithm.
pub(crate) const BITS: u32 = 24;

/// 2^(-1/2), 2^(-1/4), ..., 2^(-2^-24), in units of 2^-63.
const ROOTS: [u64; BITS as usize] = [
    0x5a82_7999_fcef_3242,
    0x6ba2_7e65_6b4e_b57a,
    0x7560_6373_ee92_1c97,
    0x7a92_be8a_9243_6616,
    0x7d41_d96d_b915_019d,
    0x7e9f_0606_7a43_60ba,
    0x7f4f_08ae_3dc7_c426,
    0x7fa7_65ac_a88f_6453,
    0x7fd3_ab29_0e46_d769,
    0x7fe9_d3a8_e07b_f086,
    0x7ff4_e959_7bed_93ab,
    0x7ffa_748d_ff8d_c61f,
    0x7ffd_3a3f_5002_0332,
    0x7ffe_9d1d_bc0a_75aa,
    0x7fff_4e8e_6306_ed59,
    0x7fff_a747_12c3_cdfd,
    0x7fff_d3a3_81b1_fa29,
    0x7fff_e9d1_beed_018a,
    0x7fff_f4e8_defb_81d7,
    0x7fff_fa74_6f5f_012f,
    0x7fff_fd3a_37a7_d0a8,
    0x7fff_fe9d_1bd1_fc58,
    0x7fff_ff4e_8de8_832d,
    0x7fff_ffa7_46f4_22d7,
];

/// What [`falling_power`] gives for a ratio of 1.
pub(crate) const UNIT: u64 = 1 << 62;

/// Binary logarithm of `x` in units of 2^-24; that of 0 is taken to be that of 1.
pub(crate) fn log2(x: u64) -> u64 {
    let x = x.max(1);
    let whole = x.ilog2();
    // The mantissa in [1, 2), in units of 2^-63.
    let mut mantissa = x << 63_u32.saturating_sub(whole);
    let mut log = u64::from(whole);
    for _ in 0..BITS {
        // The upper half of the square, in [1, 4) and units of 2^-62: 2 and more has the top bit.
        let square = upper(mantissa, mantissa);
        let carry = square >> 63;
        mantissa = if carry == 1 { square } else { square << 1 };
        log = (log << 1) | carry;
    }
    log
}

/// Binary logarithm of `x` in thousandths, rounded down; that of 0 is taken to be that of 1.
pub(crate) fn log2_milli(x: u64) -> u64 {
    log2(x).saturating_mul(1000) >> BITS
}

/// `x * 2^(milli / 1000)`, rounded down; the largest number for what is larger.
pub(crate) fn times_exp2(x: u64, milli: i64) -> u64 {
    // Up to the next whole power, and down from there.
    let whole = milli.div_euclid(1000).saturating_add(1);
    let down = u32::try_from(1000_i64.saturating_sub(milli.rem_euclid(1000))).unwrap_or_default();
    let product = u128::from(x).saturating_mul(falling_power(2, 1, down).into());
    let by = |bits: i64| u32::try_from(bits).unwrap_or(u32::MAX);
    let bits = whole.saturating_sub(UNIT.ilog2().into());
    let scaled = if bits > 0 {
        product.saturating_mul(1_u128.checked_shl(by(bits)).unwrap_or(u128::MAX))
    } else {
        product.checked_shr(by(bits.saturating_neg())).unwrap_or_default()
    };
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// From `low` to `high` by `share` of `whole`, rounded down; `low` where there is no whole.
pub(crate) fn between(low: i64, high: i64, share: u32, whole: u32) -> i64 {
    let rise = high.saturating_sub(low).saturating_mul(share.into());
    low.saturating_add(rise.checked_div_euclid(whole.into()).unwrap_or_default())
}

/// `(x / one)^(-milli / 1000)` in units of [`UNIT`], for `x >= one`; [`UNIT`] for less. Never 0.
pub(crate) fn falling_power(x: u64, one: u64, milli: u32) -> u64 {
    let log = log2(x).saturating_sub(log2(one));
    // A logarithm has 30 bits, so the product fits.
    let exponent = log.saturating_mul(milli.into()) / 1000;
    let whole = u32::try_from(exponent >> BITS).unwrap_or(u32::MAX);
    let mut value = UNIT;
    for (bit, &root) in (1..=BITS).zip(&ROOTS) {
        if (exponent >> BITS.saturating_sub(bit)) & 1 == 1 {
            value = upper(value, root << 1);
        }
    }
    value.checked_shr(whole).unwrap_or_default().max(1)
}

/// `a * b / 2^64`, rounded down: one machine instruction, so the product is not a saturating one (it cannot overflow).
fn upper(a: u64, b: u64) -> u64 {
    let product = u128::from(a).wrapping_mul(u128::from(b));
    u64::try_from(product >> 64).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[allow(clippy::cast_precision_loss)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_and_powers_agree_with_floats() {
        for x in [1_u64, 2, 3, 7, 10, 1000, 12_345_678_901, u64::MAX] {
            let got = log2(x) as f64 / f64::from(1 << BITS);
            assert!((got - (x as f64).log2()).abs() < 1e-6, "log2({x}) = {got}");
            let milli = log2_milli(x) as f64;
            assert!((0.0..1.001).contains(&((x as f64).log2() * 1000.0 - milli)), "log2({x}) is {milli} thousandths");
            for milli in [-9999_i64, -1000, -1, 0, 1, 500, 999, 1000, 12_345, 60_001, 63_500, 90_000] {
                let got = times_exp2(x, milli) as f64;
                let want = ((x as f64) * (milli as f64 / 1000.0).exp2()).min(u64::MAX as f64);
                assert!((got - want).abs() < 1.0 + want * 2e-6, "{x} * 2^{milli}: {got} for {want}");
            }
            for milli in [0_u32, 200, 300, 500, 1000, 1500] {
                let got = falling_power(x, 1, milli) as f64 / UNIT as f64;
                let want = (x as f64).powf(-f64::from(milli) / 1000.0);
                assert!((got / want - 1.0).abs() < 2e-6 || want < 1e-12, "{x}^-{milli}: {got} for {want}");
            }
        }
    }

    #[test]
    fn shares_go_either_way_and_are_rounded_down() {
        for (low, high, share, whole, want) in
            [(0, 10, 1, 4, 2), (10, 0, 1, 4, 7), (-5, 5, 1, 2, 0), (3, 9, 0, 7, 3), (3, 9, 7, 7, 9), (3, 9, 1, 0, 3)]
        {
            assert_eq!(between(low, high, share, whole), want, "{low} {high} {share}/{whole}");
        }
        assert_eq!(
            (times_exp2(1, i64::MAX), times_exp2(u64::MAX, i64::MIN), times_exp2(0, i64::MAX)),
            (u64::MAX, 0, 0)
        );
    }

    #[test]
    fn less_than_one_counts_as_one() {
        assert_eq!(falling_power(5, 10, 300), UNIT);
        assert_eq!(falling_power(0, 0, 300), UNIT);
    }
}
