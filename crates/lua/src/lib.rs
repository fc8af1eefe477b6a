//! Lua 5.1 as Redis's scripts know it: the interpreter, its sandbox, the `redis` table, and cjson, cmsgpack, struct and bit.
//!
//! An [`Interpreter`] compiles scripts and libraries of functions, and runs them against a [`Host`], which executes the
//! commands. It knows no key and no socket: the host's replies come as bytes of the Redis protocol, and the script's own
//! reply goes to [`Replies`], value by value.
//!
//! | module | is about |
//! |---|---|
//! | `ffi` | Lua's C interface, and what each use of it must keep |
//! | `stack` | its calls with pointers, each wrapped once |
//! | `blocks` | small blocks of memory, kept for the next script |
//! | `shared` | the state that C functions find again: memory, the host, how the run ends |
//! | `sandbox`, `proxy` | the globals of a script, which nobody can change |
//! | `base` | functions of Lua's own that are different here |
//! | `api` | the `redis` table |
//! | `random` | `math.random` |
//! | `from_reply`, `to_reply` | conversion of a command's reply to Lua, and of Lua's values to a reply |
//! | `shebang`, `flags` | `#!lua name=… flags=…` |
//! | `library`, `registered` | `redis.register_function` |
//! | `interpreter` | compile and run |
//!
//! Invariants:
//!
//! 1. Nothing that a script does is left for the next one: globals, metatables and libraries are read-only.
//! 2. A script that is aborted or killed does nothing more: no `pcall` of its own continues it.
//! 3. A script takes no more memory than the limit. Beyond it, it ends with `not enough memory`.
//! 4. The same script with the same seed, on a host that answers the same, does the same.

mod api;
mod base;
mod blocks;
mod ffi;
mod flags;
mod from_reply;
mod host;
mod interpreter;
mod library;
mod proxy;
mod random;
mod registered;
mod sandbox;
mod shared;
mod shebang;
mod stack;
mod to_reply;

pub use flags::ScriptFlags;
pub use host::{Called, Host, Interrupt, Replies};
pub use interpreter::{Function, Interpreter, Options, RunError};
pub use library::is_name;
pub use registered::Registered;
pub use shebang::{Header, library_header, script_header};
