//! The functions that compiled code calls by address. Each takes and returns words; a text is an address and a length.

use super::machine::{Machine, advance, session, with};
use crate::error::Error;
use crate::function::bounded;
use crate::memory::headroom::caught;
use crate::state::{Table, hash_bytes};
use crate::types::time::Unit;
use crate::types::{PRECISION_MAX, decimal};

/// One of these functions.
#[derive(Debug, Clone, Copy)]
pub struct Callee {
    /// Its name in the code that EXPLAIN CODEGEN shows.
    pub name: &'static str,
    /// Its address.
    pub address: *const u8,
    /// How many words it takes.
    pub params: usize,
    /// Whether it returns a word.
    pub returns: bool,
}

/// Code of errors that compiled code finds itself.
pub const DIVISION_BY_ZERO: i64 = 1;

/// All of them.
pub fn all() -> Vec<Callee> {
    let callee = |name, address: *const u8, params, returns| Callee { name, address, params, returns };
    vec![
        callee("slice", slice as *const u8, 3, true),
        callee("window", window as *const u8, 5, true),
        callee("session", session_ as *const u8, 4, true),
        callee("advance", advance_ as *const u8, 1, true),
        callee("timeless", timeless as *const u8, 1, false),
        callee("grow", grow as *const u8, 2, true),
        callee("spare", spare as *const u8, 2, true),
        callee("spare_filled", spare_filled as *const u8, 2, true),
        callee("touch_entry", touch_entry as *const u8, 3, false),
        callee("touch_link", touch_link as *const u8, 3, false),
        callee("intern", intern as *const u8, 4, true),
        callee("make_room_for_row", make_room_for_row as *const u8, 2, true),
        callee("place_row", place_row as *const u8, 4, true),
        callee("hash_text", hash_text as *const u8, 2, true),
        callee("equal_text", equal_text as *const u8, 4, true),
        callee("compare_text", compare_text as *const u8, 4, true),
        callee("concat", concat as *const u8, 6, true),
        callee("generic", generic as *const u8, 4, true),
        callee("prepared_word", prepared_word as *const u8, 4, true),
        callee("prepared_text", prepared_text as *const u8, 5, true),
        callee("format", format_ as *const u8, 3, false),
        callee("extract", extract as *const u8, 2, true),
        callee("decimal_add", decimal_add as *const u8, 3, false),
        callee("decimal_mean", decimal_mean as *const u8, 5, true),
        callee("deliver", deliver as *const u8, 2, true),
        callee("fail", fail as *const u8, 2, false),
        callee("fmod", fmod as *const u8, 2, true),
    ]
}

/// Runs `run`. Compiled code has no frames to unwind through, so an unwinding becomes an error of the job. `failed` is
/// the result that signals this to code, or lets it continue until the batch ends.
fn failing<R>(machine: *mut Machine, failed: R, run: impl FnOnce() -> R) -> R {
    caught(|| Ok(run())).unwrap_or_else(|error| {
        with(machine, |machine| machine.error = Some(error));
        failed
    })
}

/// As [`failing`], for a function of the machine.
fn guarded<R>(machine: *mut Machine, failed: R, run: impl FnOnce(&mut Machine) -> R) -> R {
    failing(machine, failed, || with(machine, run))
}

/// As [`failing`], for a function of the table at an address: it may need memory that the job cannot have.
fn growing<R>(machine: *mut Machine, table: usize, failed: R, run: impl FnOnce(&mut Table) -> R) -> R {
    failing(machine, failed, || {
        // SAFETY: compiled code passes addresses of tables that it was given and whose windows are open (machine's
        // invariant 1); no other reference to the table is held while compiled code runs (invariant 2).
        run(unsafe { &mut *(table as *mut Table) })
    })
}

fn text<'t>(address: usize, bytes: usize) -> &'t [u8] {
    if bytes == 0 {
        return &[];
    }
    // SAFETY: a text of compiled code lives until the batch's end (machine's invariant 3).
    unsafe { std::slice::from_raw_parts(address as *const u8, bytes) }
}

fn words<'t>(address: usize, count: usize) -> &'t mut [u64] {
    // SAFETY: compiled code passes the address of `count` words on its stack, aligned to 8 bytes.
    unsafe { std::slice::from_raw_parts_mut(address as *mut u64, count) }
}

extern "C" fn slice(machine: *mut Machine, breaker: usize, moment: i64) -> usize {
    guarded(machine, 0, |machine| machine.breakers[breaker].slice(moment))
}

extern "C" fn window(machine: *mut Machine, breaker: usize, side: usize, start: i64, end: i64) -> usize {
    guarded(machine, 0, |machine| machine.breakers[breaker].whole(side, start, end))
}

extern "C" fn session_(machine: *mut Machine, breaker: usize, entry: usize, moment: i64) -> usize {
    failing(machine, 1, || session(machine, breaker, entry, moment))
}

extern "C" fn advance_(machine: *mut Machine) -> i64 {
    failing(machine, 1, || advance(machine))
}

extern "C" fn timeless(machine: *mut Machine) {
    with(machine, |machine| machine.timeless += 1);
}

/// Makes the table larger. Returns nonzero if it failed.
extern "C" fn grow(machine: *mut Machine, table: usize) -> i64 {
    growing(machine, table, 1, |table| {
        table.grow();
        0
    })
}

/// The entry of the key that looks empty; the lowest bit says whether it is new. Zero if it failed.
extern "C" fn spare(machine: *mut Machine, table: usize) -> usize {
    growing(machine, table, 0, |table| {
        let (entry, new) = table.spare();
        entry | usize::from(new)
    })
}

/// The same entry, or zero if it is not filled.
extern "C" fn spare_filled(machine: *mut Machine, table: usize) -> usize {
    growing(machine, table, 0, |table| if table.head.spare_used == 0 { 0 } else { table.spare().0 })
}

extern "C" fn touch_entry(machine: *mut Machine, table: usize, place: usize) {
    growing(machine, table, (), |table| table.touch_entry(place));
}

extern "C" fn touch_link(machine: *mut Machine, table: usize, word: usize) {
    growing(machine, table, (), |table| table.touch_rows(word, 1));
}

/// What [`intern`] returns if it failed.
pub const NO_PLACE: i64 = -1;

/// Stores a text; returns its place, or [`NO_PLACE`].
extern "C" fn intern(machine: *mut Machine, table: usize, at: usize, bytes: usize) -> usize {
    growing(machine, table, NO_PLACE as usize, |table| table.intern(text(at, bytes)))
}

/// Returns nonzero if it failed.
extern "C" fn make_room_for_row(machine: *mut Machine, table: usize) -> i64 {
    growing(machine, table, 1, |table| {
        table.make_room_for_row();
        0
    })
}

/// Puts a row into the free space given, or into a new one if that is zero; the table keeps its texts. Returns the
/// place plus one, or zero if it failed.
extern "C" fn place_row(machine: *mut Machine, table: usize, row: usize, free: u64) -> u64 {
    growing(machine, table, 0, |table| {
        let row = words(row, table.layout().row);
        for at in 0..table.layout().row_texts.len() {
            let word = table.layout().row_texts[at];
            row[word] = table.intern(text(row[word] as usize, row[word + 1] as usize)) as u64;
        }
        if free == 0 { table.append(row, 0) } else { table.replace(row, free) }
    })
}

extern "C" fn hash_text(at: usize, bytes: usize) -> u64 {
    hash_bytes(text(at, bytes))
}

extern "C" fn equal_text(a: usize, a_bytes: usize, b: usize, b_bytes: usize) -> i64 {
    i64::from(text(a, a_bytes) == text(b, b_bytes))
}

extern "C" fn compare_text(a: usize, a_bytes: usize, b: usize, b_bytes: usize) -> i64 {
    text(a, a_bytes).cmp(text(b, b_bytes)) as i64
}

/// Concatenates two texts; returns the address, or zero if the result is too long.
extern "C" fn concat(
    machine: *mut Machine,
    a: usize,
    a_bytes: usize,
    b: usize,
    b_bytes: usize,
    out: usize,
) -> u64 {
    guarded(machine, 0, |machine| {
        if let Err(error) = bounded(a_bytes + b_bytes, "||") {
            machine.error = Some(error);
            return 0;
        }
        let both = [text(a, a_bytes), text(b, b_bytes)].concat();
        words(out, 1)[0] = both.len() as u64;
        machine.keep(&both)
    })
}

/// Computes an expression for which no code is generated. 0: a value, 1: NULL, 2: failed.
extern "C" fn generic(machine: *mut Machine, number: usize, args: usize, out: usize) -> i64 {
    guarded(machine, 2, |machine| {
        let args = words(args, machine.generic_words(number));
        let mut value = [0; 2];
        match machine.call(number, args, &mut value) {
            Ok(null) => {
                words(out, 2).copy_from_slice(&value);
                i64::from(null)
            }
            Err(error) => {
                machine.error = Some(error);
                2
            }
        }
    })
}

/// Calls a prepared function of a text whose result is a word and never NULL.
extern "C" fn prepared_word(machine: *mut Machine, number: usize, at: usize, bytes: usize) -> u64 {
    guarded(machine, 0, |machine| machine.texts.ask(number, [at, bytes], &mut machine.error).words[0])
}

/// Calls a prepared function of a text whose result is a text. 1: NULL, 2: failed.
extern "C" fn prepared_text(
    machine: *mut Machine,
    number: usize,
    at: usize,
    bytes: usize,
    out: usize,
) -> i64 {
    guarded(machine, 2, |machine| {
        let answer = machine.texts.ask(number, [at, bytes], &mut machine.error);
        words(out, 2).copy_from_slice(&answer.words);
        if answer.failed { 2 } else { i64::from(answer.null) }
    })
}

/// Formats a timestamp.
extern "C" fn format_(machine: *mut Machine, number: usize, moment: i64) {
    guarded(machine, (), |machine| machine.texts.format(number, moment));
}

/// Units of `extract` by their number.
pub const UNITS: [Unit; 12] = [
    Unit::Millisecond,
    Unit::Second,
    Unit::Minute,
    Unit::Hour,
    Unit::Day,
    Unit::Week,
    Unit::Month,
    Unit::Quarter,
    Unit::Year,
    Unit::DayOfWeek,
    Unit::DayOfYear,
    Unit::Epoch,
];

/// Extracts a field of a timestamp.
extern "C" fn extract(unit: usize, moment: i64) -> i64 {
    UNITS[unit].extract(moment)
}

/// Adds to a sum of 38 digits in place; the sum saturates at the bounds of 128 bits.
extern "C" fn decimal_add(sum: usize, low: u64, high: u64) {
    let sum = words(sum, 2);
    let total = value([sum[0], sum[1]]).saturating_add(value([low, high]));
    sum.copy_from_slice(&[total as u64, (total >> 64) as u64]);
}

fn value(words: [u64; 2]) -> i128 {
    (u128::from(words[0]) | u128::from(words[1]) << 64) as i128
}

/// Divides a sum by a count. `scales`: the scale of the sum, and that of the result in the next byte. Returns 1 for
/// NULL.
extern "C" fn decimal_mean(low: u64, high: u64, count: u64, scales: u64, out: usize) -> i64 {
    let out = words(out, 2);
    let mean = decimal::divide(value([low, high]), scales as u8, count.into(), 0, (scales >> 8) as u8);
    match mean {
        Some(mean) if decimal::fits(mean, PRECISION_MAX) => {
            out.copy_from_slice(&[mean as u64, (mean >> 64) as u64]);
            0
        }
        _ => {
            out.fill(0);
            1
        }
    }
}

extern "C" fn deliver(machine: *mut Machine, sink: usize) -> i64 {
    guarded(machine, 1, |machine| match machine.deliver(sink) {
        Ok(()) => 0,
        Err(error) => {
            machine.error = Some(error);
            1
        }
    })
}

extern "C" fn fail(machine: *mut Machine, code: i64) {
    with(machine, |machine| {
        if code == DIVISION_BY_ZERO {
            machine.error = Some(Error::evaluation("division by zero"));
        }
    });
}

/// The remainder of a division of doubles, by their bits.
extern "C" fn fmod(a: u64, b: u64) -> u64 {
    (f64::from_bits(a) % f64::from_bits(b)).to_bits()
}
