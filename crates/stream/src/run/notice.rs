//! What the person who runs a job should know while it goes on: a server that is waited for, a peer that was cut off.
//! The program says where that is shown; without it nothing is.

use std::sync::OnceLock;

type Show = Box<dyn Fn(&str) + Send + Sync>;

static SHOW: OnceLock<Show> = OnceLock::new();

/// From now on notices of all jobs of this process are given to `show`. Only the first call counts.
pub fn show_notices(show: impl Fn(&str) + Send + Sync + 'static) {
    // One that is there already stays.
    let _ = SHOW.set(Box::new(show));
}

/// Gives a notice.
pub(super) fn notice(text: &str) {
    if let Some(show) = SHOW.get() {
        show(text);
    }
}
