//! The time of an open. The skip list writes nothing when it is closed, so a clean end and a crash are the same for it.

use crate::{Common, spread};
use duramen_bench::kv::place::Place;
use duramen_bench::kv::recovery::recover_copy;
use duramen_bench::kv::{
    DuramenEngine, Engine, Failure, Latency, Options, Pace, Plan, Records, Result, Session, Shape, Unwatched,
    Workload, run,
};
use duramen_bench_peers::hyper::{Hyper, medium};
use duramen_media::Create;
use std::time::Instant;

/// Measures and prints.
pub fn measure(common: &Common, record: Shape) -> Result<()> {
    let records = Records::new(record);
    let load = Plan::new(Workload::named("insert")?, common.keys, common.keys, 1, common.seed)?;
    println!(
        "{} records of {record}; milliseconds from the call of open to the first value read",
        common.keys
    );
    hyper(common, &records, &load)?;
    duramen(common, &records, &load)
}

/// Reads one key.
fn first_get<E: Engine>(engine: &E, records: &Records, number: u64) -> Result<()> {
    let (mut key, mut value) = (Vec::new(), Vec::new());
    records.key(number, &mut key);
    if !engine.session()?.get(&key, &mut value)? {
        return Err(Failure::new(format!("key {number} is missing after an open; no figures are given")));
    }
    records.check_whole(number, &value)
}

fn millis(begun: Instant) -> f64 {
    begun.elapsed().as_secs_f64() * 1e3
}

fn hyper(common: &Common, records: &Records, load: &Plan) -> Result<()> {
    let path = common.path.join("hyperkv");
    let options = duramen_hyperkv::Options::default();
    {
        let made = Hyper::open(medium(&path, Create::CreateNew, common.flush_instruction)?, &options)?;
        run(&made, records, load, Latency::None, Pace::Closed, &Unwatched)?;
    }
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..common.rounds {
        for (rebuild, times) in [false, true].into_iter().zip(&mut times) {
            let begun = Instant::now();
            let options = duramen_hyperkv::Options { rebuild, ..options.clone() };
            let store = Hyper::open(medium(&path, Create::OpenExisting, common.flush_instruction)?, &options)?;
            first_get(&store, records, u64::from(round) * 7919 % common.keys)?;
            times.push(millis(begun));
        }
    }
    println!("hyperkv, log alone                        {:>28}", spread(&times[0], 2));
    println!("hyperkv, and free lists                   {:>28}", spread(&times[1], 2));
    let _ = std::fs::remove_file(&path);
    Ok(())
}

fn duramen(common: &Common, records: &Records, load: &Plan) -> Result<()> {
    let path = common.path.join("duramen");
    let options = Options { create: Create::CreateNew, ..common.duramen() };
    let engine = DuramenEngine::open(&path, &options, false)?;
    run(&engine, records, load, Latency::None, Pace::Closed, &Unwatched)?;
    let place = Place { path: path.clone(), options: common.duramen() };
    let (mut killed, mut closed) = (Vec::new(), Vec::new());
    for _ in 0..common.rounds {
        killed.push(recover_copy(&place, &path, 1, common.keys)?.seconds * 1e3);
    }
    engine.close()?;
    for round in 0..common.rounds {
        let begun = Instant::now();
        let options = Options { create: Create::OpenExisting, ..common.duramen() };
        let engine = DuramenEngine::open(&path, &options, false)?;
        first_get(&engine, records, u64::from(round) * 7919 % common.keys)?;
        closed.push(millis(begun));
        engine.close()?;
    }
    println!("duramen, ordered, after a clean close     {:>28}", spread(&closed, 2));
    println!("duramen, ordered, never closed (no get)   {:>28}", spread(&killed, 2));
    let _ = std::fs::remove_file(&path);
    Ok(())
}
