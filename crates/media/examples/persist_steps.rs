//! What each persist step costs on a medium: nanoseconds for one record written and drained, by size.
//!
//! Records are appended one behind the other, as the log does, in three parts (header, key, value), over
//! a range much larger than the caches. Steps take turns within a round, so that
//! noise of the machine hits all; the median of the rounds is shown. Sizes that
//! are multiples of 64 fill whole lines; the others share their first and last line with a neighbour.
//!
//! Run: `cargo run --release -p duramen-media --example persist_steps [PATH [MEBIBYTES [ROUNDS]]]`

use duramen_media::{
    Bytes, Create, Device, FlushInstruction, LINE_BYTES, Mapped, MediaOptions, Offset, Persistent,
};
use std::error::Error;
use std::path::PathBuf;
use std::time::Instant;

const SIZES: [u64; 17] =
    [64, 128, 136, 256, 264, 512, 520, 1024, 1032, 1544, 2048, 2056, 2312, 2824, 3592, 4096, 4104];
const RECORDS: u64 = 20_000;

fn measure(medium: &Mapped, record_bytes: u64, at: &mut u64) -> f64 {
    let bytes = vec![0x5Au8; record_bytes as usize];
    *at = at.next_multiple_of(LINE_BYTES);
    let (header, rest) = bytes.split_at(32);
    let (key, value) = rest.split_at(16);
    let start = Instant::now();
    for _ in 0..RECORDS {
        if *at + record_bytes > medium.len() {
            *at = 0;
        }
        medium.write(Offset(*at), &[header, key, value]);
        medium.drain();
        *at += record_bytes.next_multiple_of(8);
    }
    start.elapsed().as_nanos() as f64 / RECORDS as f64
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = PathBuf::from(arguments.next().unwrap_or_else(|| "/dev/shm/duramen-persist-steps".to_owned()));
    let mebibytes: u64 = arguments.next().map_or(Ok(256), |a| a.parse())?;
    let rounds: usize = arguments.next().map_or(Ok(15), |a| a.parse())?;
    let mut steps = FlushInstruction::available();
    steps.sort_by_key(|step| *step != FlushInstruction::OrderOnly);

    // medians[size][step]
    let mut nanoseconds = vec![vec![Vec::new(); steps.len()]; SIZES.len()];
    for round in 0..rounds {
        for (index, step) in steps.iter().enumerate() {
            let options = MediaOptions {
                create: if round + index == 0 { Create::CreateNew } else { Create::OpenExisting },
                len_initial: mebibytes << 20,
                flush_instruction: Some(*step),
                prefault: true,
                ..MediaOptions::default()
            };
            let medium = Mapped::open(&path, &options)?;
            if round + index == 0 {
                println!("{}", medium.describe());
                println!("{}", medium.small_pages_advice().unwrap_or_default());
            }
            let mut place = 0;
            for (size, all) in SIZES.iter().zip(&mut nanoseconds) {
                if let Some(times) = all.get_mut(index) {
                    times.push(measure(&medium, *size, &mut place));
                }
            }
        }
    }
    std::fs::remove_file(&path)?;

    print!("bytes");
    steps.iter().for_each(|step| print!("\t{step}"));
    println!("\t(ns per record, median of {rounds} rounds of {RECORDS})");
    for (size, all) in SIZES.iter().zip(&mut nanoseconds) {
        print!("{size}");
        for times in all {
            times.sort_by(f64::total_cmp);
            print!("\t{:.0}", times.get(times.len() / 2).copied().unwrap_or_default());
        }
        println!();
    }
    Ok(())
}
