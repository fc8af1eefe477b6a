//! The error of a query that cannot run: its place, what was found, what was wanted, and advice.

use std::fmt;

/// A place in the text of a script. Both numbers begin at 1; columns count characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Line, from 1.
    pub line: u64,
    /// Character within the line, from 1.
    pub column: u64,
}

/// The kind of an [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The text is not in the language.
    Syntax,
    /// The text is in the language and contradicts itself or the catalog: unknown names, wrong types.
    Invalid,
    /// Flink's dialect has it, this engine does not yet.
    Unsupported,
    /// An expression is not defined for a value: division by zero, a cast that fails.
    Evaluation,
    /// A source or a sink failed: a file does not exist, a record cannot be read.
    Connector,
    /// The process has no memory left for the job.
    Memory,
}

/// Why a script was refused, or an expression failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    position: Option<Position>,
    message: String,
    hint: Option<String>,
}

/// What functions of this crate return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    fn new(kind: ErrorKind, message: String) -> Self {
        Error { kind, position: None, message, hint: None }
    }

    /// `found` is at a place where only `wanted` is allowed.
    pub fn syntax(found: impl fmt::Display, wanted: impl fmt::Display) -> Self {
        Self::new(ErrorKind::Syntax, format!("found {found}, wanted {wanted}"))
    }

    /// A contradiction within the script: found this, wanted that.
    pub fn invalid(found: impl fmt::Display, wanted: impl fmt::Display) -> Self {
        Self::new(ErrorKind::Invalid, format!("found {found}, wanted {wanted}"))
    }

    /// Flink has `feature`; this engine does not.
    pub fn unsupported(feature: impl fmt::Display) -> Self {
        Self::new(ErrorKind::Unsupported, format!("not supported yet: {feature}"))
    }

    /// A contradiction with a text that does not fit found and wanted.
    pub fn refused(what: impl fmt::Display) -> Self {
        Self::new(ErrorKind::Invalid, what.to_string())
    }

    /// An expression failed on a value.
    pub fn evaluation(what: impl fmt::Display) -> Self {
        Self::new(ErrorKind::Evaluation, what.to_string())
    }

    /// A source or a sink failed: what was attempted, and on what.
    pub fn connector(what: impl fmt::Display) -> Self {
        Self::new(ErrorKind::Connector, what.to_string())
    }

    /// The process has no memory left for the job.
    pub fn memory(what: impl fmt::Display) -> Self {
        Self::new(ErrorKind::Memory, what.to_string())
    }

    /// Adds the place in the text, unless the error has one already.
    #[must_use]
    pub fn at(mut self, position: Option<Position>) -> Self {
        self.position = self.position.or(position);
        self
    }

    /// As [`Error::at`]; the place is computed only if it is needed.
    #[must_use]
    pub fn at_with(mut self, position: impl FnOnce() -> Option<Position>) -> Self {
        if self.position.is_none() {
            self.position = position();
        }
        self
    }

    /// Adds advice.
    #[must_use]
    pub fn hint(mut self, hint: impl fmt::Display) -> Self {
        self.hint = Some(hint.to_string());
        self
    }

    /// Adds the nearest of `names` as advice, if one is near to `found`.
    #[must_use]
    pub fn did_you_mean<'n>(self, found: &str, names: impl IntoIterator<Item = &'n str>) -> Self {
        match nearest(found, names) {
            Some(name) => self.hint(format_args!("did you mean `{name}`?")),
            None => self,
        }
    }

    /// Its kind.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The place in the text, if it has one.
    pub fn position(&self) -> Option<Position> {
        self.position
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Position { line, column }) = self.position {
            write!(f, "line {line}, column {column}: ")?;
        }
        f.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}

/// Longer names are not compared with others, because that costs the product of both lengths.
const NEAREST_MAX: usize = 100;

/// The name among `names` that differs least from `found`, if at most a third of it differs.
fn nearest<'n>(found: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    if found.chars().nth(NEAREST_MAX).is_some() {
        return None;
    }
    let found = found.to_lowercase();
    let count = found.chars().count();
    let limit = (count / 3).max(1);
    names
        .into_iter()
        // Each character more or less is at least one edit.
        .filter(|name| name.chars().take(count + limit + 1).count().abs_diff(count) <= limit)
        .map(|name| (edits(&found, &name.to_lowercase()), name))
        .filter(|(edits, _)| *edits <= limit)
        .min()
        .map(|(_, name)| name)
}

/// Levenshtein's distance: insertions, deletions and replacements of characters.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let above = row[j + 1];
            row[j + 1] = (above + 1).min(row[j] + 1).min(diagonal + usize::from(x != *y));
            diagonal = above;
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_suggested_and_a_distant_one_is_not() {
        let names = ["price", "bidder", "auction"];
        assert_eq!(nearest("pirce", names), None, "two edits of five");
        assert_eq!(nearest("prise", names), Some("price"));
        assert_eq!(nearest("AUCTIONS", names), Some("auction"));
        assert_eq!(nearest("x", names), None);
    }

    #[test]
    fn very_long_names_get_no_suggestion() {
        let long = "x".repeat(4_000_000);
        assert_eq!(nearest(&long, [long.as_str(), "x"]), None);
        assert_eq!(nearest("price", [long.as_str(), "prices"]), Some("prices"));
    }

    #[test]
    fn a_message_has_the_place_the_found_and_wanted_texts_and_a_hint() {
        let error = Error::invalid("column `prise`", "a column of `bid`")
            .at(Some(Position { line: 2, column: 8 }))
            .did_you_mean("prise", ["price"]);
        assert_eq!(
            error.to_string(),
            "line 2, column 8: found column `prise`, wanted a column of `bid`; did you mean `price`?"
        );
    }
}
