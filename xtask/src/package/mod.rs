//! `cargo xtask package`: what a version consists of, in one directory: a static program in an archive, a package for
//! Debian, a container image, an SBOM, and their checksums. docs/packages.md describes them.
//!
//! 1. Nothing is fetched but crates, and no root is needed.
//! 2. The same commit gives the same bytes: all archives are made twice, and compared. All files have the time of the commit.
//! 3. The list of installed files stands in [`files`], and the directives of the configuration come from the program.

mod crates;
mod debian;
mod digest;
mod files;
mod image;
pub mod life;
mod machine;
mod program;
mod release;
mod sbom;
mod tool;
mod tree;

use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::{Attempt, Failure, Result};
use crate::target::target;
use files::Input;
use program::Processor;
use release::Release;
use sbom::Sbom;

#[derive(clap::Args)]
pub struct Settings {
    /// Where the files are written [default: dist in the target directory]
    #[arg(long, value_name = "DIRECTORY")]
    out: Option<PathBuf>,
    /// A static program that was built before [default: built now]
    #[arg(long, value_name = "PATH")]
    duramen: Option<PathBuf>,
    /// The processor of the program [default: that of this machine]
    #[arg(long)]
    processor: Option<Processor>,
    /// Debian's revision: packages of one version differ by it
    #[arg(long, default_value = "1")]
    revision: String,
    /// Leaves out the check of the crates
    #[arg(long)]
    no_crates: bool,
}

/// Makes the files; returns whether nothing is wrong with them.
pub fn run(repository: &Path, settings: Settings) -> Result<bool> {
    let processor = settings.processor.or_else(Processor::here).ok_or_else(|| {
        Failure::new(format!("there are no packages for {}; choose --processor", std::env::consts::ARCH))
    })?;
    let release = Release::of(repository, &settings.revision)?;
    let program = match settings.duramen {
        Some(path) => path,
        None => program::build(repository, processor)?,
    };
    program::demand_static(&program, processor)?;
    let runnable = match Processor::here() == Some(processor) {
        true => program.clone(),
        false => crate::server::duramen_program(None)?,
    };
    let sbom = Sbom::of(repository, processor)?;
    let input = Input { repository, release: &release, program: &program, runnable: &runnable, sbom: &sbom };
    let out = match settings.out {
        Some(out) => out,
        None => target(repository, "dist")?,
    };
    fs::create_dir_all(&out).attempt(|| format!("make {}", out.display()))?;
    let names = make(&input, processor, &out)?;
    let again = tempfile::tempdir().attempt(|| "make a directory".to_owned())?;
    make(&input, processor, again.path())?;
    let mut clean = true;
    for name in &names {
        let read = |directory: &Path| fs::read(directory.join(name)).attempt(|| format!("read {name}"));
        let bytes = read(&out)?;
        println!("{:>10} bytes  {}", bytes.len(), out.join(name).display());
        if bytes != read(again.path())? {
            println!("{name} has other bytes when it is made again");
            clean = false;
        }
    }
    if !settings.no_crates {
        clean &= crates::check(repository)?;
    }
    Ok(clean)
}

/// Makes all files in this directory, and returns their names.
fn make(input: &Input<'_>, processor: Processor, out: &Path) -> Result<Vec<String>> {
    let Input { release, .. } = input;
    let scratch = tempfile::tempdir().attempt(|| "make a directory".to_owned())?;
    let (tag, linux) = (release.tag(), processor.linux());
    let mut names = Vec::new();

    let tree = scratch.path().join("tree");
    files::write(&tree, input)?;
    let title = format!("duramen-{tag}-{linux}");
    let archive = scratch.path().join(format!("{title}.tar"));
    tool::tar(
        &tree,
        &archive,
        release.epoch,
        &["--create", &format!("--transform=flags=r;s,^\\.,{title},")],
    )?;
    tool::gzip(&archive)?;
    names.push(format!("{title}.tar.gz"));
    let made = scratch.path().join(format!("{title}.tar.gz"));
    fs::copy(&made, out.join(format!("{title}.tar.gz"))).attempt(|| format!("copy {}", made.display()))?;

    names.push(format!("duramen_{}_{}.deb", release.debian, processor.debian()));
    debian::write(input, processor, &tree, &out.join(&names[1]))?;

    names.push(format!("{title}-image.tar"));
    image::write(input, processor, &scratch.path().join("image"), &out.join(&names[2]))?;

    names.push(format!("{title}.cdx.json"));
    let sbom = input.sbom.document(release)?;
    fs::write(out.join(&names[3]), sbom).attempt(|| format!("write {}", names[3]))?;

    let mut sums = String::new();
    for name in &names {
        let bytes = fs::read(out.join(name)).attempt(|| format!("read {name}"))?;
        sums.push_str(&format!("{}  {name}\n", digest::sha256(&bytes)));
    }
    fs::write(out.join("SHA256SUMS"), sums).attempt(|| "write SHA256SUMS".to_owned())?;
    names.push("SHA256SUMS".to_owned());
    Ok(names)
}
