//! The parts of the machine: programs and a kernel from Debian's packages, and the `duramen` built here.
//!
//! Everything is kept below `target/power-cut`, so that only the first run downloads and unpacks. Only packages of
//! missing programs are installed, and only if that needs no password.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::initramfs;
use super::programs::{find_in, program, run};
use crate::cargo::cargo;
use crate::failure::{Attempt, Failure, Result};

/// Programs, and the Debian packages that contain them.
const PROGRAMS: [(&str, &str); 9] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("ndctl", "ndctl"),
    ("busybox", "busybox-static"),
    ("mke2fs", "e2fsprogs"),
    ("cpio", "cpio"),
    ("gzip", "gzip"),
    ("depmod", "kmod"),
    ("xz", "xz-utils"),
    ("setpriv", "util-linux"),
];

/// The parts that a machine needs to start.
pub struct Kit {
    pub qemu: PathBuf,
    pub setpriv: PathBuf,
    pub kernel: PathBuf,
    pub initramfs: PathBuf,
    /// The directory of all parts; images go here, too.
    pub directory: PathBuf,
    /// The directory of this run alone, with the initramfs; removed at the end.
    _own: tempfile::TempDir,
}

/// The kit, or the reason why it cannot be had.
pub enum Outcome {
    Ready(Kit),
    Missing(String),
}

/// Collects the parts.
pub fn collect(duramen: Option<PathBuf>) -> Result<Outcome> {
    if std::env::consts::ARCH != "x86_64" {
        let found = std::env::consts::ARCH;
        return Ok(Outcome::Missing(format!("the machine is x86-64, this one is {found}")));
    }
    if let Err(why) = install_missing() {
        return Ok(Outcome::Missing(why));
    }
    let target = target_directory()?;
    let directory = target.join("power-cut");
    fs::create_dir_all(&directory).attempt(|| format!("make directory {}", directory.display()))?;
    let package = match kernel_package() {
        Ok(package) => package,
        Err(why) => return Ok(Outcome::Missing(why)),
    };
    let unpacked = directory.join(&package);
    if !unpacked.join("complete").is_file()
        && let Err(why) = unpack_kernel(&directory, &package, &unpacked)
    {
        return Ok(Outcome::Missing(why.to_string()));
    }
    let duramen = match duramen {
        Some(duramen) => duramen,
        None => build_duramen(&target)?,
    };
    let own = tempfile::Builder::new()
        .prefix("initramfs-")
        .tempdir_in(&directory)
        .attempt(|| format!("make a directory in {}", directory.display()))?;
    let initramfs = initramfs::build(own.path(), &unpacked, &duramen)?;
    Ok(Outcome::Ready(Kit {
        qemu: program("qemu-system-x86_64")?,
        setpriv: program("setpriv")?,
        kernel: unpacked.join("kernel"),
        initramfs,
        directory,
        _own: own,
    }))
}

/// Installs the packages of missing programs; an error gives the reason.
fn install_missing() -> std::result::Result<(), String> {
    let missing = |(name, _): &&(&str, &str)| program(name).is_err();
    let packages: Vec<&str> = PROGRAMS.iter().filter(missing).map(|(_, package)| *package).collect();
    if packages.is_empty() {
        return Ok(());
    }
    let list = packages.join(" ");
    let by_hand = format!("install it by hand: apt-get install --no-install-recommends {list}");
    if program("apt-get").is_err() {
        return Err(format!("{list} is missing, and there is no apt-get to install it"));
    }
    let root = rustix::process::geteuid().is_root();
    if !root && !succeeds(Command::new("sudo").args(["-n", "true"])) {
        return Err(format!("{list} is missing, and installing it needs root; {by_hand}"));
    }
    println!("power-cut: installing {list}");
    let apt = |arguments: &[&str]| {
        let mut command = if root { Command::new("apt-get") } else { Command::new("sudo") };
        if !root {
            command.args(["-n", "apt-get"]);
        }
        succeeds(command.args(["-qq", "-y"]).args(arguments).env("DEBIAN_FRONTEND", "noninteractive"))
    };
    let install: Vec<&str> =
        ["install", "--no-install-recommends"].into_iter().chain(packages.iter().copied()).collect();
    // The package lists may be old or missing; they are fetched only then.
    let installed = apt(&install) || (apt(&["update"]) && apt(&install));
    if !installed {
        return Err(format!("{list} is missing, and apt-get could not install it; {by_hand}"));
    }
    match PROGRAMS.iter().find(missing) {
        Some((name, package)) => Err(format!("package {package} is installed, and yet has no {name}")),
        None => Ok(()),
    }
}

/// The package with Debian's current kernel; an error gives the reason why there is none.
fn kernel_package() -> std::result::Result<String, String> {
    let why = "apt-cache names no package for linux-image-amd64; run this on Debian, after apt-get update";
    let output = Command::new("apt-cache")
        .args(["depends", "linux-image-amd64"])
        .output()
        .map_err(|e| format!("cannot run apt-cache: {e}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let package = text.lines().find_map(|line| line.trim().strip_prefix("Depends: "));
    package.map(str::to_owned).ok_or_else(|| why.to_owned())
}

/// Downloads and unpacks the kernel's package into `unpacked`.
fn unpack_kernel(directory: &Path, package: &str, unpacked: &Path) -> Result<()> {
    println!("power-cut: downloading {package}");
    let _ = fs::remove_dir_all(unpacked);
    fs::create_dir_all(unpacked).attempt(|| format!("make directory {}", unpacked.display()))?;
    run(Command::new("apt-get").current_dir(directory).args(["-qq", "download", package]))?;
    let file = find_in(directory, |name| name.starts_with(package) && name.ends_with(".deb"))?;
    run(Command::new("dpkg").arg("-x").arg(&file).arg(unpacked))?;
    let _ = fs::remove_file(&file);
    let modules = find_in(&unpacked.join("lib/modules"), |_| true)?;
    let version = modules.file_name().unwrap_or_default();
    // The package's own script does the same at installation.
    run(Command::new(program("depmod")?).arg("-b").arg(unpacked).arg(version))?;
    let packed = find_in(&unpacked.join("boot"), |name| name.starts_with("vmlinuz"))?;
    let packed_bytes = fs::read(&packed).attempt(|| format!("read {}", packed.display()))?;
    let kernel = unpacked.join("kernel");
    // An unpacked kernel starts in half the time, because it need not be unpacked at each boot.
    let bytes = plain_kernel(directory, &packed_bytes).unwrap_or(packed_bytes);
    fs::write(&kernel, bytes).attempt(|| format!("write {}", kernel.display()))?;
    fs::write(unpacked.join("complete"), "").attempt(|| format!("write to {}", unpacked.display()))
}

/// The ELF file inside a bzImage, if xz can unpack it. The header is that of the x86 boot protocol 2.08.
fn plain_kernel(directory: &Path, image: &[u8]) -> Option<Vec<u8>> {
    let word = |at: usize| Some(u32::from_le_bytes(image.get(at..at + 4)?.try_into().ok()?) as usize);
    let sectors = usize::from(*image.get(0x1f1)?);
    let begin = (sectors + 1) * 512 + word(0x248)?;
    let payload = image.get(begin..begin.checked_add(word(0x24c)?)?)?;
    let packed = directory.join("kernel.xz");
    fs::write(&packed, payload).ok()?;
    let output = Command::new("xz").args(["-dc", "--single-stream"]).arg(&packed).output().ok()?;
    let _ = fs::remove_file(&packed);
    output.stdout.starts_with(b"\x7fELF").then_some(output.stdout)
}

/// Builds `duramen` without shared libraries, optimized as the shipped one.
fn build_duramen(target: &Path) -> Result<PathBuf> {
    const TRIPLE: &str = "x86_64-unknown-linux-gnu";
    let mut cargo = cargo(&crate::repository());
    // With a named target the flag applies to the program alone, and no other build is repeated.
    cargo.args([
        "rustc",
        "--quiet",
        "--release",
        "--package",
        "duramen-cli",
        "--features",
        "bench",
        "--bin",
        "duramen",
    ]);
    cargo.args(["--target", TRIPLE, "--target-dir"]).arg(target);
    cargo.args(["--", "-C", "target-feature=+crt-static"]);
    run(&mut cargo)?;
    Ok(target.join(TRIPLE).join("release/duramen"))
}

/// The target directory that this program was built in.
fn target_directory() -> Result<PathBuf> {
    let own = std::env::current_exe().attempt(|| "find this program's own path".to_owned())?;
    own.ancestors()
        .nth(2)
        .map(Path::to_owned)
        .ok_or_else(|| Failure::new(format!("cannot find the target directory from {}", own.display())))
}

fn succeeds(command: &mut Command) -> bool {
    command.stdin(Stdio::null()).stdout(Stdio::null()).status().is_ok_and(|status| status.success())
}
