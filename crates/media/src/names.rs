//! Values with names, used in configuration and in messages.

/// The name that belongs to `value` in `names`, which holds every value.
pub(crate) fn name_of<T: PartialEq>(names: &[(T, &'static str)], value: T) -> &'static str {
    names.iter().find(|(v, _)| *v == value).map_or("?", |(_, name)| name)
}

/// The value called `name`, or an error that lists what could have been said.
pub(crate) fn named<T: Copy>(names: &[(T, &'static str)], what: &str, name: &str) -> crate::Result<T> {
    names.iter().find(|(_, n)| *n == name).map(|(value, _)| *value).ok_or_else(|| {
        let all: Vec<&str> = names.iter().map(|(_, n)| *n).collect();
        crate::Error::new(
            crate::ErrorKind::InvalidInput,
            format!("{what} {name:?} is unknown; use one of {}", all.join(", ")),
        )
    })
}
