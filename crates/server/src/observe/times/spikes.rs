//! LATENCY: when events took longer than `latency-monitor-threshold`.

use crate::clients::unix_seconds;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

// As in Redis: samples of an event, at most one per second.
const SAMPLES_MAX: usize = 160;

/// The record of an event.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// Unix seconds and milliseconds; the last one last.
    pub samples: VecDeque<(u64, u64)>,
    /// The most milliseconds since the last reset.
    pub millis_max: u64,
}

/// See the module.
#[derive(Default)]
pub struct Spikes(Mutex<BTreeMap<&'static str, Series>>);

impl Spikes {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, Series>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An event took so long just now.
    pub fn add(&self, event: &'static str, millis: u64) {
        self.lock().entry(event).or_default().add(unix_seconds(), millis);
    }

    /// All events.
    pub fn all(&self) -> BTreeMap<&'static str, Series> {
        self.lock().clone()
    }

    /// One event.
    pub fn of(&self, event: &[u8]) -> Option<Series> {
        let event = std::str::from_utf8(event).ok()?;
        self.lock().get(event).cloned()
    }

    /// Forgets an event; whether there was one.
    pub fn reset(&self, event: &[u8]) -> bool {
        std::str::from_utf8(event).is_ok_and(|event| self.lock().remove(event).is_some())
    }

    /// Forgets all; how many there were.
    pub fn reset_all(&self) -> usize {
        std::mem::take(&mut *self.lock()).len()
    }
}

impl Series {
    fn add(&mut self, now: u64, millis: u64) {
        self.millis_max = self.millis_max.max(millis);
        match self.samples.back_mut() {
            Some((at, before)) if *at == now => *before = millis.max(*before),
            _ => {
                self.samples.push_back((now, millis));
                if self.samples.len() > SAMPLES_MAX {
                    self.samples.pop_front();
                }
            }
        }
    }

    /// The average, and how far from it samples are on average.
    pub fn average(&self) -> (u64, u64) {
        let count = self.samples.len().max(1) as u64;
        let average = self.samples.iter().map(|(_, millis)| millis).sum::<u64>() / count;
        let apart = self.samples.iter().map(|(_, millis)| millis.abs_diff(average)).sum::<u64>() / count;
        (average, apart)
    }

    /// Seconds from one to the next, on average.
    pub fn period(&self, now: u64) -> f64 {
        let first = self.samples.iter().map(|(at, _)| *at).min().unwrap_or(now);
        now.saturating_sub(first).max(1) as f64 / self.samples.len().max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_one_sample_the_longest() {
        let mut series = Series::default();
        for (at, millis) in [(5, 10), (5, 30), (5, 20), (7, 5)] {
            series.add(at, millis);
        }
        assert_eq!(series.samples, [(5, 30), (7, 5)]);
        assert_eq!((series.millis_max, series.average()), (30, (17, 12)));
        assert!((series.period(9) - 2.0).abs() < 1e-9);
        for at in 10..300 {
            series.add(at, 1);
        }
        assert_eq!((series.samples.len(), series.samples[0].0, series.millis_max), (160, 140, 30));
    }

    #[test]
    fn a_reset_clears_the_samples() {
        let spikes = Spikes::default();
        spikes.add("command", 3);
        spikes.add("fast-command", 4);
        assert!(spikes.of(b"command").is_some() && spikes.of(b"COMMAND").is_none());
        assert!(spikes.reset(b"command") && !spikes.reset(b"command"));
        assert_eq!((spikes.reset_all(), spikes.all().len()), (1, 0));
    }
}
