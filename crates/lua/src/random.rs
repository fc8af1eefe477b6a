//! `math.random` and `math.randomseed`: the numbers of `lrand48`, so that a seed gives the same ones everywhere.

use crate::ffi::*;
use crate::shared::raise_text;
use std::ffi::c_int;

const MASK: u64 = (1 << 48) - 1;
const MAX: u64 = i32::MAX as u64;

/// The state that `srand48(seed)` begins with.
pub const fn seeded(seed: u32) -> u64 {
    (seed as u64) << 16 | 0x330e
}

/// The next state.
const fn next(state: u64) -> u64 {
    state.wrapping_mul(0x5_DEEC_E66D).wrapping_add(0xb) & MASK
}

/// `math.random([m [, n]])`
pub extern "C-unwind" fn random(l: Stack) -> c_int {
    let shared = l.shared();
    if !shared.is_running() {
        return raise_text(l, b"math.random can only be called inside a script invocation");
    }
    let state = next(shared.random.get());
    shared.random.set(state);
    // 31 of the 48 bits.
    let share = ((state >> 17) % MAX) as f64 / MAX as f64;
    // Lua reads an `int`.
    let bound = |at| luaL_checkinteger(l, at) as i32;
    let value = match lua_gettop(l) {
        0 => share,
        1 => {
            let high = bound(1);
            if high < 1 {
                return l.wrong_argument(1, c"interval is empty");
            }
            (share * f64::from(high)).floor() + 1.0
        }
        2 => {
            let (low, high) = (bound(1), bound(2));
            if low > high {
                return l.wrong_argument(2, c"interval is empty");
            }
            (share * (f64::from(high.wrapping_sub(low).wrapping_add(1)))).floor() + f64::from(low)
        }
        _ => return raise_text(l, b"wrong number of arguments"),
    };
    lua_pushnumber(l, value);
    1
}

/// `math.randomseed(x)`
pub extern "C-unwind" fn seed(l: Stack) -> c_int {
    let shared = l.shared();
    if !shared.is_running() {
        return raise_text(l, b"math.randomseed can only be called inside a script invocation");
    }
    let seed = luaL_checkinteger(l, 1) as i32;
    shared.random.set(seeded(seed as u32));
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_lrand48() {
        // lrand48() after srand48(1), of the C library.
        let mut state = seeded(1);
        let numbers: Vec<u64> = (0..3)
            .map(|_| {
                state = next(state);
                state >> 17
            })
            .collect();
        assert_eq!(numbers, [89_400_484, 976_015_093, 1_792_756_325]);
    }
}
