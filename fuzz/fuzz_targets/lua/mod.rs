//! Shared parts of the targets for scripts: an interpreter whose command `reply` answers what it is to, and a reply's
//! form.

use duramen_lua::{Called, Function, Host, Interpreter, Interrupt, Options, Replies, RunError};
use duramen_resp::Span;
use std::io::Write;

/// Far more than an input of the fuzzer needs.
const BYTES_MAX: usize = 64 << 20;

/// A script, ready to run.
pub struct Machine {
    lua: Interpreter,
    function: Function,
}

/// A new interpreter.
pub fn interpreter(is_for_functions: bool) -> Interpreter {
    let options =
        Options { bytes_max: BYTES_MAX, version: "7.2.4", version_number: 0x0007_0204, is_for_functions };
    Interpreter::new(options).expect("memory for an interpreter")
}

impl Machine {
    /// Compiles a script.
    #[allow(dead_code, reason = "not by the target that only compiles")]
    pub fn new(script: &str) -> Self {
        let mut lua = interpreter(false);
        let function = lua.compile(script.as_bytes(), c"@user_script").expect("a script that compiles");
        Self { lua, function }
    }

    /// Runs it; returns its reply as it goes to a client of RESP3. The form of a reply is checked: it is one value.
    #[allow(dead_code, reason = "as above")]
    pub fn run(&mut self, args: &[&[u8]], reply: &[u8]) -> Result<Vec<u8>, RunError> {
        let mut host = Answers(reply.to_vec());
        let mut written = Written { bytes: Vec::new(), wanted: 1 };
        let mut args = args.iter().copied();
        let mut keys = std::iter::empty();
        self.lua.run(&self.function, false, &mut host, &mut written, &mut keys, &mut args, 1)?;
        assert_eq!(written.wanted, 0, "values that an aggregate announced and that are missing");
        Ok(written.bytes)
    }
}

struct Answers(Vec<u8>);

impl Host for Answers {
    fn call(&mut self, _: &[u8], _: &[Span]) -> Called {
        Called::Replied
    }

    fn reply(&self) -> &[u8] {
        &self.0
    }

    fn set_resp3(&mut self, _: bool) {}

    fn may_call(&mut self, _: &[u8], _: &[Span]) -> Option<bool> {
        None
    }

    fn log(&mut self, _: u8, _: &[u8]) {}

    fn interrupt(&mut self) -> Interrupt {
        Interrupt::Continue
    }
}

struct Written {
    bytes: Vec<u8>,
    /// Values that are still to come.
    wanted: usize,
}

impl Written {
    fn value(&mut self, sign: u8, text: &[u8]) {
        self.aggregate(sign, text, 0);
    }

    fn aggregate(&mut self, sign: u8, text: &[u8], values: usize) {
        assert!(self.wanted > 0, "a value that no aggregate announced");
        self.wanted = self.wanted - 1 + values;
        self.bytes.push(sign);
        self.bytes.extend_from_slice(text);
        self.bytes.extend_from_slice(b"\r\n");
    }
}

impl Replies for Written {
    fn bulk(&mut self, bytes: &[u8]) {
        self.value(b'$', bytes.len().to_string().as_bytes());
        self.bytes.extend_from_slice(bytes);
        self.bytes.extend_from_slice(b"\r\n");
    }

    fn null(&mut self) {
        self.value(b'_', b"");
    }

    fn boolean(&mut self, value: bool) {
        self.value(b'#', if value { b"t" } else { b"f" });
    }

    fn integer(&mut self, value: i64) {
        self.value(b':', value.to_string().as_bytes());
    }

    fn double(&mut self, value: f64) {
        self.value(b',', value.to_string().as_bytes());
    }

    fn big_number(&mut self, digits: &[u8]) {
        self.value(b'(', digits);
    }

    fn verbatim(&mut self, format: &[u8], bytes: &[u8]) {
        let mut text = Vec::new();
        let _ = write!(text, "{}", bytes.len() + 4);
        self.value(b'=', &text);
        self.bytes.extend_from_slice(&[format, b":", bytes, b"\r\n"].concat());
    }

    fn status(&mut self, text: &[u8]) {
        self.value(b'+', text);
    }

    fn error(&mut self, text: &[u8], _: bool) {
        self.value(b'-', text);
    }

    fn array(&mut self, count: usize) {
        self.aggregate(b'*', count.to_string().as_bytes(), count);
    }

    fn map(&mut self, count: usize) {
        self.aggregate(b'%', count.to_string().as_bytes(), 2 * count);
    }

    fn set(&mut self, count: usize) {
        self.aggregate(b'~', count.to_string().as_bytes(), count);
    }
}
