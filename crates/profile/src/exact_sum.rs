//! The exact sum of floats, in any order.
//!
//! The sum is a number of fixed point with enough bits for every float, as a list of 32-bit digits. So it does not
//! depend on the order of the values, nor on the number of threads.

/// The digits: 2098 bits of all finite floats, and 64 bits for the carry of 2^64 of them.
const DIGITS: usize = 70;

/// The position of the bit of value 1. It is that of the smallest float, 2^-1074.
const LOWEST: i32 = -1074;

/// After this many additions, carries are moved on.
const MAX_PENDING: u32 = 1 << 29;

/// A sum of floats.
#[derive(Clone, Debug)]
pub(crate) struct ExactSum {
    digits: [i64; DIGITS],
    pending: u32,
}

impl Default for ExactSum {
    fn default() -> Self {
        Self {
            digits: [0; DIGITS],
            pending: 0,
        }
    }
}

impl ExactSum {
    /// Adds a number, which must be finite.
    pub(crate) fn add(&mut self, value: f64) {
        let bits = value.to_bits();
        let exponent = usize::try_from((bits >> 52) & 0x7ff).unwrap_or(0);
        let fraction = bits & ((1 << 52) - 1);
        // Numbers of exponent 0 have no leading 1, and the scale of exponent 1.
        let (mantissa, shift) = match exponent {
            0 => (fraction, 0),
            _ => (fraction | 1 << 52, exponent - 1),
        };
        let wide = u128::from(mantissa) << (shift % 32);
        let first = shift / 32;
        let digits = self.digits.iter_mut().skip(first);
        for (digit, part) in digits.zip([0, 32, 64].map(|at| (wide >> at) & 0xffff_ffff)) {
            let part = i64::try_from(part).unwrap_or(0);
            *digit += if value.is_sign_negative() {
                -part
            } else {
                part
            };
        }
        self.pending += 1;
        if self.pending >= MAX_PENDING {
            self.carry();
        }
    }

    /// Adds another sum.
    pub(crate) fn merge(&mut self, other: &Self) {
        let mut other = other.clone();
        other.carry();
        self.carry();
        for (digit, add) in self.digits.iter_mut().zip(other.digits) {
            *digit += add;
        }
        self.pending += 1;
    }

    /// Makes every digit but the last one lie between 0 and 2^32.
    fn carry(&mut self) {
        let mut carry = 0;
        let last = DIGITS - 1;
        for (at, digit) in self.digits.iter_mut().enumerate() {
            *digit += carry;
            if at < last {
                carry = *digit >> 32;
                *digit &= 0xffff_ffff;
            }
        }
        self.pending = 0;
    }

    /// Returns the sum divided by a count, which must not be 0.
    #[expect(clippy::cast_precision_loss, reason = "a mean is rounded")]
    pub(crate) fn mean(&self, count: u64) -> f64 {
        let mut sum = self.clone();
        sum.carry();
        let is_negative = sum.digits.last().is_some_and(|digit| *digit < 0);
        if is_negative {
            for digit in &mut sum.digits {
                *digit = -*digit;
            }
            sum.carry();
        }
        let Some(top) = sum.digits.iter().rposition(|digit| *digit != 0) else {
            return 0.0;
        };
        let from = top.saturating_sub(2);
        let wide = sum.digits.iter().skip(from).take(3).rev();
        let mut wide = wide.fold(0_u128, |wide, digit| {
            wide << 32 | u128::from(digit.unsigned_abs())
        });
        // What lies below decides how a tie is rounded.
        if sum.digits.iter().take(from).any(|digit| *digit != 0) {
            wide |= 1;
        }
        let power = LOWEST + i32::try_from(from * 32).unwrap_or(0);
        let mean = wide as f64 / count as f64;
        // In two steps, because a power alone can lie outside the range of floats.
        let half = power / 2;
        let mean = mean * 2.0_f64.powi(half) * 2.0_f64.powi(power - half);
        if is_negative { -mean } else { mean }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(values: &[f64]) -> f64 {
        let mut sum = ExactSum::default();
        for value in values {
            sum.add(*value);
        }
        sum.mean(values.len() as u64)
    }

    #[test]
    fn mean_is_exact() {
        for (values, expected) in [
            (vec![1.0, 2.0, 3.0, 4.0], 2.5),
            (vec![0.0, -0.0], 0.0),
            (vec![1e300, 1.0, -1e300], 1.0 / 3.0),
            (vec![f64::MAX, f64::MAX], f64::MAX),
            (vec![f64::MIN, f64::MIN], f64::MIN),
            (vec![f64::MAX, -f64::MAX], 0.0),
            (vec![5e-324], 5e-324),
            (vec![-5e-324], -5e-324),
            (vec![-0.5, -0.25], -0.375),
            (vec![f64::MIN_POSITIVE], f64::MIN_POSITIVE),
            (vec![0.1; 10], 0.1),
        ] {
            assert_eq!(mean(&values), expected, "{values:?}");
        }
    }

    #[test]
    fn mean_does_not_depend_on_order() {
        let values: Vec<f64> = (0..10_000)
            .map(|n| f64::from(n).sin() * 10.0_f64.powi(n % 40 - 20))
            .collect();
        let whole = mean(&values);
        let mut reversed = values.clone();
        reversed.reverse();
        assert_eq!(mean(&reversed), whole);
        let mut sums = [ExactSum::default(), ExactSum::default()];
        for (at, value) in values.iter().enumerate() {
            sums[at % 2].add(*value);
        }
        let [mut a, b] = sums;
        a.merge(&b);
        assert_eq!(a.mean(10_000), whole);
    }
}
