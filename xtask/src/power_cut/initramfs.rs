//! The file system that the machine starts from: a shell, the tools, the kernel's modules and `duramen`.
//!
//! It is made for each run, which takes less than a second, so that it never holds an old program.

use std::collections::HashSet;
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::programs::{find_in, program};
use crate::failure::{Attempt, Failure, Result};

/// The applets of busybox that `init.sh` uses.
const APPLETS: [&str; 14] = [
    "sh", "mount", "umount", "cat", "echo", "sleep", "poweroff", "seq", "insmod", "ls", "ifconfig", "mkdir",
    "[", "date",
];

/// Drivers, if the kernel has them as modules. ext4 requests crc32c when it mounts, but does not list it as a
/// dependency.
const MODULES: [&str; 9] = [
    "crc32c_generic",
    "nfit",
    "nd_pmem",
    "dax_pmem",
    "device_dax",
    "ext4",
    "virtio_pci",
    "virtio_blk",
    "virtio_net",
];

/// Builds the archive from the unpacked kernel package and the `duramen` program.
pub fn build(directory: &Path, kernel: &Path, duramen: &Path) -> Result<PathBuf> {
    let root = directory.join("root");
    let _ = fs::remove_dir_all(&root);
    for name in ["bin", "modules", "proc", "sys", "dev", "store", "etc", "tmp"] {
        make_directory(&root.join(name))?;
    }
    let init = root.join("init");
    fs::write(&init, include_str!("init.sh")).attempt(|| format!("write {}", init.display()))?;
    fs::set_permissions(&init, fs::Permissions::from_mode(0o755))
        .attempt(|| format!("make {} executable", init.display()))?;
    for (path, name) in [
        (program("busybox")?, "busybox"),
        (program("ndctl")?, "ndctl"),
        (program("mke2fs")?, "mke2fs"),
        (duramen.to_owned(), "duramen"),
    ] {
        copy(&path, &root.join("bin").join(name))?;
        for library in libraries(&path)? {
            copy(&library, &root.join(library.strip_prefix("/").unwrap_or(&library)))?;
        }
    }
    for applet in APPLETS {
        let link = root.join("bin").join(applet);
        symlink("busybox", &link).attempt(|| format!("make link {}", link.display()))?;
    }
    let defaults = Path::new("/etc/mke2fs.conf");
    if defaults.is_file() {
        copy(defaults, &root.join("etc/mke2fs.conf"))?;
    }
    add_modules(&root, kernel)?;
    let archive = directory.join("initramfs.gz");
    pack(&root, &archive)?;
    Ok(archive)
}

/// The shared libraries of a program, by `ldd`; none for a static one, for which `ldd` fails with a message.
fn libraries(path: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(path).output().attempt(|| "run ldd".to_owned())?;
    let text = String::from_utf8_lossy(&output.stdout);
    // `libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x…)`, and the loader without an arrow.
    let paths = text.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    Ok(paths.map(PathBuf::from).collect())
}

/// Copies the modules and their dependencies, and writes the order in which to load them.
fn add_modules(root: &Path, kernel: &Path) -> Result<()> {
    let modules = find_in(&kernel.join("lib/modules"), |_| true)?;
    let listing = modules.join("modules.dep");
    let text = fs::read_to_string(&listing).attempt(|| format!("read {}", listing.display()))?;
    let mut order = Vec::new();
    for wanted in MODULES {
        // A module that is not listed is built in or does not exist; in that case the machine reports it.
        order.extend(load_order(&text, wanted));
    }
    let mut seen = HashSet::new();
    order.retain(|path| seen.insert(*path));
    let mut names = String::new();
    for path in order {
        let source = modules.join(path);
        let name = Path::new(path).file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let plain = name.trim_end_matches(".xz");
        let target = root.join("modules").join(plain);
        if name.ends_with(".xz") {
            let file = File::create(&target).attempt(|| format!("write {}", target.display()))?;
            run_into(Command::new("xz").arg("-dc").arg(&source), file)?;
        } else {
            copy(&source, &target)?;
        }
        names.push_str(plain);
        names.push('\n');
    }
    let list = root.join("modules/order");
    fs::write(&list, names).attempt(|| format!("write {}", list.display()))
}

/// The paths to load for one module, in order, from the text of modules.dep.
fn load_order<'a>(text: &'a str, wanted: &str) -> Vec<&'a str> {
    let is_wanted = |path: &str| {
        let name = path.rsplit('/').next().unwrap_or(path);
        name.split('.').next().is_some_and(|name| name == wanted)
    };
    let Some((path, needs)) =
        text.lines().filter_map(|line| line.split_once(':')).find(|(p, _)| is_wanted(p))
    else {
        return Vec::new();
    };
    // A module's dependencies follow it in the line, and theirs follow them.
    needs.split_whitespace().rev().chain([path]).collect()
}

fn pack(root: &Path, archive: &Path) -> Result<()> {
    let script = "set -e; find . | cpio -o -H newc -R 0:0 --quiet | gzip -1";
    let file = File::create(archive).attempt(|| format!("write {}", archive.display()))?;
    run_into(Command::new("sh").args(["-c", script]).current_dir(root), file)
}

fn run_into(command: &mut Command, file: File) -> Result<()> {
    let name = command.get_program().display().to_string();
    let status = command.stdin(Stdio::null()).stdout(file).status().attempt(|| format!("run {name}"))?;
    if status.success() { Ok(()) } else { Err(Failure::new(format!("{name} failed: {status}"))) }
}

fn make_directory(path: &Path) -> Result<()> {
    fs::create_dir_all(path).attempt(|| format!("make directory {}", path.display()))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    if let Some(parent) = to.parent() {
        make_directory(parent)?;
    }
    fs::copy(from, to).attempt(|| format!("copy {} to {}", from.display(), to.display()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_loaded_after_what_they_need() {
        let text = "kernel/nd_pmem.ko: kernel/nd_btt.ko kernel/libnvdimm.ko\nkernel/nd_btt.ko: kernel/libnvdimm.ko\n\
                    kernel/crc16.ko.xz:\n";
        assert_eq!(
            load_order(text, "nd_pmem"),
            ["kernel/libnvdimm.ko", "kernel/nd_btt.ko", "kernel/nd_pmem.ko"]
        );
        assert_eq!(load_order(text, "crc16"), ["kernel/crc16.ko.xz"]);
        assert_eq!(load_order(text, "dax"), [""; 0]);
    }
}
