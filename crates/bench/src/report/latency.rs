//! Latency of one operation: selected percentiles to read, and the whole histogram so that runs can be merged.

use crate::report::{Error, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use serde::{Deserialize, Serialize};

/// The selected percentiles.
pub(crate) const PERCENTILES: [f64; 5] = [50.0, 90.0, 99.0, 99.9, 99.99];

/// Latency of one operation, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latency {
    /// Operations counted.
    pub count: u64,
    /// Their mean.
    pub mean: f64,
    /// The fastest.
    pub min: u64,
    /// The slowest.
    pub max: u64,
    /// 50, 90, 99, 99.9 and 99.99.
    pub percentiles: Vec<Percentile>,
    /// The whole distribution: an HdrHistogram of nanoseconds in its compressed V2 form, base64.
    pub histogram: String,
}

/// One percentile: that share of operations took at most so long.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Percentile {
    /// Above 0, up to 100.
    pub percent: f64,
    /// Nanoseconds.
    pub ns: u64,
}

impl Latency {
    /// From a histogram of nanoseconds; `None` when it is empty.
    ///
    /// # Errors
    /// When the histogram cannot be encoded: its range is wider than its format can express.
    pub fn from_histogram(histogram: &Histogram<u64>) -> Result<Option<Self>> {
        if histogram.is_empty() {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        V2DeflateSerializer::new()
            .serialize(histogram, &mut bytes)
            .map_err(|error| Error::new(format!("cannot encode a latency histogram: {error}")))?;
        let percentiles = PERCENTILES
            .iter()
            .map(|&percent| Percentile { percent, ns: histogram.value_at_percentile(percent) })
            .collect();
        Ok(Some(Self {
            count: histogram.len(),
            mean: histogram.mean(),
            min: histogram.min(),
            max: histogram.max(),
            percentiles,
            histogram: STANDARD.encode(&bytes),
        }))
    }

    /// The histogram itself, to merge it with others or to read any percentile.
    ///
    /// # Errors
    /// When the text was not written by [`from_histogram`](Self::from_histogram).
    pub fn to_histogram(&self) -> Result<Histogram<u64>> {
        let wanted = "wanted an HdrHistogram in compressed V2 form as base64; measure again";
        let bytes = STANDARD
            .decode(&self.histogram)
            .map_err(|error| Error::new(format!("a latency histogram is not base64 ({error}), {wanted}")))?;
        Deserializer::new()
            .deserialize(&mut bytes.as_slice())
            .map_err(|error| Error::new(format!("a latency histogram cannot be decoded ({error}), {wanted}")))
    }

    /// The time that `percent` of the operations did not exceed, if it was kept.
    pub fn percentile(&self, percent: f64) -> Option<u64> {
        let found = self.percentiles.iter().find(|p| (p.percent - percent).abs() < 1e-9)?;
        Some(found.ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_reads_back_and_merges() {
        let mut histogram = Histogram::new(3).unwrap();
        for value in 1..=10_000 {
            histogram.record(value * 7).unwrap();
        }
        let latency = Latency::from_histogram(&histogram).unwrap().unwrap();
        assert_eq!(latency.count, 10_000);
        assert_eq!(latency.percentile(50.0), Some(histogram.value_at_percentile(50.0)));
        let mut back = latency.to_histogram().unwrap();
        assert_eq!(back, histogram);
        back.add(&histogram).unwrap();
        assert_eq!(back.len(), 20_000);
    }

    #[test]
    fn an_empty_histogram_is_no_latency() {
        assert_eq!(Latency::from_histogram(&Histogram::new(3).unwrap()).unwrap(), None);
    }

    #[test]
    fn damaged_text_is_refused() {
        let mut histogram = Histogram::new(3).unwrap();
        histogram.record(5).unwrap();
        let latency = Latency::from_histogram(&histogram).unwrap().unwrap();
        for text in ["", "!", "AAAA", &latency.histogram[..latency.histogram.len() / 2]] {
            let damaged = Latency { histogram: text.to_owned(), ..latency.clone() };
            assert!(damaged.to_histogram().is_err(), "{text}");
        }
    }
}
