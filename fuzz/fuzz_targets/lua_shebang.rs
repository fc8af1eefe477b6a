//! The first line of scripts and libraries, and the code after it, from any bytes: no panic. Code is compiled, and that
//! of libraries is loaded.

#![no_main]

mod lua;

use duramen_lua::{Interpreter, library_header, script_header};
use libfuzzer_sys::fuzz_target;
use std::cell::RefCell;
use std::time::Duration;

/// Longer code only takes longer.
const LOADED_BYTES_MAX: usize = 300;
const LOAD_TIME: Duration = Duration::from_millis(20);

thread_local! {
    static MACHINES: RefCell<[Interpreter; 2]> =
        RefCell::new([lua::interpreter(false), lua::interpreter(true)]);
}

fuzz_target!(|data: &[u8]| MACHINES.with_borrow_mut(|[scripts, libraries]| {
    if let Ok(header) = script_header(data) {
        let names: Vec<_> = header.flags.names().collect();
        assert!(header.code <= data.len() && (header.code > 0 || names.is_empty()));
        if let Ok(function) = scripts.compile(&data[header.code..], c"@user_script") {
            scripts.forget(function);
        }
    }
    if let Ok((engine, name, code)) = library_header(data) {
        assert!(engine.len() + name.len() < code && data[code] == b'\n', "{}", data.escape_ascii());
        if data.len() - code <= LOADED_BYTES_MAX
            && let Ok(functions) = libraries.load(&data[code..], LOAD_TIME)
        {
            for (registered, function) in functions {
                assert!(duramen_lua::is_name(&registered.name), "{}", registered.name.escape_ascii());
                libraries.forget(function);
            }
        }
    }
}));
