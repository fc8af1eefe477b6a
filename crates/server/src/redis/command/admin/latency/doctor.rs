//! LATENCY DOCTOR, in Redis's words: slow events, and remedies.

use crate::config::Config;
use crate::observe::times::Series;
use std::collections::BTreeMap;
use std::fmt::Write as _;

const OFF: &str = "I'm sorry, Dave, I can't do that. Latency monitoring is disabled in this Redis instance. You may use \"CONFIG SET \
latency-monitor-threshold <milliseconds>.\" in order to enable it. If we weren't in a deep space mission I'd suggest to take a look at \
https://redis.io/topics/latency-monitor.\n";
const NOTHING: &str = "Dave, no latency spike was observed during the lifetime of this Redis instance, not in the slightest bit. I honestly \
think you ought to sit down calmly, take a stress pill, and think things over.\n";
const FOUND: &str = "Dave, I have observed latency spikes in this Redis instance. You don't mind talking about it, do you Dave?\n\n";
const SLOW_LOG: &str = "- Check your Slow Log to understand what are the commands you are running which are too slow to execute. Please \
check https://redis.io/commands/slowlog for more information.\n";
const LARGE: &str = "- Deleting, expiring or evicting (because of maxmemory policy) large objects is a blocking operation. If you have very \
large objects that are often deleted, expired, or evicted, try to fragment those objects into multiple smaller objects.\n";
const SCHEDULER: &str = "- The system is slow to execute Redis code paths not containing system calls. This usually means the system does \
not provide Redis CPU time to run for long periods. You should try to:\n  1) Lower the system load.\n  2) Use a computer / VM just for \
Redis if you are running other software in the same system.\n  3) Check if you have a \"noisy neighbour\" problem.\n  4) Check with \
'redis-cli --intrinsic-latency 100' what is the intrinsic latency in your system.\n";
const RELAX: &str = "- Your fsync policy is set to 'always'. It is very hard to get good performances with such a setup, if possible try to \
relax the fsync policy to 'onesec'.\n";

/// The report about these events.
pub fn report(config: &Config, events: &BTreeMap<&'static str, Series>, now: u64) -> String {
    if config.latency_monitor_threshold == 0 {
        return OFF.to_owned();
    }
    if events.is_empty() {
        return NOTHING.to_owned();
    }
    let mut text = FOUND.to_owned();
    for (at, (event, series)) in events.iter().enumerate() {
        let (average, apart) = series.average();
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{}. {event}: {} latency spikes (average {average}ms, mean deviation {apart}ms, period {:.2} sec). Worst all time event {}ms.",
            at + 1,
            series.samples.len(),
            series.period(now),
            series.millis_max
        );
    }
    text.push_str("\nI have a few advices for you:\n\n");
    if events.contains_key("command") {
        advise_slow_log(&mut text, config);
        text.push_str(SLOW_LOG);
    }
    for (event, advice) in [("fast-command", SCHEDULER), ("aof-fsync-always", RELAX), ("command", LARGE)] {
        if events.contains_key(event) {
            text.push_str(advice);
        }
    }
    text
}

fn advise_slow_log(text: &mut String, config: &Config) {
    let micros = config.latency_monitor_threshold.saturating_mul(1000);
    let _ = match u64::try_from(config.slowlog_log_slower_than) {
        Err(_) => writeln!(
            text,
            "- There are latency issues with potentially slow commands you are using. Try to enable the Slow Log Redis feature using the \
             command 'CONFIG SET slowlog-log-slower-than {micros}'. If the Slow log is disabled Redis is not able to log slow commands \
             execution for you."
        ),
        Ok(slow) if slow > micros => writeln!(
            text,
            "- Your current Slow Log configuration only logs events that are slower than your configured latency monitor threshold. Please \
             use 'CONFIG SET slowlog-log-slower-than {micros}'."
        ),
        Ok(_) => Ok(()),
    };
}
