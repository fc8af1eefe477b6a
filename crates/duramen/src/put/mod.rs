//! Put and delete of one key: [`write`] takes the steps that [`crate::writer`] numbers, and [`old`] counts the record
//! that is replaced. Recovery is [`crate::recover`]'s.

pub(crate) mod old;
pub(crate) mod place;
pub(crate) mod write;
