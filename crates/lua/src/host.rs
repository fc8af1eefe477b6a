//! What a script needs from outside: commands, and somewhere for its reply.

use duramen_resp::Span;

/// Executes what scripts ask for.
pub trait Host {
    /// Executes a command; the arguments lie in `buffer` at `spans`, the name first. Its reply is then in
    /// [`reply`](Self::reply), in the protocol that [`set_resp3`](Self::set_resp3) chose last (at first RESP2).
    fn call(&mut self, buffer: &[u8], spans: &[Span]) -> Called;

    /// The result of the last `call`.
    fn reply(&self) -> &[u8];

    /// Chooses the protocol of later replies.
    fn set_resp3(&mut self, resp3: bool);

    /// Whether the user who runs the script may execute a command; `None`: there is no such command.
    fn may_call(&mut self, buffer: &[u8], spans: &[Span]) -> Option<bool>;

    /// Adds a line to the server's log: 0 is debug, 3 a warning.
    fn log(&mut self, level: u8, text: &[u8]);

    /// Asked after each 100,000 instructions of Lua.
    fn interrupt(&mut self) -> Interrupt;
}

/// The outcome of a [`Host::call`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Called {
    /// There is a reply of the protocol.
    Replied,
    /// The command was not executed. The reply is the error's text, without a sign; a code, if any, after `-`.
    Refused,
    /// The script is to end here, whatever it does; its outcome is [`RunError::Aborted`](crate::RunError::Aborted).
    Aborted,
}

/// Whether a script continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupt {
    /// It does.
    Continue,
    /// It ends with the error of SCRIPT KILL.
    Kill,
    /// As [`Called::Aborted`].
    Abort,
}

/// Takes the reply of a script.
pub trait Replies {
    /// A string.
    fn bulk(&mut self, bytes: &[u8]);
    /// Nothing.
    fn null(&mut self);
    /// A truth value; only for scripts that chose RESP3.
    fn boolean(&mut self, value: bool);
    /// A number.
    fn integer(&mut self, value: i64);
    /// `{double = …}`
    fn double(&mut self, value: f64);
    /// `{big_number = …}`
    fn big_number(&mut self, digits: &[u8]);
    /// `{verbatim_string = {format = …, string = …}}`
    fn verbatim(&mut self, format: &[u8], bytes: &[u8]);
    /// `{ok = …}`
    fn status(&mut self, text: &[u8]);
    /// `{err = …}`; `is_counted`: a command that failed has counted this error already.
    fn error(&mut self, text: &[u8], is_counted: bool);
    /// The head of an array; so many values follow.
    fn array(&mut self, count: usize);
    /// `{map = …}`: the head; twice as many values follow.
    fn map(&mut self, count: usize);
    /// `{set = …}`: the head; so many values follow.
    fn set(&mut self, count: usize);
}
