//! A stack for syntax trees. The library's trees are as deep as a chain of operators is long, and are walked and
//! dropped recursively. This code runs on its own stack, because the caller's may be too small.

use crate::error::{Error, Result};

/// A tree of `STATEMENT_TOKENS_MAX` tokens is at most half as deep. Bytes for one level: an unoptimised build needs
/// more than 2 KiB. Pages that no tree reaches are never allocated.
const LEVEL_BYTES: usize = if cfg!(debug_assertions) { 8 << 10 } else { 2 << 10 };
const STACK_BYTES: usize = super::tokens::STATEMENT_TOKENS_MAX / 2 * LEVEL_BYTES;

/// Runs a function on a stack that is large enough for any tree of the parser.
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
            // If no thread starts, the function would be dropped here with the tree, so it is leaked instead.
            let tree = std::mem::ManuallyDrop::new(tree);
            let _ = on_deep_stack(move || drop(std::mem::ManuallyDrop::into_inner(tree)));
        }
    }
}
