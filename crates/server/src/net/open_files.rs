//! The limit of open files, raised for as many clients as the configuration allows.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

// Files that the server needs besides clients: store, listeners, event queues, standard streams (Redis reserves as
// many).
const RESERVED: u64 = 32;

/// Raises the limit for `clients` clients as far as allowed; gives for how many it is enough.
pub fn raise(clients: u32) -> u32 {
    let wanted = u64::from(clients) + RESERVED;
    let limit = getrlimit(Resource::Nofile);
    let Some(current) = limit.current else { return clients };
    if current >= wanted {
        return clients;
    }
    // The hard limit too, which the administrator's processes may raise; if not, up to it.
    let hard = limit.maximum;
    let tries = [
        Rlimit { current: Some(wanted), maximum: hard.map(|hard| hard.max(wanted)) },
        Rlimit { current: Some(hard.map_or(wanted, |hard| hard.min(wanted))), maximum: hard },
    ];
    let reached = tries.into_iter().find(|limit| setrlimit(Resource::Nofile, *limit).is_ok());
    let reached = reached.and_then(|limit| limit.current).unwrap_or(current);
    u32::try_from(reached.saturating_sub(RESERVED)).map_or(clients, |most| most.clamp(1, clients))
}
