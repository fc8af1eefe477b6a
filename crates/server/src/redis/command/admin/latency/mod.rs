//! LATENCY: when something took long, and how long commands take.

mod doctor;
mod graph;

use crate::clients::unix_seconds;
use crate::observe::times::HistogramSums;
use crate::redis::command::{Call, Command, CommandError, Entry};
use crate::redis::resp::Reply;

/// The subcommands.
pub const SUBCOMMANDS: &[Command] = &[
    Command::new("latency|doctor", report),
    Command::new("latency|graph", draw),
    Command::new("latency|histogram", histogram),
    Command::new("latency|history", history),
    Command::new("latency|latest", latest),
    Command::new("latency|reset", reset),
    Command::new("latency|help", help),
];

const HELP: &[&str] = &[
    "LATENCY <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "DOCTOR",
    "    Return a human readable latency analysis report.",
    "GRAPH <event>",
    "    Return an ASCII latency graph for the <event> class.",
    "HISTORY <event>",
    "    Return time-latency samples for the <event> class.",
    "LATEST",
    "    Return the latest latency samples for all events.",
    "RESET [<event> ...]",
    "    Reset latency data of one or more <event> classes.",
    "    (default: reset all data for all event classes)",
    "HISTOGRAM [COMMAND ...]",
    "    Return a cumulative distribution of latencies in the format of a histogram for the specified command names.",
    "    If no commands are specified then all histograms are replied.",
    "HELP",
    "    Prints this help.",
];

fn help(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    call.reply.lines(HELP);
    Ok(())
}

fn report(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let text = doctor::report(&call.server.config(), &call.server.times.spikes.all(), unix_seconds());
    call.reply.verbatim(&text);
    Ok(())
}

/// LATENCY GRAPH event.
fn draw(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let event = call.args.at(2);
    let series = call.server.times.spikes.of(event);
    let series =
        series.ok_or_else(|| CommandError::showing("ERR No samples available for event '", event, "'"))?;
    let text = graph::draw(&String::from_utf8_lossy(event), &series, unix_seconds());
    call.reply.verbatim(&text);
    Ok(())
}

/// LATENCY HISTOGRAM [command …]: of a command that has subcommands, of those.
fn histogram(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let mut entries: Vec<&'static Entry> = Vec::new();
    if call.args.len() == 2 {
        entries.extend(call.table.all());
    } else {
        let named = call.args.from(2).filter_map(|name| call.table.full_name(name));
        entries.extend(named.flat_map(|entry| std::iter::once(entry).chain(&entry.subcommands)));
    }
    let of = |entry: &'static Entry| (entry, call.server.histogram(entry.index));
    let found: Vec<_> = entries.into_iter().map(of).filter(|(_, sums)| sums.total() > 0).collect();
    call.reply.map(found.len());
    for (entry, sums) in found {
        call.reply.bulk(entry.spec.name.as_bytes());
        write(&mut call.reply, &sums);
    }
    Ok(())
}

fn write(reply: &mut Reply<'_>, sums: &HistogramSums) {
    reply.map(2);
    reply.bulk(b"calls");
    reply.integer(sums.total() as i64);
    reply.bulk(b"histogram_usec");
    let steps = sums.distribution();
    reply.map(steps.len());
    for (micros, count) in steps {
        reply.integer(micros as i64);
        reply.integer(count as i64);
    }
}

/// LATENCY HISTORY event: seconds and milliseconds.
fn history(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let series = call.server.times.spikes.of(call.args.at(2)).unwrap_or_default();
    call.reply.array(series.samples.len());
    for (at, millis) in series.samples {
        call.reply.array(2);
        call.reply.integer(at as i64);
        call.reply.integer(millis as i64);
    }
    Ok(())
}

/// LATENCY LATEST: of each event its last sample and the longest.
fn latest(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let all = call.server.times.spikes.all();
    call.reply.array(all.len());
    for (event, series) in all {
        let (at, millis) = series.samples.back().copied().unwrap_or_default();
        call.reply.array(4);
        call.reply.bulk(event.as_bytes());
        for number in [at, millis, series.millis_max] {
            call.reply.integer(number as i64);
        }
    }
    Ok(())
}

/// LATENCY RESET [event …]: replies with the number of events.
fn reset(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let spikes = &call.server.times.spikes;
    let count = match call.args.len() {
        2 => spikes.reset_all(),
        _ => call.args.from(2).filter(|event| spikes.reset(event)).count(),
    };
    call.reply.count(count);
    Ok(())
}
