//! Threads for answers that take time. There is a bound on their number and on what waits for them.

use super::handler::Work;
use super::response::{Response, Status};
use mio::Waker;
use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Work that waits for a thread. A page asks for one thing at a time.
const QUEUED_MAX: usize = 32;

/// See the module. When it is dropped, the threads end after the work that was begun.
pub struct Background {
    queue: Option<SyncSender<(usize, Work)>>,
    done: Receiver<(usize, Response)>,
    threads: Vec<JoinHandle<()>>,
}

impl Background {
    /// With this many threads, which wake the poll of `waker` when a response is there.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn start(count: usize, waker: &Arc<Waker>) -> io::Result<Self> {
        let (queue, works) = sync_channel(QUEUED_MAX);
        let (sender, done) = channel();
        let works = Arc::new(Mutex::new(works));
        let mut all = Self { queue: Some(queue), done, threads: Vec::new() };
        for number in 0..count {
            let (works, sender, waker) = (Arc::clone(&works), sender.clone(), Arc::clone(waker));
            let thread = std::thread::Builder::new().name(format!("duramen-console-{number}"));
            all.threads.push(thread.spawn(move || run(&works, &sender, &waker))?);
        }
        Ok(all)
    }

    /// Has work done for this connection; false when too much waits already.
    pub fn begin(&self, connection: usize, work: Work) -> bool {
        self.queue.as_ref().is_some_and(|queue| queue.try_send((connection, work)).is_ok())
    }

    /// A response that is there, and its connection.
    pub fn done(&self) -> Option<(usize, Response)> {
        self.done.try_recv().ok()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.queue = None;
        for thread in self.threads.drain(..) {
            // Panics of work are caught.
            let _ = thread.join();
        }
    }
}

fn run(works: &Mutex<Receiver<(usize, Work)>>, done: &Sender<(usize, Response)>, waker: &Waker) {
    loop {
        let next = works.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((connection, work)) = next else { return };
        let response = std::panic::catch_unwind(AssertUnwindSafe(work));
        // A panic has been logged.
        let response = response.unwrap_or_else(|_| Response::of(Status::Failed));
        if done.send((connection, response)).is_err() || waker.wake().is_err() {
            return;
        }
    }
}
