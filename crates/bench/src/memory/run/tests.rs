//! Workloads run as specified: counts, places, ends, latencies, emulation.

use super::*;
use crate::memory::plan::{Overrides, benchmarks};

fn run(text: &str) -> Vec<Outcome> {
    let mut bench = Bench::new(Target::default());
    let all = benchmarks("test.yaml", text, &Overrides::default()).unwrap();
    all.iter().flat_map(|benchmark| bench.run(benchmark, &Unwatched).unwrap()).collect()
}

fn args(args: &str) -> Vec<Outcome> {
    run(&format!("a:\n  args: {{ memory_range: 16M, min_io_chunk_size: 1M, {args} }}\n"))
}

#[test]
fn a_sequential_workload_goes_once_through_its_range() {
    for mode in ["sequential", "sequential_desc"] {
        for (operation, threads, partitions) in
            [("read", 1, 1), ("write", 2, 1), ("write", 4, 2), ("read", 2, 0)]
        {
            let found = args(&format!(
                "exec_mode: {mode}, operation: {operation}, number_threads: {threads}, number_partitions: {partitions}"
            ));
            assert_eq!((found[0].operations, found[0].bytes), (65536, 16 << 20));
            assert!(found[0].complete && found[0].bandwidth() > 1e6);
        }
    }
}

#[test]
fn sequential_writes_reach_every_byte() {
    for mode in ["sequential", "sequential_desc"] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, vec![0; 8 << 20]).unwrap();
        let target = Target { path: Some(path.clone()), overwrite: true, ..Target::default() };
        let text = format!(
            "a:\n  args: {{ memory_range: 4M, min_io_chunk_size: 64K, exec_mode: {mode}, operation: write, \
             persist_instruction: none, number_threads: 3, access_size: 128 }}\n"
        );
        let all = benchmarks("test.yaml", &text, &Overrides::default()).unwrap();
        Bench::new(target).run(&all[0], &Unwatched).unwrap();
        let content = std::fs::read(&path).unwrap();
        assert!(content[..4 << 20].iter().all(|byte| *byte == 0xFF), "{mode}");
        assert!(content[4 << 20..].iter().all(|byte| *byte == 0), "{mode}: behind the range");
    }
}

#[test]
fn random_and_custom_workloads_do_their_operations() {
    for (text, bytes) in [
        ("exec_mode: random, access_size: 64", 64),
        ("exec_mode: random, access_size: 8, operation: write, persist_instruction: none", 8),
        ("exec_mode: random, random_distribution: zipfian, zipf_alpha: 1.1", 256),
        ("exec_mode: dependent_reads, access_size: 4K", 4096),
        ("custom_ops: 'r_256,w_64_none_128,w_64_none_-128'", 384),
        ("custom_ops: 'w_64_none_-128,r_64,a_256_none'", 384),
        ("custom_ops: 'rd_64,r_256,wd_64_none', dram_memory_range: 1M", 384),
        ("exec_mode: random, dram_operation_ratio: 0.3, dram_memory_range: 1M", 256),
        ("custom_ops: r_8192, dependent_operations: true", 8192),
    ] {
        let found = args(&format!("{text}, number_operations: 10007, number_threads: 2"));
        assert!((10006..=10007).contains(&found[0].operations), "{text}: {}", found[0].operations);
        assert_eq!(found[0].bytes, found[0].operations * bytes, "{text}");
    }
}

#[test]
fn places_of_a_chain_stay_inside_also_in_the_smallest_range() {
    // bind panics in the worker if an access is outside; the outcome is then incomplete.
    let found = run(
        "a:\n  matrix:\n    custom_ops: ['r_256,w_64_none_1024,w_64_none_-2048', 'w_64_none_-4096,r_1024']\n  \
         args: { memory_range: 8K, number_operations: 20000 }\n",
    );
    assert!(found.iter().all(|outcome| outcome.complete && outcome.operations == 20000));
}

#[test]
fn a_run_time_ends_a_workload() {
    for mode in ["exec_mode: sequential", "exec_mode: random", "custom_ops: 'r_64,w_64_none'"] {
        let start = Instant::now();
        let found = args(&format!("{mode}, run_time: 0.1, number_threads: 2"));
        assert!((0.09..3.0).contains(&start.elapsed().as_secs_f64()), "{mode}");
        assert!(found[0].complete && found[0].operations > 1000, "{mode}");
    }
}

#[test]
fn latencies_are_sampled_and_an_emulated_tier_adds_to_them() {
    let median = |more: &str| {
        let found =
            args(&format!("custom_ops: r_64, number_operations: 50000, latency_sample_frequency: 10{more}"));
        let latencies = found[0].latencies.as_ref().unwrap();
        assert_eq!(latencies.len(), 5000);
        latencies.value_at_quantile(0.5)
    };
    let (plain, slow) = (median(""), median(", emulate_latency_ns: 3000"));
    assert!((2900..6000).contains(&(slow - plain.min(slow))), "{plain} {slow}");
    let found = args("exec_mode: random, number_operations: 100000, emulate_bandwidth: 64M");
    assert!((0.5..1.01).contains(&(found[0].bandwidth() / f64::from(64 << 20))), "{}", found[0].bandwidth());
}

#[test]
fn two_workloads_run_at_once() {
    let found = run(
        "a:\n  parallel_benchmark:\n    log:\n      args: { memory_range: 4M, min_io_chunk_size: 1M, \
         operation: write, run_time: 0.2 }\n    scan:\n      args: { memory_range: 8M, min_io_chunk_size: 1M, run_time: 0.2 }\n",
    );
    assert_eq!(found.len(), 2);
    assert!(found.iter().all(|outcome| outcome.complete && outcome.bytes > 8 << 20));
}

#[test]
fn first_touch_counts_page_faults_and_prefaulting_avoids_them() {
    let text = "exec_mode: sequential, operation: write, huge_pages: false, access_size: 4K";
    let cold = args(&format!("{text}, prefault_memory: false"))[0].page_faults;
    // 16 MiB in pages of 4 KiB, less one huge page's worth, which existed when the medium was opened.
    assert!(cold >= 3000, "{cold}");
}

#[test]
fn a_stopped_run_keeps_its_points_and_is_marked_incomplete() {
    struct AtOnce;
    impl Watch for AtOnce {
        fn stop(&self) -> bool {
            true
        }
        fn progress(&self, _share: f64) {}
    }
    let text = "a:\n  args: { memory_range: 16M, exec_mode: random, run_time: 60 }\n";
    let all = benchmarks("test.yaml", text, &Overrides::default()).unwrap();
    let start = Instant::now();
    let found = Bench::new(Target::default()).run(&all[0], &AtOnce).unwrap();
    assert!(start.elapsed() < Duration::from_secs(10));
    assert!(!found[0].complete && found[0].operations > 0);
}
