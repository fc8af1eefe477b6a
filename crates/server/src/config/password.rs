//! Whether a client knows the password.

use super::Config;

impl Config {
    /// Whether this is the password of the named user.
    pub fn is_password(&self, user: &[u8], password: &[u8]) -> bool {
        let wanted = self.requirepass.as_bytes();
        user == b"default" && (wanted.is_empty() || equal(wanted, password))
    }
}

/// Whether two passwords are equal, in a time that reveals only the length of the given one.
fn equal(wanted: &[u8], given: &[u8]) -> bool {
    let differing =
        given.iter().enumerate().fold(0, |sum, (at, byte)| sum | (byte ^ wanted[at % wanted.len()]));
    differing == 0 && wanted.len() == given.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_password_is_equal() {
        assert!(equal(b"secret", b"secret"));
        for given in ["", "s", "secre", "secrets", "secretsecret", "Secret"] {
            assert!(!equal(b"secret", given.as_bytes()), "{given}");
        }
    }
}
