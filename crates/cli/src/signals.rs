//! SIGINT and SIGTERM, for commands that end in good order.

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag::{register, register_conditional_default};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether an interrupt or a stop request has arrived. The second one ends the process at once.
#[derive(Clone)]
pub struct Signals(Arc<AtomicBool>);

impl Signals {
    pub fn watch() -> std::io::Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            register_conditional_default(signal, flag.clone())?;
            register(signal, flag.clone())?;
        }
        Ok(Self(flag))
    }

    pub fn stop(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// The flag itself, which is set by a signal.
    #[cfg(feature = "sql")]
    pub fn flag(&self) -> &AtomicBool {
        &self.0
    }
}
