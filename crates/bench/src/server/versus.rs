//! Compares servers: all are started, and each has its turn while the others are stopped (SIGSTOP).
//!
//! At each point of the matrix the servers take turns, A B A B, in at least five rounds. So other load on the machine
//! affects all of them. Ratios are made within a round; their median, lowest and highest are reported.

use crate::report::{Better, Latency, Measurement, Metric, Unit};
use crate::server::client::{self, Watch};
use crate::server::plan::Plan;
use crate::server::servers::{Running, Server, cores, pin};
use crate::server::{Command, Failure, Protocol, Result};
use hdrhistogram::Histogram;
use std::cell::Cell;
use std::path::PathBuf;

/// The servers to compare, and the settings.
#[derive(Clone, Debug)]
pub struct Versus {
    /// The servers; each is compared with the first.
    pub servers: Vec<Server>,
    /// The directory for their data.
    pub place: PathBuf,
    /// The first port; each server takes the next.
    pub port: u16,
    /// The commands to send.
    pub commands: Vec<Command>,
    /// The numbers of commands in flight.
    pub pipelines: Vec<u32>,
    /// The number of turns of each server.
    pub rounds: u32,
    /// All other knobs. The address is not used.
    pub plan: Plan,
}

/// The measurements, and notes for the reader.
pub type Found = (Vec<Measurement>, Vec<String>);

/// One turn of one server.
struct Turn {
    rate: f64,
    cpu_ns: f64,
    client_busy: f64,
    latency: Histogram<u64>,
}

/// Runs the comparison. `progress` receives the name of the current measurement and the share that is done. `stop` is
/// called between turns; the points completed by then are kept.
///
/// # Errors
/// When a server cannot be started, or a load fails.
pub fn compare(versus: &Versus, progress: &dyn Fn(&str, f64), stop: &dyn Fn() -> bool) -> Result<Found> {
    if versus.servers.is_empty() || versus.rounds == 0 {
        return Err(Failure::usage("nothing to compare: wanted at least one server and one round"));
    }
    let mut notes = Vec::new();
    let cores = cores();
    let (server_core, client_core) = match cores.as_slice() {
        [] | [_] => {
            notes.push(
                "servers and client share one core and wait for each other: the figures mean little"
                    .to_owned(),
            );
            (None, None)
        }
        [.., client, server] => (Some(*server), Some(*client)),
    };
    let mut running = Vec::new();
    for (index, server) in versus.servers.iter().enumerate() {
        let port = versus
            .port
            .checked_add(index as u16)
            .ok_or_else(|| Failure::usage("no port is left above 65,535"))?;
        running.push(Running::start(server, &versus.place, port, server_core)?);
    }
    if let Some(core) = client_core {
        pin(core).map_err(|error| Failure::new(format!("cannot tie the client to core {core}: {error}")))?;
        let server = server_core.unwrap_or(core);
        notes.push(format!("servers on core {server}, the client on core {core}; a server is stopped while another has its turn"));
    }
    running.iter().for_each(Running::pause);
    let points: Vec<(Command, u32)> = versus
        .commands
        .iter()
        .flat_map(|command| versus.pipelines.iter().map(|depth| (*command, *depth)))
        .collect();
    let turns_all = (points.len() * versus.servers.len()) as f64 * f64::from(versus.rounds);
    let mut turns_done = 0.0;
    let mut loaded = vec![false; versus.servers.len()];
    let mut measurements = Vec::new();
    'points: for (command, pipeline) in points {
        let mut turns: Vec<Vec<Turn>> = versus.servers.iter().map(|_| Vec::new()).collect();
        for round in 0..versus.rounds {
            for (index, server) in versus.servers.iter().enumerate() {
                if stop() {
                    break 'points;
                }
                progress(&format!("{command} × {pipeline}, {}", server.name), turns_done / turns_all);
                let plan = Plan {
                    address: running[index].address.clone(),
                    protocol: if server.name.contains("memcached") {
                        Protocol::Memcached
                    } else {
                        versus.plan.protocol
                    },
                    command,
                    pipeline,
                    load: !loaded[index],
                    seed: versus.plan.seed + u64::from(round),
                    ..versus.plan.clone()
                };
                turns[index].push(turn(&running[index], &plan)?);
                loaded[index] |= command.sets_keys();
                turns_done += 1.0;
            }
        }
        measurements.extend(point(versus, command, pipeline, &turns)?);
    }
    let busiest =
        measurements.iter().filter_map(|m| Some(m.metrics.get("client_busy")?.max)).fold(0.0, f64::max);
    notes.push(format!(
        "the client's own core was busy at most {busiest:.0} % of a turn; above 95 % the client may be the limit"
    ));
    notes.extend(versus.servers.iter().map(|server| format!("{}: {}", server.name, server.durability)));
    Ok((measurements, notes))
}

fn turn(server: &Running, plan: &Plan) -> Result<Turn> {
    server.resume();
    let window = CpuWindow { server, begun: Cell::new(0), ended: Cell::new(0) };
    let outcome = client::run(plan, &window);
    server.pause();
    let outcome = outcome?;
    let cpu = window.ended.get().saturating_sub(window.begun.get());
    Ok(Turn {
        rate: outcome.rate(),
        cpu_ns: cpu as f64 / outcome.commands as f64,
        client_busy: outcome.client_busy * 100.0,
        latency: outcome.latency,
    })
}

/// Measures the server's time on its core while commands are counted.
struct CpuWindow<'a> {
    server: &'a Running,
    begun: Cell<u64>,
    ended: Cell<u64>,
}

impl Watch for CpuWindow<'_> {
    fn begin(&self) {
        self.begun.set(self.server.cpu_ns());
    }

    fn end(&self) {
        self.ended.set(self.server.cpu_ns());
    }
}

/// A measurement for each server, and one for each ratio to the first.
fn point(versus: &Versus, command: Command, pipeline: u32, turns: &[Vec<Turn>]) -> Result<Vec<Measurement>> {
    let named = |group: &str, name: &str| {
        Measurement::new(group, name)
            .with("pipeline", pipeline)
            .with("connections", versus.plan.connections)
            .with("value_size", versus.plan.value_bytes)
            .with("keys", versus.plan.keys)
    };
    let samples = |of: &dyn Fn(&Turn) -> f64, turns: &[Turn]| turns.iter().map(of).collect::<Vec<f64>>();
    let mut all = Vec::new();
    for (server, turns) in versus.servers.iter().zip(turns) {
        let mut measurement = named(&command.to_string(), &server.name);
        let mut metric = |name: &str, samples: &[f64], unit, better| {
            if let Some(metric) = Metric::from_samples(samples, unit, better) {
                measurement.metrics.insert(name.to_owned(), metric);
            }
        };
        metric("throughput", &samples(&|t| t.rate, turns), Unit::OperationsPerSecond, Better::Higher);
        metric("server_cpu_time", &samples(&|t| t.cpu_ns, turns), Unit::Nanoseconds, Better::Lower);
        metric("client_busy", &samples(&|t| t.client_busy, turns), Unit::Percent, Better::Lower);
        let mut merged: Option<Histogram<u64>> = None;
        for turn in turns {
            match &mut merged {
                None => merged = Some(turn.latency.clone()),
                Some(merged) => merged
                    .add(&turn.latency)
                    .map_err(|error| Failure::new(format!("cannot merge latencies of rounds: {error}")))?,
            }
        }
        if let Some(latency) = merged.as_ref().map(Latency::from_histogram).transpose()?.flatten() {
            measurement.latency.insert(command.to_string(), latency);
        }
        all.push(measurement);
    }
    let Some((first, others)) = turns.split_first() else { return Ok(all) };
    for (other, server) in others.iter().zip(&versus.servers[1..]) {
        let name = format!("{} / {}", versus.servers[0].name, server.name);
        let mut measurement = named(&format!("ratios of {command}"), &name);
        let ratio = |of: &dyn Fn(&Turn) -> f64| -> Vec<f64> {
            first.iter().zip(other).map(|(a, b)| of(a) / of(b)).filter(|ratio| ratio.is_finite()).collect()
        };
        let ratios = [
            ("throughput", ratio(&|t| t.rate), Better::Higher),
            ("server_cpu_time", ratio(&|t| t.cpu_ns), Better::Lower),
        ];
        for (name, samples, better) in ratios {
            if let Some(metric) = Metric::from_samples(&samples, Unit::Ratio, better) {
                measurement.metrics.insert(name.to_owned(), metric);
            }
        }
        all.push(measurement);
    }
    Ok(all)
}
