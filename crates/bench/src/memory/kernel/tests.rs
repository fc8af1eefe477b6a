//! The bytes that the loops store and read, and their numbers of instructions.

use super::*;
use duramen_media::Persistent as _;
use duramen_media::{MediaOptions, MediumKind};
use std::path::Path;
use std::process::Command;

fn medium(bytes: u64) -> Mapped {
    let options = MediaOptions {
        kind: MediumKind::Volatile,
        len_initial: bytes,
        len_max: bytes,
        huge_pages: false,
        ..MediaOptions::default()
    };
    Mapped::open(Path::new("test"), &options).unwrap()
}

fn content(medium: &Mapped) -> Vec<u8> {
    let bytes = medium.len();
    // SAFETY: nothing stores to the medium while the slice lives.
    unsafe { medium.bytes(Offset(0), bytes) }.to_vec()
}

fn sizes() -> impl Iterator<Item = u64> {
    (3..=14).map(|shift| 1 << shift)
}

#[test]
fn every_form_of_every_store_writes_exactly_its_bytes() {
    const BYTES: u64 = 256 << 10;
    for width in Width::available() {
        for persist in Persist::ALL.into_iter().filter(|p| p.missing().is_none()) {
            for bytes in sizes() {
                for chained in [false, true] {
                    let mut medium = medium(BYTES);
                    let mut offsets = vec![bytes * 3, bytes * 7, bytes];
                    let wanted = offsets.clone();
                    let memory = Memory::hold(&mut medium, 0..BYTES);
                    if chained {
                        let step = ChainStep { bytes, write: Some(persist), dram: false, wait_ticks: 0 };
                        let chain = Chain::new(&[step], width, true);
                        let bound = chain.bind(&memory, None, &mut offsets);
                        assert_eq!(bound.operations(), 3);
                        bound.run();
                    } else {
                        memory.bind(&mut offsets, bytes).write(width, persist);
                    }
                    drain();
                    let content = content(&medium);
                    let stored = |at: u64| wanted.iter().any(|from| (*from..from + bytes).contains(&at));
                    let wrong = (0..BYTES).find(|at| (content[*at as usize] == 0xFF) != stored(*at));
                    assert_eq!(wrong, None, "{width} {persist} {bytes} chained {chained}");
                }
            }
        }
    }
}

#[test]
fn reads_change_nothing_and_terminate() {
    const BYTES: u64 = 256 << 10;
    let mut medium = medium(BYTES);
    for at in (0..BYTES).step_by(8) {
        medium.store_u64(Offset(at), at.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    }
    let before = content(&medium);
    for width in Width::available() {
        for bytes in sizes() {
            let memory = Memory::hold(&mut medium, 0..BYTES);
            let offsets: Vec<u64> = (0..BYTES / bytes).map(|i| i * bytes).collect();
            memory.bind(&mut offsets.clone(), bytes).read(width);
            memory.bind(&mut offsets.clone(), bytes).chase(width);
            let step = ChainStep { bytes, write: None, dram: false, wait_ticks: 0 };
            let chain = Chain::new(&[step, step], width, true);
            let mut two = offsets.clone();
            two.extend_from_slice(&offsets);
            chain.bind(&memory, None, &mut two).run();
        }
    }
    assert!(content(&medium) == before, "a read stored something");
}

#[test]
#[should_panic(expected = "an access of 64 bytes at 4096 of 4096")]
fn an_address_outside_is_refused_before_anything_runs() {
    let mut medium = medium(4096);
    let memory = Memory::hold(&mut medium, 0..4096);
    memory.bind(&mut [0, 4096], 64).read(Width::Plain);
}

#[test]
#[should_panic(expected = "an access of 64 bytes at 8 of 4096")]
fn an_unaligned_address_is_refused() {
    let mut medium = medium(4096);
    let memory = Memory::hold(&mut medium, 0..4096);
    memory.bind(&mut [8], 64).read(Width::Plain);
}

/// The instructions of the innermost loop of a function, from the disassembly of this program.
fn innermost_loop(function: Loop) -> Vec<String> {
    let program = std::env::current_exe().unwrap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let name = program.to_str().unwrap();
    let base =
        maps.lines().find(|line| line.ends_with(name)).and_then(|line| line.split('-').next()).unwrap();
    let at = function as usize as u64 - u64::from_str_radix(base, 16).unwrap();
    let output = Command::new("objdump")
        .args([
            "-d",
            "--no-show-raw-insn",
            &format!("--start-address={at:#x}"),
            &format!("--stop-address={:#x}", at + 4096),
        ])
        .arg(&program)
        .output()
        .expect("objdump, of binutils, which every linker comes with");
    let text = String::from_utf8(output.stdout).unwrap();
    // "  1234:\tmov    (%rdi,%rax,8),%rcx"
    let lines: Vec<(u64, String)> = text
        .lines()
        .filter_map(|line| {
            let (address, instruction) = line.trim().split_once(":\t")?;
            Some((u64::from_str_radix(address, 16).ok()?, instruction.trim().to_owned()))
        })
        .collect();
    let (jump, target) = lines
        .iter()
        .enumerate()
        .find_map(|(index, (_, instruction))| {
            let mut words = instruction.split_whitespace();
            let mnemonic = words.next()?;
            if !matches!(mnemonic, "jne" | "b.ne") {
                return None;
            }
            Some((index, u64::from_str_radix(words.next()?.trim_start_matches("0x"), 16).ok()?))
        })
        .expect("a loop");
    let first = lines.iter().position(|(address, _)| *address == target).expect("a loop that begins here");
    lines[first..=jump].iter().map(|(_, instruction)| instruction.clone()).collect()
}

#[test]
fn a_loop_has_three_instructions_beyond_its_accesses() {
    println!("instructions of a loop: accesses, flushes and fence, beyond");
    for width in Width::available() {
        for bytes in [64, 256, 1024] {
            let functions = functions(width, bytes);
            let accesses = (bytes / width.bytes()) as usize;
            let lines = (bytes / LINE_BYTES) as usize;
            let with_addresses = innermost_loop(functions.read);
            println!("read {bytes} {width}: {accesses}, 0, {}", with_addresses.len() - accesses);
            if bytes == 64 {
                println!("    {}", with_addresses.join("; "));
            }
            assert_eq!(with_addresses.len(), accesses + 3, "{with_addresses:?}");
            for persist in Persist::ALL {
                let found = innermost_loop(functions.write[persist as usize]);
                let around = match persist {
                    Persist::Cache | Persist::CacheInvalidate => {
                        lines * if cfg!(target_arch = "aarch64") { 2 } else { 1 } + 1
                    }
                    Persist::NoCache => 1,
                    Persist::None => 0,
                };
                println!(
                    "write {bytes} {width} {persist}: {accesses}, {around}, {}",
                    found.len() - accesses - around
                );
                assert_eq!(found.len(), accesses + around + 3, "{found:?}");
            }
        }
    }
}
