//! The errors of commands that the user has no right to, letter for letter those of Redis 7.0.

use crate::acl::Denied;
use crate::command_error::CommandError;

/// A command that the user has no right to run.
pub fn denied(denied: Denied, name: &str) -> CommandError {
    match denied {
        Denied::Command => {
            CommandError::with(format!("NOPERM this user has no permissions to run the '{}' command", name))
        }
        Denied::Key(_) => CommandError::new(
            "NOPERM this user has no permissions to access one of the keys used as arguments",
        ),
        Denied::Channel(_) => CommandError::new(
            "NOPERM this user has no permissions to access one of the channels used as arguments",
        ),
    }
}

/// A command of EXEC that the user had the right to queue, and no longer to run.
pub fn denied_since(denied: Denied) -> CommandError {
    let why = match denied {
        Denied::Command => "no permission to execute the command or subcommand",
        Denied::Key(_) => "no permission to touch the specified keys",
        Denied::Channel(_) => "no permission to access one of the channels used as arguments",
    };
    CommandError::with(format!(
        "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This command is no longer \
         allowed for the following reason: {why}"
    ))
}

/// A command of a script.
pub const fn denied_in_script(denied: Denied) -> &'static str {
    match denied {
        Denied::Command => "The user executing the script can't run this command or subcommand",
        Denied::Key(_) => {
            "The user executing the script can't access at least one of the keys mentioned in the command arguments"
        }
        Denied::Channel(_) => {
            "The user executing the script can't publish to the channel mentioned in the command"
        }
    }
}
