//! struct with any format and any bytes: no access out of bounds, and what `pack` made is unpacked as the same.

#![no_main]

mod lua;

use libfuzzer_sys::fuzz_target;
use lua::Machine;
use std::cell::RefCell;

const SCRIPT: &str = "
local format, bytes, at = ARGV[1], ARGV[2], tonumber(ARGV[3])
local sized, size = pcall(struct.size, format)
pcall(struct.unpack, format, bytes, at)
pcall(struct.pack, format, bytes, at, bytes, at)
local values = {pcall(struct.unpack, format, bytes)}
if not values[1] then return values end
-- The last is where the next would be.
local packs, packed = pcall(struct.pack, format, unpack(values, 2, #values - 1))
if not packs then return packed end
local again = {pcall(struct.unpack, format, packed)}
if not again[1] then return 'not unpacked' end
for number, value in ipairs(values) do
  -- Beyond, a double has not every integer. A NaN is not itself.
  local is_exact = type(value) ~= 'number' or math.abs(value) < 2^53
  if again[number] ~= value and value == value and is_exact then return 'differs' end
end
return values";

thread_local! {
    static MACHINE: RefCell<Machine> = RefCell::new(Machine::new(SCRIPT));
}

fuzz_target!(|data: &[u8]| {
    let [at, format_bytes, input @ ..] = data else { return };
    let (format, bytes) = input.split_at(usize::from(*format_bytes).min(input.len()));
    let at = (i32::from(*at) - 2).to_string();
    let got = MACHINE.with_borrow_mut(|machine| machine.run(&[format, bytes, at.as_bytes()], b""));
    let shown = || format!("{got:?} of {} and {}", format.escape_ascii(), bytes.escape_ascii());
    for wrong in [&b"$7\r\ndiffers\r\n"[..], b"$12\r\nnot unpacked\r\n"] {
        assert_ne!(got.as_deref(), Ok(wrong), "{}", shown());
    }
    assert!(got.is_ok(), "{}", shown());
});
