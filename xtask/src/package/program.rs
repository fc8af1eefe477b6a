//! The static program: with glibc, so that it runs on every Linux of its processor, in an empty image too.
//!
//! docs/internals/decisions/040-static-with-glibc.md has the reasons.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::tool::output;
use crate::cargo::cargo;
use crate::failure::{Attempt, Failure, Result};
use crate::server::find_program;
use crate::target::target;

/// A processor for which packages are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Processor {
    /// Intel's and AMD's.
    #[value(name = "x86_64")]
    X86,
    /// 64-bit Arm.
    #[value(name = "aarch64")]
    Arm,
}

impl Processor {
    /// That of this machine, if packages are made for it.
    pub fn here() -> Option<Processor> {
        [Processor::X86, Processor::Arm].into_iter().find(|one| one.linux() == std::env::consts::ARCH)
    }

    /// The kernel's name.
    pub fn linux(self) -> &'static str {
        match self {
            Processor::X86 => "x86_64",
            Processor::Arm => "aarch64",
        }
    }

    /// Debian's name, which container images use too.
    pub fn debian(self) -> &'static str {
        match self {
            Processor::X86 => "amd64",
            Processor::Arm => "arm64",
        }
    }

    fn triple(self) -> String {
        format!("{}-unknown-linux-gnu", self.linux())
    }

    // ELF's e_machine.
    fn machine(self) -> u16 {
        match self {
            Processor::X86 => 62,
            Processor::Arm => 183,
        }
    }
}

/// Features of the program in the packages: all commands. Kafka's connectors need a C library that is built along.
pub const FEATURES: &str = "bench,sql";

/// Builds the program for this processor, with optimisation, and returns its path.
pub fn build(repository: &Path, processor: Processor) -> Result<PathBuf> {
    let triple = processor.triple();
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let library = output(Command::new(rustc).args(["--print", "target-libdir", "--target", &triple]))?;
    if !Path::new(&library).exists() {
        return Err(Failure::new(format!(
            "this toolchain has no standard library for {triple}; run `rustup target add {triple}`"
        )));
    }
    let mut build = cargo(repository);
    if Processor::here() != Some(processor) {
        let linker = format!("{}-linux-gnu-gcc", processor.linux());
        if find_program(&linker).is_none() {
            return Err(Failure::new(format!(
                "found no linker {linker} for {triple}; install Debian's package gcc-{}-linux-gnu",
                processor.linux().replace('_', "-")
            )));
        }
        let name = triple.to_uppercase().replace('-', "_");
        build.env(format!("CARGO_TARGET_{name}_LINKER"), linker);
    }
    // Paths of this machine are not part of the program: another directory gives the same bytes.
    let targets = target(repository, "")?;
    let home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")))
        .ok_or_else(|| Failure::new("neither CARGO_HOME nor HOME is set"))?;
    let flags = [
        "-C".to_owned(),
        "target-feature=+crt-static".to_owned(),
        format!("--remap-path-prefix={}=/cargo", home.display()),
        format!("--remap-path-prefix={}=/target", targets.display().to_string().trim_end_matches('/')),
    ];
    let done = build
        // With a target of its own, build scripts and procedural macros are built without the flags.
        .args(["build", "--release", "--locked", "--package", "duramen-cli", "--features", FEATURES])
        .args(["--target", &triple])
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
        .env_remove("RUSTFLAGS")
        .stdin(Stdio::null())
        .status()
        .attempt(|| "run cargo build --release --package duramen-cli".to_owned())?;
    if !done.success() {
        return Err(Failure::new(format!("cannot build the program for {triple}: cargo build failed")));
    }
    Ok(targets.join(&triple).join("release/duramen"))
}

/// Refuses a program for another processor, or one that needs a dynamic linker.
pub fn demand_static(path: &Path, processor: Processor) -> Result<()> {
    let bytes = std::fs::read(path).attempt(|| format!("read {}", path.display()))?;
    match is_static(&bytes, processor.machine()) {
        Some(true) => Ok(()),
        Some(false) => Err(Failure::new(format!(
            "{} is linked dynamically; build it with -C target-feature=+crt-static",
            path.display()
        ))),
        None => Err(Failure::new(format!(
            "{} is no program for {} (64-bit ELF, little-endian)",
            path.display(),
            processor.linux()
        ))),
    }
}

/// Whether an ELF program has no interpreter; `None`: not a 64-bit program for this machine.
fn is_static(elf: &[u8], machine: u16) -> Option<bool> {
    const PT_INTERP: u32 = 3;
    let number = |at: usize, bytes: usize| -> Option<u64> {
        let field = elf.get(at..at.checked_add(bytes)?)?;
        Some(field.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    };
    if elf.get(..6)? != b"\x7fELF\x02\x01" || number(18, 2)? != u64::from(machine) {
        return None;
    }
    let (first, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    for index in 0..count {
        let at = usize::try_from(first.checked_add(index * size)?).ok()?;
        if number(at, 4)? == u64::from(PT_INTERP) {
            return Some(false);
        }
    }
    Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_with_an_interpreter_is_not_static() {
        let mut elf = vec![0; 64 + 2 * 56];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        elf[18] = 62;
        (elf[32], elf[54], elf[56]) = (64, 56, 2);
        elf[64] = 1;
        elf[64 + 56] = 2;
        assert_eq!(is_static(&elf, 62), Some(true));
        assert_eq!(is_static(&elf, 183), None);
        elf[64 + 56] = 3;
        assert_eq!(is_static(&elf, 62), Some(false));
        assert_eq!(is_static(&elf[..70], 62), None);
        // The test itself is linked dynamically.
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let machine = Processor::here().unwrap().machine();
        assert_eq!(is_static(&own, machine), Some(false));
    }
}
