//! SLOWLOG: the last commands that took longer than `slowlog-log-slower-than`.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

// As Redis: arguments and bytes of each that are kept, so that a large command does not fill the log.
const ARGUMENTS_MAX: usize = 32;
const ARGUMENT_BYTES_MAX: usize = 128;

/// A command that took long.
#[derive(Debug)]
pub struct Logged {
    /// Counts up from 0; never used twice.
    pub id: u64,
    /// When it had run, in Unix seconds.
    pub at: u64,
    /// How long it took.
    pub micros: u64,
    /// Its arguments, cut.
    pub args: Vec<Vec<u8>>,
    /// Whose.
    pub address: String,
    /// The client's name.
    pub name: Vec<u8>,
}

/// See the module.
#[derive(Default)]
pub struct SlowLog {
    entries: Mutex<Entries>,
    len_max: AtomicUsize,
}

#[derive(Default)]
struct Entries {
    next_id: u64,
    // The last one first.
    all: VecDeque<Arc<Logged>>,
}

impl SlowLog {
    /// Keeps no more than so many entries from the next one on.
    pub fn limit(&self, len_max: usize) {
        self.len_max.store(len_max, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a command.
    pub fn push(&self, at: u64, micros: u64, args: &[&[u8]], address: String, name: Vec<u8>) {
        let args = cut(args);
        let mut entries = self.lock();
        let id = entries.next_id;
        entries.next_id += 1;
        entries.all.push_front(Arc::new(Logged { id, at, micros, args, address, name }));
        entries.all.truncate(self.len_max.load(Ordering::Relaxed));
    }

    /// The last `count`, the last one first.
    pub fn last(&self, count: usize) -> Vec<Arc<Logged>> {
        self.lock().all.iter().take(count).cloned().collect()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.lock().all.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets all.
    pub fn reset(&self) {
        self.lock().all.clear();
    }
}

fn cut(args: &[&[u8]]) -> Vec<Vec<u8>> {
    let shown = |argument: &&[u8]| match argument.len().checked_sub(ARGUMENT_BYTES_MAX) {
        None | Some(0) => argument.to_vec(),
        Some(more) => {
            [&argument[..ARGUMENT_BYTES_MAX], format!("... ({more} more bytes)").as_bytes()].concat()
        }
    };
    if args.len() <= ARGUMENTS_MAX {
        return args.iter().map(shown).collect();
    }
    let mut cut: Vec<_> = args.iter().take(ARGUMENTS_MAX - 1).map(shown).collect();
    cut.push(format!("... ({} more arguments)", args.len() - cut.len()).into_bytes());
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_come_first_and_no_more_than_the_limit() {
        let log = SlowLog::default();
        log.limit(2);
        for at in 0..3 {
            log.push(at, 7, &[b"GET"], String::new(), Vec::new());
        }
        let ids = |count| log.last(count).iter().map(|entry| entry.id).collect::<Vec<_>>();
        assert_eq!((ids(1), ids(9), log.len()), (vec![2], vec![2, 1], 2));
        log.reset();
        assert!(log.is_empty());
        log.push(0, 7, &[b"GET"], String::new(), Vec::new());
        assert_eq!(ids(9), [3]);
    }

    #[test]
    fn long_arguments_and_many_are_cut() {
        let long = vec![b'x'; 130];
        let many: Vec<&[u8]> = std::iter::repeat_n(&long[..128], 33).collect();
        assert_eq!(cut(&[&long])[0], [&long[..128], b"... (2 more bytes)"].concat());
        assert_eq!(cut(&many[..32]).len(), 32);
        let cut = cut(&many);
        assert_eq!(
            (cut.len(), &cut[30][..], &cut[31][..]),
            (32, &long[..128], &b"... (2 more arguments)"[..])
        );
    }
}
