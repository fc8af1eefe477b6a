//! The rate at which images are formed, opened (recovery included), read completely and compared.

use crate::check;
use crate::oracle::{Allowed, Crash};
use crate::session::Session;
use crate::setup::{Case, Op, Setup, TIME_BEGIN};
use duramen_media::sim::{Log, Rng, SimMedium, Walker};
use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// The sizes measured: bytes of the medium, of an extent, of a value.
const SIZES: [(u64, u32, usize); 4] =
    [(32 << 10, 512, 60), (256 << 10, 4096, 200), (1 << 20, 4096, 1000), (1 << 20, 4096, 100)];

/// CPU time of this thread, independent of other load on the machine.
#[must_use]
pub fn busy() -> Duration {
    on_cpu(ClockId::ThreadCPUTime)
}

/// The same for all threads of this process.
#[must_use]
pub fn all_busy() -> Duration {
    on_cpu(ClockId::ProcessCPUTime)
}

fn on_cpu(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec.cast_unsigned(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// One line for each size and medium.
///
/// # Errors
/// A broken promise, which makes the figures meaningless.
pub fn run() -> Result<Vec<String>, String> {
    let mut lines = Vec::new();
    for name in ["line/every-write", "page/every-write"] {
        for size in SIZES {
            lines.push(one(name, size)?);
        }
    }
    Ok(lines)
}

fn one(name: &str, (len_max, extent_bytes, value_bytes): (u64, u32, usize)) -> Result<String, String> {
    let case = Case::named(name).ok_or("no such case")?;
    // Half full.
    let count = len_max as usize / 2 / (value_bytes + 40);
    let mut rng = Rng::new(1);
    let mut setup = Setup {
        extent_bytes,
        len_max,
        hash_mask: u64::MAX,
        keys: (0..count).map(|key| format!("key{key:06}").into_bytes()).collect(),
        tuning: duramen::tuning::Tuning::default(),
        places: 0,
        ..Setup::new(1, Some(case))
    };
    let put = |key| Op::Put { key, bytes: value_bytes, tag: 0, ttl: None, updatable: false };
    setup.ops = (0..count).map(put).collect();
    setup.ops.extend((0..40).map(|_| put(rng.below(count as u64) as usize)));
    setup.clock.store(TIME_BEGIN, Relaxed);
    let medium = SimMedium::resume(Log::empty(case.model, len_max));
    let kept = medium.clone();
    let empty = Allowed::exactly(vec![None; count]);
    let mut session = Session::open(&setup, medium, 1, empty.clone(), &empty, &mut rng)?;
    session.run(&setup.ops)?;
    let (_, history) = session.power_off();
    let log = kept.take_log();
    let from = history.steps[count].start;
    let (mut images, mut forming, mut opening) = (0u32, Duration::ZERO, Duration::ZERO);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(2) {
        let mut walker = Walker::new(&log);
        walker.advance(from);
        while let Some(position) = walker.next_point() {
            let (allowed, _) = history.allowed(position, position, Crash::Power);
            for choice in walker.choices(&mut rng, 20) {
                let begun = busy();
                let (memory, len) = walker.form(&choice);
                let formed = busy();
                let medium = SimMedium::from_image(case.model, len_max, memory, len);
                drop(check::open_and_look(&setup, &medium, 2, &allowed)?);
                medium.power_off();
                forming += formed.saturating_sub(begun);
                opening += busy().saturating_sub(formed);
                images += 1;
            }
        }
    }
    let each = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(images);
    Ok(format!(
        "{name:16} {:5} KiB, {count:5} keys of {value_bytes:4} bytes: {:6.0} images a second of CPU ({:.1} us to form, {:.1} us to \
         open, read whole and compare)",
        len_max >> 10,
        f64::from(images) / (forming + opening).as_secs_f64(),
        each(forming),
        each(opening)
    ))
}
