//! Gets with caches of several sizes, in CPU time of the thread, which other processes disturb less than wall-clock
//! time. The skip list in place is loaded once and gets one cache after the other; Duramen has a store for each.

use crate::{Common, spread};
use duramen_bench::kv::contender::{Contender, Opened};
use duramen_bench::kv::place::Place;
use duramen_bench::kv::variants::named;
use duramen_bench::kv::{
    Latency, Outcome, Pace, Plan, Records, Result, Shape, Unwatched, Workload, check_all, run,
};
use duramen_bench_peers::hyper::{Hyper, medium};
use duramen_hyperkv::Options;
use duramen_media::{Create, Mapped};

const SIZES: [(&str, usize); 6] =
    [("0", 0), ("16Ki", 1 << 14), ("64Ki", 1 << 16), ("256Ki", 1 << 18), ("1Mi", 1 << 20), ("4Mi", 1 << 22)];

/// Gets with uniform keys, and with popular keys.
const WORKLOADS: [&str; 2] = ["get", "ycsb-c"];

/// Nanoseconds of CPU time of a get, by workload, size and round.
type Times = [[Vec<f64>; SIZES.len()]; WORKLOADS.len()];

/// Measures all sizes in turn.
pub fn measure(common: &Common, record: Shape) -> Result<()> {
    let records = Records::new(record);
    let plan = |workload, ops| Plan::new(Workload::named(workload)?, common.keys, ops, 1, common.seed);
    let load = plan("insert", common.ops())?;
    let plans = [plan(WORKLOADS[0], common.ops())?, plan(WORKLOADS[1], common.ops())?];
    let medium = medium(&common.path.join("hyperkv"), Create::CreateNew, common.flush_instruction)?;
    let mut hyper = Hyper::open(medium, &Options { cache_slots: 0, ..Options::default() })?;
    run(&hyper, &records, &load, Latency::None, Pace::Closed, &Unwatched)?;
    let place = Place { path: common.path.join("duramen"), options: common.duramen() };
    let contenders: Vec<Box<dyn Contender>> = SIZES
        .iter()
        .map(|(size, _)| named(&format!("ordered-cache-{size}"), &place))
        .collect::<Result<_>>()?;
    let mut stores = Vec::new();
    for (contender, (_, slots)) in contenders.iter().zip(SIZES) {
        let store = contender.open(true)?;
        store.run(&records, &load, Latency::None, Pace::Closed, &Unwatched)?;
        store.check_all(&records, keys_to_warm(slots, common.keys))?;
        stores.push(store);
    }
    let (mut peer, mut ours) = (Times::default(), Times::default());
    for _ in 0..common.rounds {
        for (at, (_, slots)) in SIZES.iter().enumerate() {
            warm(&mut hyper, *slots, &records, common.keys)?;
            for (plan, (peer, ours)) in plans.iter().zip(peer.iter_mut().zip(&mut ours)) {
                let own = |store: &dyn Opened| -> Result<Outcome> {
                    store.run(&records, plan, Latency::None, Pace::Closed, &Unwatched)
                };
                let found = run(&hyper, &records, plan, Latency::None, Pace::Closed, &Unwatched)?;
                peer[at].push(found.cpu_nanos_per_op());
                ours[at].push(own(&*stores[at])?.cpu_nanos_per_op());
            }
        }
    }
    println!(
        "{} records of {record}; CPU time of a get in ns, and how many times as long it was without a cache in the same round",
        common.keys
    );
    print("hyperkv", &peer);
    print("duramen, ordered", &ours);
    Ok(())
}

/// Sets the store's cache, and reads enough keys to fill it.
fn warm(hyper: &mut Hyper<Mapped>, slots: usize, records: &Records, keys: u64) -> Result<()> {
    hyper.set_cache_slots(slots);
    check_all(hyper, records, keys_to_warm(slots, keys))
}

/// Four keys per slot leave one slot in fifty empty.
fn keys_to_warm(slots: usize, keys: u64) -> u64 {
    keys.min(4 * slots as u64)
}

fn print(engine: &str, times: &Times) {
    for (workload, times) in WORKLOADS.iter().zip(times) {
        for ((size, _), samples) in SIZES.iter().zip(times) {
            let gains: Vec<f64> = samples.iter().zip(&times[0]).map(|(with, none)| none / with).collect();
            println!(
                "{engine:<18} {workload:<8} {size:>6} {:>26} {:>26}",
                spread(samples, 0),
                spread(&gains, 2)
            );
        }
    }
}
