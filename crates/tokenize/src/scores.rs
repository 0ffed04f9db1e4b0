//! The scores of a Unigram model, as the Python package reads them.

use serde::Deserialize;
use tokenizers::models::unigram::Unigram;

/// What a Unigram model consists of.
#[derive(Deserialize)]
struct Parts {
    vocab: Vec<(String, f64)>,
    unk_id: Option<usize>,
    #[serde(default)]
    byte_fallback: bool,
}

/// Returns the model with the scores that the Python package has.
///
/// COMPAT: the package reads numbers without the feature `float_roundtrip` of `serde_json`, so the last bit of a score may
/// be wrong. That bit decides between divisions of a word whose scores are equal, such as `0 00` and `00 0`.
pub(crate) fn as_in_package(model: &Unigram) -> Result<Unigram, tokenizers::Error> {
    let parts: Parts = serde_json::from_value(serde_json::to_value(model)?)?;
    let vocab = parts.vocab.into_iter();
    let vocab = vocab.map(|(piece, score)| (piece, imprecise(score)));
    Unigram::from(vocab.collect(), parts.unk_id, parts.byte_fallback)
}

/// Returns the result of reading the shortest decimal form of a number without rounding correctly: its digits as a
/// float, multiplied or divided by a power of ten.
fn imprecise(exact: f64) -> f64 {
    let text = format!("{:e}", exact.abs());
    let parsed = text.split_once('e').and_then(|(digits, exponent)| {
        let exponent: i32 = exponent.parse().ok()?;
        let fraction = digits.split_once('.').map_or(0, |(_, rest)| rest.len());
        let significand: u64 = digits.replace('.', "").parse().ok()?;
        Some((significand, exponent - i32::try_from(fraction).ok()?))
    });
    // Numbers that are not finite have no digits. They cannot come from JSON.
    let Some((significand, mut exponent)) = parsed else {
        return exact;
    };
    #[expect(
        clippy::cast_precision_loss,
        reason = "this is the rounding to reproduce"
    )]
    let mut value = significand as f64;
    while exponent < -308 {
        value /= 1e308;
        exponent += 308;
    }
    let power = power_of_ten(exponent.unsigned_abs());
    let value = match exponent >= 0 {
        true => value * power,
        false => value / power,
    };
    value.copysign(exact)
}

/// Returns the float closest to a power of ten.
fn power_of_ten(exponent: u32) -> f64 {
    format!("1e{exponent}").parse().unwrap_or(f64::INFINITY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_beyond_53_bits_are_rounded_twice() {
        for same in [0.0, -0.0, 1.0, -3.5, -2.25e-8, 1e300, 5e-324] {
            assert_eq!(imprecise(same).to_bits(), f64::to_bits(same), "{same}");
        }
        // 17 digits, whose float is already rounded.
        let exact = -9.007199254740993e0;
        assert_eq!(imprecise(exact), -(9_007_199_254_740_993_u64 as f64 / 1e15));
        let differ = (0..1000).filter(|step| {
            let exact = -1.0 - f64::from(*step) / 7.0;
            imprecise(exact) != exact
        });
        assert!((1..700).contains(&differ.count()));
    }
}
