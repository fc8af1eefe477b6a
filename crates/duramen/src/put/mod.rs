//! Put and delete of one key: [`write`] takes the steps that [`crate::writer`] numbers, and [`place`] points the key's
//! slot to the new record and counts the one that is replaced. Recovery is [`crate::recover`]'s.

pub(crate) mod place;
pub(crate) mod write;
