//! The NUMA nodes from which the kernel takes this thread's new pages.
//!
//! A policy of the thread, not of the mapping: pages of a file on tmpfs are taken when the file grows, before there is
//! a mapping to advise.

use std::io;

/// `MPOL_DEFAULT` and `MPOL_BIND` of linux/mempolicy.h.
const DEFAULT: libc::c_long = 0;
const BIND: libc::c_long = 2;
/// Nodes that a mask here can name; the kernel's own limit is 1024.
pub(crate) const NODES_MAX: usize = 1024;

/// Takes new pages of this thread from `nodes` only.
///
/// # Errors
/// `EINVAL` when a node does not exist or has no memory.
pub(crate) fn bind_to(nodes: &[usize]) -> io::Result<()> {
    let mut mask = [0u64; NODES_MAX / 64];
    for node in nodes {
        match mask.get_mut(node / 64) {
            Some(word) => *word |= 1 << (node % 64),
            None => return Err(io::Error::from_raw_os_error(libc::EINVAL)),
        }
    }
    set(BIND, mask.as_ptr(), NODES_MAX + 1)
}

/// Takes new pages of this thread from the kernel's default nodes.
///
/// # Errors
/// None that Linux documents.
pub(crate) fn reset() -> io::Result<()> {
    set(DEFAULT, std::ptr::null(), 0)
}

fn set(mode: libc::c_long, mask: *const u64, bits: usize) -> io::Result<()> {
    // SAFETY: the kernel reads at most `bits - 1` bits of a mask that has as many, or none of a null one.
    let result = unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, mask, bits) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_can_be_bound_to_the_first_node_and_to_no_missing_one() {
        bind_to(&[0]).unwrap();
        reset().unwrap();
        assert!(bind_to(&[900]).is_err());
        assert!(bind_to(&[NODES_MAX]).is_err());
    }
}
