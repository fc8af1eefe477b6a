//! Commands about replicas, a cluster and modules, on a server that has none: ROLE, WAIT, REPLICAOF, CLUSTER, MODULE
//! and similar ones.

use crate::redis::blocking::after_millis;
use crate::redis::command::{After, Args, Call, Command, CommandError, errors, integer};

const NO_CLUSTER: CommandError = CommandError::new("ERR This instance has cluster support disabled");
const NO_MODULES: CommandError = CommandError::new(
    "ERR MODULE command not allowed. If the enable-module-command option is set to \"local\", you can run it from a local connection, \
     otherwise you need to set this option in the configuration file, and then restart the server.",
);
const TIMEOUT_NOT_INTEGER: CommandError = CommandError::new("ERR timeout is not an integer or out of range");

/// The subcommands of CLUSTER; all of them need a cluster.
pub const CLUSTER: &[Command] = &[
    Command::new("cluster|addslots", no_cluster),
    Command::new("cluster|addslotsrange", no_cluster),
    Command::new("cluster|bumpepoch", no_cluster),
    Command::new("cluster|count-failure-reports", no_cluster),
    Command::new("cluster|countkeysinslot", no_cluster),
    Command::new("cluster|delslots", no_cluster),
    Command::new("cluster|delslotsrange", no_cluster),
    Command::new("cluster|failover", no_cluster),
    Command::new("cluster|flushslots", no_cluster),
    Command::new("cluster|forget", no_cluster),
    Command::new("cluster|getkeysinslot", no_cluster),
    Command::new("cluster|help", no_cluster),
    Command::new("cluster|info", no_cluster),
    Command::new("cluster|keyslot", no_cluster),
    Command::new("cluster|links", no_cluster),
    Command::new("cluster|meet", no_cluster),
    Command::new("cluster|myid", no_cluster),
    Command::new("cluster|myshardid", no_cluster),
    Command::new("cluster|nodes", no_cluster),
    Command::new("cluster|replicas", no_cluster),
    Command::new("cluster|replicate", no_cluster),
    Command::new("cluster|reset", no_cluster),
    Command::new("cluster|saveconfig", no_cluster),
    Command::new("cluster|set-config-epoch", no_cluster),
    Command::new("cluster|setslot", no_cluster),
    Command::new("cluster|shards", no_cluster),
    Command::new("cluster|slaves", no_cluster),
    Command::new("cluster|slots", no_cluster),
];

/// The subcommands of MODULE.
pub const MODULE: &[Command] = &[
    Command::new("module|list", module_list),
    Command::new("module|load", |_| Err(NO_MODULES)),
    Command::new("module|loadex", |_| Err(NO_MODULES)),
    Command::new("module|unload", |_| Err(NO_MODULES)),
    Command::new("module|help", |call| {
        call.reply.lines(HELP);
        Ok(())
    }),
];

const HELP: &[&str] = &[
    "MODULE <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "LIST",
    "    Return a list of loaded modules.",
    "LOAD <path> [<arg> ...]",
    "    Load a module library from <path>, passing to it any optional arguments.",
    "LOADEX <path> [[CONFIG NAME VALUE] [CONFIG NAME VALUE]] [ARGS ...]",
    "    Load a module library from <path>, while passing it module configurations and optional arguments.",
    "UNLOAD <name>",
    "    Unload a module.",
    "HELP",
    "    Prints this help.",
];

fn module_list(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    call.reply.array(0);
    Ok(())
}

/// READONLY, READWRITE, ASKING and CLUSTER.
pub fn no_cluster(_: &mut Call<'_, '_>) -> Result<(), CommandError> {
    Err(NO_CLUSTER)
}

/// ROLE: a primary without replicas.
pub fn role(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    call.reply.array(3);
    call.reply.bulk(b"master");
    call.reply.integer(0);
    call.reply.array(0);
    Ok(())
}

/// WAIT numreplicas timeout: there are no replicas, so this answers 0 when the time is up.
pub fn wait(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let wanted = call.args.integer(1)?;
    let millis = integer(call.args.at(2)).ok_or(TIMEOUT_NOT_INTEGER)?;
    let until = after_millis(millis)?;
    if wanted <= 0 || !call.waits(until, Vec::new()) {
        call.reply.integer(0);
    }
    Ok(())
}

/// WAITAOF numlocal numreplicas timeout: makes all writes so far durable, as an append-only file would. There are no
/// replicas, so if one is asked for this answers when the time is up.
pub fn waitaof(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let worker_state = call.args.integer(1)?;
    if !(0..=1).contains(&worker_state) {
        return Err(CommandError::new("ERR value is out of range, value must between 0 and 1"));
    }
    let replicas = call.args.integer(2)?;
    if replicas < 0 {
        return Err(CommandError::new("ERR value is out of range, must be positive"));
    }
    let millis = integer(call.args.at(3)).ok_or(TIMEOUT_NOT_INTEGER)?;
    let until = after_millis(millis)?;
    // Inside EXEC too: that is committed before its reply leaves.
    *call.after = After::Commit;
    if replicas == 0 || !call.waits(until, Vec::new()) {
        call.reply.array(2);
        call.reply.integer(1);
        call.reply.integer(0);
    } else if let Some(wait) = &mut call.worker_state.wait {
        wait.is_for_file = true;
    }
    Ok(())
}

/// REPLICAOF host port and SLAVEOF: NO ONE is the present state; replicating another server is not supported.
pub fn replicaof(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    if call.args.is(1, "no") && call.args.is(2, "one") {
        call.reply.ok();
        return Ok(());
    }
    if integer(call.args.at(2)).is_none_or(|port| !(0..=65_535).contains(&port)) {
        return Err(CommandError::new("ERR Invalid master port"));
    }
    Err(CommandError::new("ERR replication is not supported: this server can be no replica"))
}

/// FAILOVER [TO host port [FORCE]] [ABORT] [TIMEOUT milliseconds]: there is no replica to take over.
pub fn failover(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let args = call.args;
    if args.len() == 2 && args.is(1, "abort") {
        return Err(CommandError::new("ERR No failover in progress."));
    }
    check_failover(args)?;
    Err(CommandError::new("ERR FAILOVER requires connected replicas."))
}

fn check_failover(args: Args<'_>) -> Result<(), CommandError> {
    let (mut timeout, mut host, mut force, mut at) = (false, false, false, 1);
    while at < args.len() {
        let left = args.len() - at - 1;
        if args.is(at, "timeout") && left >= 1 && !timeout {
            if args.integer(at + 1)? <= 0 {
                return Err(CommandError::new("ERR FAILOVER timeout must be greater than 0"));
            }
            (timeout, at) = (true, at + 2);
        } else if args.is(at, "to") && left >= 2 && !host {
            args.integer(at + 2)?;
            (host, at) = (true, at + 3);
        } else if args.is(at, "force") && !force {
            (force, at) = (true, at + 1);
        } else {
            return Err(errors::SYNTAX);
        }
    }
    Ok(())
}

/// BGREWRITEAOF: the store is its own log, which compaction keeps short all the time.
pub fn bgrewriteaof(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    call.reply.simple("Background append only file rewriting started");
    Ok(())
}
