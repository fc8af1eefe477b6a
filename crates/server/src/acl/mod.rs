//! Users and their rights: Redis's access control lists.
//!
//! | module | is about |
//! |---|---|
//! | [`users`] | all users, AUTH, the default user |
//! | [`user`] | one user: passwords, selectors, the words of ACL SETUSER |
//! | [`selector`] | a set of rights: commands, keys, channels; the check of a command |
//! | [`login`] | the user of one connection |
//! | [`commands`] | the names and categories of the command table |
//! | [`password`] | hashes of passwords |
//! | [`failures`] | how long the answer to a failed AUTH is held back |
//! | [`log`] | ACL LOG |
//! | [`file`](mod@file) | the ACL file |
//!
//! - **Invariant 1**: a command runs only after [`Login::check`] allowed it, whichever way it came: from a connection, from EXEC, or
//!   for a client that waited.
//! - **Invariant 2**: rules do not change: a change makes new ones. Every connection notices it before its next command, by
//!   [`Users::generation`].
//! - **Invariant 3**: what [`User::describe`](user::User::describe) writes is read back as the same rights.

pub mod commands;
pub mod failures;
pub mod file;
pub mod log;
pub mod login;
pub mod password;
pub mod selector;
pub mod user;
pub mod users;

pub use login::Login;
pub use selector::Denied;
pub use user::User;
pub use users::Users;
