//! How long other threads wait during a batch of many keys, by the clock.
//!
//! `DURAMEN_BATCH_KEYS` and `DURAMEN_BATCH_BYTES` set its size. The part that does not depend on the machine is in the
//! crash driver's `puts_continue_during_a_long_batch`.

use super::contents;
use duramen::{Batch, Durability, IndexKind, MediumKind, Options, Store, Swap};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

fn number(name: &str, otherwise: usize) -> usize {
    std::env::var(name).ok().and_then(|number| number.parse().ok()).unwrap_or(otherwise)
}

/// How long this thread could have run and did not, since the CPU was somebody else's, in nanoseconds.
fn unscheduled(file: &std::fs::File) -> u64 {
    let mut text = [0; 64];
    let bytes = file.read_at(&mut text, 0).unwrap_or(0);
    let text = std::str::from_utf8(&text[..bytes]).unwrap_or("");
    text.split_whitespace().nth(1).and_then(|nanos| nanos.parse().ok()).unwrap_or(0)
}

/// Returns the longest time of a put of another key while `batch` was applied, without the thread's wait for a CPU.
/// Also returns the number of puts, and the time of the batch.
fn beside(store: &Store, batch: &Batch) -> (Duration, u32, Duration) {
    let over = AtomicBool::new(false);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let puts = scope.spawn(|| {
            let mut writer = store.writer().unwrap();
            let (mut worst, mut count) = (Duration::ZERO, 0);
            let schedule = std::fs::File::open("/proc/thread-self/schedstat").unwrap();
            while !over.load(Relaxed) {
                let key = format!("other {}", count % 5000);
                let (begun, elsewhere) = (Instant::now(), unscheduled(&schedule));
                writer.put(key.as_bytes(), b"value").unwrap();
                let elsewhere = Duration::from_nanos(unscheduled(&schedule) - elsewhere);
                worst = worst.max(begun.elapsed().saturating_sub(elsewhere));
                count += 1;
            }
            (worst, count)
        });
        assert_eq!(store.apply(batch).unwrap(), Swap::Done);
        let took = begun.elapsed();
        over.store(true, Relaxed);
        let (worst, count) = puts.join().unwrap();
        (worst, count, took)
    })
}

#[test]
#[ignore = "by the clock: on a machine that has a CPU for each of two threads"]
fn a_put_does_not_wait_for_a_concurrent_large_batch() {
    let (keys, bytes) = (number("DURAMEN_BATCH_KEYS", 50_000), number("DURAMEN_BATCH_BYTES", 64 << 20));
    let mut batch = Batch::new();
    let value = vec![7; bytes / keys];
    for key in 0..keys {
        batch.put(format!("key {key}").as_bytes(), &value);
    }
    for index in [IndexKind::Hash, IndexKind::Ordered] {
        for durability in [Durability::EveryWrite, Durability::Interval(Duration::from_secs(3600))] {
            let options = Options {
                medium: MediumKind::Volatile,
                durability,
                index,
                len_max: 8 * bytes as u64 + (64 << 20),
                ..Options::default()
            };
            let store = options.open("waits").unwrap();
            // Others take the CPU now and then: one round of several in which nobody does is enough.
            let rounds = (0..16)
                .map(|_| beside(&store, &batch))
                .inspect(|round| eprintln!("{index} {durability:?}: {round:?}"));
            let shortest = rounds.map(|(worst, ..)| worst).find(|worst| *worst <= Duration::from_millis(1));
            assert!(
                shortest.is_some(),
                "in each round of {index}, {durability:?}, a put waited for more than 1 ms"
            );
            assert!(contents(&store).len() >= keys);
        }
    }
}
