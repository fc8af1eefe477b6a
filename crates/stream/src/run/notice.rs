//! Notices for the person who runs a job: it waits for a server, a peer was cut off. The program sets where they are
//! shown; without that they are dropped.

use std::sync::OnceLock;

type Show = Box<dyn Fn(&str) + Send + Sync>;

static SHOW: OnceLock<Show> = OnceLock::new();

/// Passes the notices of all jobs of this process to `show` from now on. Only the first call has an effect.
pub fn show_notices(show: impl Fn(&str) + Send + Sync + 'static) {
    // An earlier one stays.
    let _ = SHOW.set(Box::new(show));
}

/// Sends a notice.
pub fn notice(text: &str) {
    if let Some(show) = SHOW.get() {
        show(text);
    }
}
