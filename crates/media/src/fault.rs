//! The last words of a process that touches a page of a medium which it cannot have.
//!
//! A load or store of a mapped page raises SIGBUS when the file was truncated under the process, when the device
//! reports an error for the page, or when a sparse file system is full. The load cannot be completed, so the process
//! ends, with or without this module. With it, the process first prints the file and the offset.
//!
//! Invariants:
//!
//! 1. The handler calls only async-signal-safe functions (`write`, `open`, `close`, `signal`, `raise`, `pause`),
//!    allocates nothing, and reads only statics of atomics, because it may interrupt the thread anywhere. (No line can
//!    check it: it is about the functions that are called. An assertion in the handler would break it, since a panic
//!    allocates. So nothing of 3 and 4 is asserted either.)
//! 2. A slot of `PLACES` is found by its addresses, which are stored last when it is taken and zeroed first when it is
//!    released.
//! 3. One thread prints. Others that fault meanwhile wait for the end, so that none ends the process before. (See 1.)
//! 4. Afterwards the handler restores the signal's default action and returns. The access is tried again, and ends the
//!    process with the usual signal and core dump. (See 1.
//!    `a_server_whose_file_is_truncated_names_it_before_it_ends` checks 2 to 4.)

use std::ffi::{c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Once;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64};

/// Media that are open at a time and have names; a process has one or two.
const PLACES_COUNT: usize = 32;
/// Of a longer path, only the end is printed.
const PATH_BYTES_MAX: usize = 256;
/// The two texts, two paths and two numbers fit.
const TEXT_BYTES_MAX: usize = 2048;

struct Place {
    taken: AtomicBool,
    from: AtomicU64,
    to: AtomicU64,
    path: Text,
}

/// A path, to be read by a handler.
struct Text([AtomicU8; PATH_BYTES_MAX]);

impl Text {
    const fn new() -> Self {
        Self([const { AtomicU8::new(0) }; PATH_BYTES_MAX])
    }

    /// The bytes, or the last of them; the rest is zeros.
    fn set(&self, bytes: &[u8]) {
        let kept = &bytes[bytes.len().saturating_sub(PATH_BYTES_MAX - 1)..];
        for (at, byte) in self.0.iter().enumerate() {
            byte.store(kept.get(at).copied().unwrap_or(0), Relaxed);
        }
    }

    fn read(&self) -> ([u8; PATH_BYTES_MAX], usize) {
        let bytes = std::array::from_fn(|at| self.0[at].load(Relaxed));
        let len = bytes.iter().position(|byte| *byte == 0).unwrap_or(PATH_BYTES_MAX);
        (bytes, len)
    }
}

static PLACES: [Place; PLACES_COUNT] = [const {
    Place { taken: AtomicBool::new(false), from: AtomicU64::new(0), to: AtomicU64::new(0), path: Text::new() }
}; PLACES_COUNT];
static LOG: Text = Text::new();
static REPORTING: AtomicBool = AtomicBool::new(false);

/// The name of a range of addresses, until it is dropped.
#[derive(Debug)]
pub(crate) struct Named(Option<usize>);

impl Named {
    /// Where there are too many media, this one has no name.
    pub(crate) fn new(base: u64, bytes: u64, path: &Path) -> Self {
        let take = |place: &Place| place.taken.compare_exchange(false, true, Acquire, Relaxed).is_ok();
        let Some(at) = PLACES.iter().position(take) else { return Self(None) };
        let place = &PLACES[at];
        assert_eq!(place.to.load(Relaxed), 0, "a slot that was free is found by no address (invariant 2)");
        place.path.set(path.as_os_str().as_bytes());
        place.from.store(base, Relaxed);
        // Release: pairs with the Acquire in the handler, which sees path and start once it sees the end.
        place.to.store(base + bytes, Release);
        Self(Some(at))
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        let Some(at) = self.0 else { return };
        debug_assert!(PLACES[at].taken.load(Relaxed), "a slot is released once (invariant 2)");
        PLACES[at].to.store(0, Release);
        PLACES[at].from.store(0, Relaxed);
        PLACES[at].taken.store(false, Release);
    }
}

/// From now on, before SIGBUS ends the process, prints the page and the medium of the failed access to standard error
/// and appends them to the file `log`. For programs, not for libraries: it takes the process's handler.
pub fn report_faults(log: Option<&Path>) {
    LOG.set(log.map_or(&[][..], |log| log.as_os_str().as_bytes()));
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = faulted;
        // SAFETY: all zeros is a valid `sigaction`: no flags, an empty mask.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = handler as usize;
        // On the stack that the standard library gives each thread for its own handler, where there is one.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: the handler has the signature that SA_SIGINFO asks for, and keeps invariant 1.
        let refused = unsafe { libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()) };
        debug_assert_eq!(refused, 0, "SIGBUS can be handled");
    });
}

extern "C" fn faulted(signal: c_int, info: *mut libc::siginfo_t, _context: *mut c_void) {
    if REPORTING.swap(true, Acquire) {
        loop {
            // SAFETY: it waits for a signal, whatever that is (invariant 3).
            unsafe { libc::pause() };
        }
    }
    // SAFETY: the kernel passes a valid one with SA_SIGINFO.
    let info = unsafe { &*info };
    // Sent by somebody: there is no address.
    let is_access = info.si_code > 0;
    if is_access {
        // SAFETY: for SIGBUS of an access the address is set.
        let address = unsafe { info.si_addr() };
        report(address as u64);
    }
    // SAFETY: to set the default action is always allowed (invariant 4).
    unsafe { libc::signal(signal, libc::SIG_DFL) };
    if !is_access {
        // SAFETY: ends the process, as the signal would have done; it is blocked until the handler returns.
        unsafe { libc::raise(signal) };
    }
}

fn report(address: u64) {
    let mut line = Line { bytes: [0; TEXT_BYTES_MAX], len: 0 };
    line.text(b"process ");
    line.number(u64::from(std::process::id()), 10);
    line.text(b" ends with SIGBUS: ");
    // Acquire: pairs with the Release in `Named::new`.
    let within = |place: &&Place| address < place.to.load(Acquire) && address >= place.from.load(Relaxed);
    match PLACES.iter().find(within) {
        Some(place) => {
            let (path, len) = place.path.read();
            line.text(b"the page at offset 0x");
            line.number(address - place.from.load(Relaxed), 16);
            line.text(b" of ");
            line.text(&path[..len]);
            line.text(
                b" could not be accessed: the file was truncated under the process, or the device or the file system reports an error there. \
                  Look at the file's length and at the kernel's log (dmesg); then run \"duramen check --path ",
            );
            line.text(&path[..len]);
            line.text(b"\" before anything is started on it\n");
        }
        None => {
            line.text(b"address 0x");
            line.number(address, 16);
            line.text(b" could not be accessed; it is in no medium\n");
        }
    }
    line.write(libc::STDERR_FILENO);
    let (log, len) = LOG.read();
    if len > 0 {
        // SAFETY: a path that ends with a zero: `Text::set` keeps one byte for it.
        let file = unsafe { libc::open(log.as_ptr().cast(), libc::O_WRONLY | libc::O_APPEND) };
        if file >= 0 {
            line.write(file);
            // SAFETY: it was opened here.
            unsafe { libc::close(file) };
        }
    }
}

/// A line that is formatted without allocating. Text beyond its capacity is cut off.
struct Line {
    bytes: [u8; TEXT_BYTES_MAX],
    len: usize,
}

impl Line {
    fn text(&mut self, text: &[u8]) {
        let room = &mut self.bytes[self.len..];
        let len = text.len().min(room.len());
        room[..len].copy_from_slice(&text[..len]);
        self.len += len;
    }

    fn number(&mut self, mut number: u64, base: u64) {
        let (mut digits, mut at) = ([0; 20], 20);
        loop {
            at -= 1;
            digits[at] = b"0123456789abcdef"[(number % base) as usize];
            number /= base;
            if number == 0 {
                break;
            }
        }
        self.text(&digits[at..]);
    }

    fn write(&self, file: c_int) {
        // SAFETY: the bytes are initialised up to `len`. What cannot be written is lost.
        unsafe { libc::write(file, self.bytes.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_lines_contain_numbers_and_are_truncated_without_room() {
        let mut line = Line { bytes: [0; TEXT_BYTES_MAX], len: 0 };
        line.text(b"at 0x");
        line.number(0x1f00_0a0b, 16);
        line.number(0, 10);
        line.number(u64::MAX, 10);
        assert_eq!(&line.bytes[..line.len], b"at 0x1f000a0b018446744073709551615");
        line.text(&[b'x'; TEXT_BYTES_MAX]);
        assert_eq!((line.len, line.bytes[TEXT_BYTES_MAX - 1]), (TEXT_BYTES_MAX, b'x'));
    }

    #[test]
    fn a_fault_names_the_open_medium_or_the_end_of_a_long_name() {
        let path = format!("/{}end", "x".repeat(400));
        let named = Named::new(1 << 60, 4096, Path::new(&path));
        let at = named.0.unwrap();
        let (bytes, len) = PLACES[at].path.read();
        assert!(len == PATH_BYTES_MAX - 1 && bytes[..len].ends_with(b"xend"));
        assert_eq!(PLACES[at].to.load(Relaxed), (1 << 60) + 4096);
        drop(named);
        assert_ne!(PLACES[at].to.load(Relaxed), (1 << 60) + 4096);
    }
}
