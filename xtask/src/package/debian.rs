//! Debian's package, by dpkg-deb: without network, and without root.

use std::fs;
use std::path::Path;

use super::files::Input;
use super::program::Processor;
use super::tool::{output, tool};
use super::tree::{plain_directories, put, text};
use crate::failure::{Attempt, Result};

/// Writes the package. `tree` has the files of `files::write`, and gets those of the package alone.
pub fn write(input: &Input<'_>, processor: Processor, tree: &Path, package: &Path) -> Result<()> {
    let Input { repository, release, .. } = input;
    let overrides = text(repository, "dist/debian/lintian-overrides")?;
    put(tree, "usr/share/lintian/overrides/duramen", overrides.as_bytes(), 0o644)?;
    let mut sums = String::new();
    let mut bytes_total = 0;
    for path in regular_files(tree)? {
        let bytes = fs::read(tree.join(&path)).attempt(|| format!("read {path}"))?;
        bytes_total += bytes.len();
        if !path.starts_with("etc/") {
            let sum = output(tool("md5sum", "coreutils")?.arg(tree.join(&path)))?;
            let digits = sum.split(' ').next().unwrap_or_default().trim_start_matches('\\');
            sums.push_str(&format!("{digits}  {path}\n"));
        }
    }
    let control = text(repository, "dist/debian/control")?
        .replace("@VERSION@", &release.debian)
        .replace("@ARCHITECTURE@", processor.debian())
        .replace("@INSTALLED_KIB@", &bytes_total.div_ceil(1024).to_string())
        .replace("@HOMEPAGE@", &input.sbom.homepage);
    put(tree, "DEBIAN/control", control.as_bytes(), 0o644)?;
    put(tree, "DEBIAN/md5sums", sums.as_bytes(), 0o644)?;
    put(tree, "DEBIAN/conffiles", b"/etc/duramen/duramen.conf\n", 0o644)?;
    put(tree, "DEBIAN/templates", text(repository, "dist/debian/templates")?.as_bytes(), 0o644)?;
    for script in ["postinst", "prerm", "postrm"] {
        let script_text = text(repository, &format!("dist/debian/{script}"))?;
        put(tree, &format!("DEBIAN/{script}"), script_text.as_bytes(), 0o755)?;
    }
    plain_directories(tree)?;
    let mut build = tool("dpkg-deb", "dpkg")?;
    build.env("SOURCE_DATE_EPOCH", release.epoch.to_string());
    // One thread, since xz cuts by the number of threads.
    build.args(["--root-owner-group", "--threads-max=1", "-Zxz", "--build"]).arg(tree).arg(package);
    output(&mut build).map(drop)
}

/// The regular files below a directory, in order, without those of `DEBIAN`.
fn regular_files(tree: &Path) -> Result<Vec<String>> {
    let mut find = tool("find", "findutils")?;
    find.current_dir(tree).args([".", "-path", "./DEBIAN", "-prune", "-o", "-type", "f", "-printf", "%P\\n"]);
    let mut paths: Vec<String> = output(&mut find)?.lines().map(str::to_owned).collect();
    paths.sort();
    Ok(paths)
}
