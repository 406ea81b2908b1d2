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
            for milli in [0_u32, 200, 300, 500, 1000, 1500] {
                let got = falling_power(x, 1, milli) as f64 / UNIT as f64;
                let want = (x as f64).powf(-f64::from(milli) / 1000.0);
                assert!((got / want - 1.0).abs() < 2e-6 || want < 1e-12, "{x}^-{milli}: {got} for {want}");
            }
        }
    }

    #[test]
    fn less_than_one_counts_as_one() {
        assert_eq!(falling_power(5, 10, 300), UNIT);
        assert_eq!(falling_power(0, 0, 300), UNIT);
    }
}
