//! Devices that cannot hold a store: checks that the server's errors about them help.

use super::kit::Kit;
use super::machine::{Accelerator, Boot, Machine, Storage};
use super::round::BOOT_PATIENCE;
use crate::failure::{Attempt, Result};

/// A device, and the words that the error must contain: the problem, the requirement, and the remedy.
struct Case {
    /// The name in `init.sh`.
    name: &'static str,
    wanted: &'static [&'static str],
    /// After the refusal `duramen erase` clears the device, and the next server must start.
    erasable: bool,
}

const CASES: [Case; 2] = [
    // A device that had ext4 before.
    Case {
        name: "leftovers",
        wanted: &[
            "cannot open store /dev/dax0.0",
            "this is not a Duramen store",
            "\"duramen erase --force\"",
        ],
        erasable: true,
    },
    // A namespace of 16 MiB; the kernel takes a part of it for itself.
    Case {
        name: "small",
        wanted: &["cannot open device /dev/dax0.", "wanted at least 16 MiB", "make a larger namespace"],
        erasable: false,
    },
];

/// While the server has the device, a measurement that would overwrite it must fail and name the server.
fn measuring_is_refused(machine: &mut Machine) -> Result<bool> {
    machine.demand("@ measuring", BOOT_PATIENCE)?;
    let code = machine.demand("@ measured", BOOT_PATIENCE)?;
    let said: String =
        machine.heard_since("@ measuring").iter().filter(|line| !line.starts_with('@')).cloned().collect();
    let right = code != "@ measured 0" && said.contains("in use");
    println!(
        "devdax in use: bench mem {}: {said}",
        if right { "refused as it should" } else { "NOT refused" }
    );
    Ok(right)
}

/// Boots a machine for each case and prints the server's output; returns whether it was the expected one.
pub fn run(kit: &Kit, accelerator: Accelerator) -> Result<bool> {
    let directory = tempfile::tempdir_in(&kit.directory)
        .attempt(|| format!("make a directory in {}", kit.directory.display()))?;
    let mut clean = true;
    for case in CASES {
        let storage = Storage::nvdimm(directory.path().join(case.name))?;
        let boot =
            Boot { medium: case.name, durability: "every-write", fresh: true, storage: Some(&storage) };
        let mut machine = Machine::start(kit, accelerator, &boot, &directory.path().join("console.log"))?;
        machine.demand("@ up", BOOT_PATIENCE)?;
        machine.demand("@ serving", BOOT_PATIENCE)?;
        let served = machine.demand("@ served", BOOT_PATIENCE)?;
        let said: Vec<&str> = machine.heard_since("@ serving").iter().map(String::as_str).collect();
        let said: String = said.into_iter().filter(|line| !line.starts_with('@')).collect();
        // 3: the store could not be used.
        let mut right = served == "@ served 3" && case.wanted.iter().all(|words| said.contains(words));
        if case.erasable {
            right &= machine.demand("@ erased", BOOT_PATIENCE)? == "@ erased 0";
            machine.demand("@ serving", BOOT_PATIENCE)?;
            machine.demand("listening: ", BOOT_PATIENCE)?;
            right &= measuring_is_refused(&mut machine)?;
        }
        println!("devdax {}: {}: {said}", case.name, if right { "refused as it should" } else { "WRONG" });
        if !right {
            println!("devdax {}: wanted code 3 and all of {:?}, found {served:?}", case.name, case.wanted);
        }
        clean &= right;
    }
    Ok(clean)
}
