#![allow(clippy::all, clippy::unwrap_used)]
use duramen::{Create, Options};
use duramen_media::{Mapped, MediaOptions, Medium, Offset};
use std::time::Instant;
fn mix(i: u64) -> u64 {
    let x = (i ^ (i >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}
fn key(i: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&mix(i).to_le_bytes());
    key[8..].copy_from_slice(&i.to_le_bytes());
    key
}
fn main() {
    let n: u64 = std::env::args().nth(1).map_or(10_000_000, |a| a.parse().unwrap());
    let rounds: u64 = std::env::args().nth(2).map_or(3, |a| a.parse().unwrap());
    let path = std::env::args().nth(3).unwrap_or("/dev/shm/scratch-store".into());
    let step = std::env::args().nth(4).unwrap_or("clwb".into());
    let bpath = format!("{path}.bounds");
    let _ = std::fs::remove_file(&path);
    let _ = std::fs::remove_file(&bpath);
    let options = Options {
        create: Create::CreateNew,
        persist_step: Some(step.parse().unwrap()),
        ..Options::default()
    };
    let store = options.open(&path).unwrap();
    println!("{}", store.describe());
    let mut writer = store.writer().unwrap();
    let bytes = 2u64 << 30;
    let media = MediaOptions { persist_step: Some(step.parse().unwrap()), ..MediaOptions::default() };
    let medium = Mapped::open(std::path::Path::new(&bpath), &media).unwrap();
    medium.grow(bytes + (1 << 30)).unwrap();
    let lines = bytes / 64;
    let mut order: Vec<u32> = (0..lines as u32).collect();
    for i in (1..lines as usize).rev() {
        order.swap(i, (mix(i as u64) % (i as u64 + 1)) as usize);
    }
    for pair in order.windows(2) {
        medium.store_u64(Offset(u64::from(pair[0]) * 64), u64::from(pair[1]) * 64);
    }
    let first = u64::from(order[0]) * 64;
    drop(order);
    let t = Instant::now();
    for i in 0..n {
        writer.put(&key(i), &[7; 200]).unwrap();
    }
    let insert = t.elapsed().as_nanos() as f64 / n as f64;
    let ops = 500_000u64.min(n);
    let quiet = |act: &str| {
        std::process::Command::new("python3").args(["/tmp/quiet.py", act]).status().unwrap();
    };
    quiet("stop");
    let mut copy = Vec::with_capacity(256);
    let mut res: Vec<(&str, Vec<f64>)> = vec![];
    let mut rec = |name: &'static str, t: Instant, ops: u64| {
        let v = t.elapsed().as_nanos() as f64 / ops as f64;
        match res.iter_mut().find(|(n, _)| *n == name) {
            Some((_, l)) => l.push(v),
            None => res.push((name, vec![v])),
        }
    };
    for r in 0..rounds {
        let base = r * 1_234_567;
        let t = Instant::now();
        let mut at = first;
        for _ in 0..ops {
            at = medium.load_u64(Offset(at));
        }
        std::hint::black_box(at);
        rec("L", t, ops);
        let t = Instant::now();
        for i in 0..ops {
            medium.write(Offset(bytes + (r * ops + i) * 256 % (1 << 30)), &[&[3; 256]]);
            medium.drain();
        }
        rec("W", t, ops);
        // restore chain destroyed? only the first part: skip
        let t = Instant::now();
        for i in 0..ops {
            medium.publish(Offset(mix(i + base) % lines * 64 + 8), i);
        }
        rec("R", t, ops);
        let t = Instant::now();
        for i in 0..ops {
            assert!(store.get_into(&key(mix(i + base) % n), &mut copy).unwrap());
        }
        rec("get", t, ops);
        let keep = store.get(&key(1)).unwrap();
        let t = Instant::now();
        for i in 0..ops {
            assert!(store.get_into(&key(mix(i + base + 5_000_000) % n), &mut copy).unwrap());
        }
        rec("get pinned", t, ops);
        drop(keep);
        let t = Instant::now();
        for c in 0..ops / 32 {
            let keys: Vec<_> = (0..32).map(|i| key(mix(c * 32 + i + base + 10_000_000) % n)).collect();
            let keys: Vec<&[u8]> = keys.iter().map(|k| &k[..]).collect();
            for value in store.get_many(&keys).unwrap().into_iter().flatten() {
                copy.clear();
                copy.extend_from_slice(&value);
            }
        }
        rec("get_many", t, ops);
        let t = Instant::now();
        for i in 0..ops {
            writer.put(&key(mix(i + base + 20_000_000) % n), &[8; 200]).unwrap();
        }
        rec("overwrite", t, ops);
        let t = Instant::now();
        for i in 0..ops {
            writer.put(&key(n + i), &[8; 200]).unwrap();
        }
        rec("insert", t, ops);
        let t = Instant::now();
        for i in 0..ops {
            writer.delete(&key(n + i)).unwrap();
        }
        rec("delete recent", t, ops);
        let t = Instant::now();
        for i in 0..ops {
            writer.delete(&key((mix(i + base + 30_000_000)) % n)).unwrap();
        }
        rec("delete", t, ops);
        for i in 0..ops {
            writer.put(&key((mix(i + base + 30_000_000)) % n), &[9; 200]).unwrap();
        }
    }
    quiet("cont");
    println!("growth insert {insert:.0} ns");
    for (name, mut v) in res {
        v.sort_by(f64::total_cmp);
        println!("{name:15} min {:.0} med {:.0} max {:.0}", v[0], v[v.len() / 2], v[v.len() - 1]);
    }
    drop(store);
    std::fs::remove_file(&path).unwrap();
    std::fs::remove_file(&bpath).unwrap();
}
