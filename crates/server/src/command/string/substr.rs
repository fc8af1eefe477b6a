//! SUBSTR key start end: GETRANGE under its first name.

use super::getrange::getrange;
use crate::command::{Flags, Keys, Spec};

pub const SPEC: Spec =
    Spec { arity: 4, flags: Flags::READONLY, keys: Keys::FIRST, ..Spec::new("substr", getrange) };
