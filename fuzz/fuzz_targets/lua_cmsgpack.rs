//! cmsgpack from any bytes: no access out of bounds, and what was packed is unpacked and packed as the same. The values
//! also become a reply.

#![no_main]

mod lua;

use libfuzzer_sys::fuzz_target;
use lua::Machine;
use std::cell::RefCell;

// Packing drops what lies deeper than 16 tables, which leaves holes in arrays, and keys that are nil; from the second
// time on there are none.
const SCRIPT: &str = "
local ok, offset = pcall(cmsgpack.unpack_one, ARGV[1], tonumber(ARGV[2]))
pcall(cmsgpack.unpack_limit, ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[2]))
local values = {pcall(cmsgpack.unpack, ARGV[1])}
if not values[1] then return values end
local packs, first = pcall(cmsgpack.pack, unpack(values, 2))
if not packs then return values end
local unpacks, second = pcall(function() return cmsgpack.pack(cmsgpack.unpack(first)) end)
if not unpacks then return values end
local third = cmsgpack.pack(cmsgpack.unpack(second))
if #second ~= #third then return 'differs' end
return values";

thread_local! {
    static MACHINE: RefCell<Machine> = RefCell::new(Machine::new(SCRIPT));
}

fuzz_target!(|data: &[u8]| {
    let [offset, limit, input @ ..] = data else { return };
    let number = |byte: u8| (i32::from(byte) - 2).to_string();
    let (offset, limit) = (number(*offset), number(*limit));
    let got =
        MACHINE.with_borrow_mut(|machine| machine.run(&[input, offset.as_bytes(), limit.as_bytes()], b""));
    assert_ne!(got.as_deref(), Ok(&b"$7\r\ndiffers\r\n"[..]), "{}", input.escape_ascii());
    assert!(got.is_ok(), "{got:?} of {}", input.escape_ascii());
});
