//! Cargo, as this program runs it.

use std::path::Path;
use std::process::Command;

/// The cargo that runs this program, or else the one in `PATH`, in this directory.
///
/// `cargo run` and `cargo test` tell a process about its own package (`CARGO_PKG_NAME` and others). Build scripts that
/// read these variables, such as ring's, would run again for another cargo, and all that depends on them be built again.
pub fn cargo(directory: &Path) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    forget_package(&mut cargo);
    cargo.current_dir(directory);
    cargo
}

/// The cargo in `PATH`, in this directory, with any toolchain: the one that runs this program ignores `+nightly`.
pub fn any_cargo(directory: &Path) -> Command {
    let mut cargo = Command::new("cargo");
    forget_package(&mut cargo);
    cargo.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO").current_dir(directory);
    cargo
}

fn forget_package(cargo: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name
            .to_str()
            .is_some_and(|name| ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|of| name.starts_with(of)))
        {
            cargo.env_remove(name);
        }
    }
}

#[test]
fn cargo_does_not_hear_of_the_package_of_this_program() {
    let package = ["CARGO_PKG_NAME", "CARGO_MANIFEST_DIR"];
    for name in package {
        assert!(std::env::var_os(name).is_some(), "{name} is not set by the cargo that runs the tests");
    }
    for cargo in [cargo(Path::new(".")), any_cargo(Path::new("."))] {
        for name in package {
            assert!(cargo.get_envs().any(|(of, to)| of == name && to.is_none()), "{name} is passed on");
        }
    }
}
