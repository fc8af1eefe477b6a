//! A stack for syntax trees. The library's trees are as deep as a chain of operators is long, and are walked and
//! dropped by recursion: what does so runs here, and not on a stack that the caller happens to have.

use crate::error::{Error, Result};

/// A tree of `STATEMENT_TOKENS_MAX` tokens is at most half as deep. Bytes for a level: an unoptimised build takes more
/// than 2 KiB. Pages that no tree reaches are never there.
const LEVEL_BYTES: usize = if cfg!(debug_assertions) { 8 << 10 } else { 2 << 10 };
const STACK_BYTES: usize = super::tokens::STATEMENT_TOKENS_MAX / 2 * LEVEL_BYTES;

/// Runs a function on a stack that holds any tree of the parser's.
pub(crate) fn on_deep_stack<T: Send>(run: impl FnOnce() -> T + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("sql".to_owned()).stack_size(STACK_BYTES);
        let thread = thread.spawn_scoped(scope, run).map_err(|error| {
            Error::evaluation(format!("cannot start a thread with a stack of {STACK_BYTES} bytes: {error}"))
        })?;
        match thread.join() {
            Ok(value) => Ok(value),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// A tree that is kept, and dropped on such a stack.
#[derive(Debug)]
pub(crate) struct Deep<T: Send>(Option<T>);

impl<T: Send> Deep<T> {
    pub(crate) fn new(tree: T) -> Deep<T> {
        Deep(Some(tree))
    }

    pub(crate) fn get(&self) -> Option<&T> {
        self.0.as_ref()
    }
}

impl<T: Send> Drop for Deep<T> {
    fn drop(&mut self) {
        if let Some(tree) = self.0.take() {
            // Without a thread the function is dropped here, with the tree: so it is forgotten first.
            let tree = std::mem::ManuallyDrop::new(tree);
            let _ = on_deep_stack(move || drop(std::mem::ManuallyDrop::into_inner(tree)));
        }
    }
}
