//! Scores as the bytes that order the members of a sorted set.

use crate::packed::Malformed;

const SIGN: u64 = 1 << 63;
const NEGATIVE_ZERO: u8 = 1;

/// 8 bytes, big-endian, that are ordered as scores are: 0 and -0 are equal.
pub(crate) fn image(score: f64) -> [u8; 8] {
    let bits = (score + 0.0).to_bits();
    let image = if bits & SIGN == 0 { bits | SIGN } else { !bits };
    image.to_be_bytes()
}

/// The value of a member with this score: the bytes, and how many of them count.
pub(crate) fn value_of(score: f64) -> ([u8; 9], usize) {
    let mut value = [NEGATIVE_ZERO; 9];
    value[..8].copy_from_slice(&image(score));
    let is_negative_zero = score == 0.0 && score.is_sign_negative();
    (value, if is_negative_zero { 9 } else { 8 })
}

/// The score in the value of a member.
///
/// # Errors
/// When it is malformed.
pub(crate) fn score_in(value: &[u8]) -> Result<f64, Malformed> {
    let (image, rest) = value.split_first_chunk::<8>().ok_or(NO_SCORE)?;
    let image = u64::from_be_bytes(*image);
    let score = f64::from_bits(if image & SIGN == 0 { !image } else { image & !SIGN });
    match rest {
        [] if !score.is_nan() => Ok(score),
        [NEGATIVE_ZERO] if score == 0.0 => Ok(-0.0),
        _ => Err(NO_SCORE),
    }
}

const NO_SCORE: Malformed = Malformed { at: 0, why: "a score is not the image of a number" };
