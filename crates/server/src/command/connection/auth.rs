//! AUTH [username] password: the only user is `default`, whose password is `requirepass`.

use super::ALWAYS;
use crate::command::{Call, CommandError, Spec, errors};

pub const SPEC: Spec = Spec { arity: -2, flags: ALWAYS, ..Spec::new("auth", auth) };

fn auth(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (user, password) = match call.args.len() {
        2 => {
            if call.server.config().requirepass.is_empty() {
                return Err(CommandError::new(
                    "ERR AUTH <password> called without any password configured for the default user. Are you sure \
                     your configuration is correct?",
                ));
            }
            (&b"default"[..], call.args.at(1))
        }
        3 => (call.args.at(1), call.args.at(2)),
        _ => return Err(errors::SYNTAX),
    };
    authenticate(call, user, password)?;
    call.reply.ok();
    Ok(())
}

/// Lets the connection in, or tells that it may not. Without a password any is right.
pub fn authenticate(call: &mut Call<'_, '_>, user: &[u8], password: &[u8]) -> Result<(), CommandError> {
    let config = call.server.config();
    let wanted = config.requirepass.as_bytes();
    if user != b"default" || !(wanted.is_empty() || equal(wanted, password)) {
        return Err(errors::WRONG_PASS);
    }
    call.session.authenticated = true;
    Ok(())
}

/// Whether two passwords are the same, in a time that tells nothing but the length of the given one.
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
