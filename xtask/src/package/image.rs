//! A container image without a daemon: one archive that is an OCI layout and, by its manifest.json, what `docker load`
//! reads.
//!
//! OCI's configuration has no health check. Docker's has one (`Healthcheck`), and an OCI reader such as Podman ignores
//! it, so one configuration serves both.
//!
//! | path in the image | holds |
//! |---|---|
//! | `/usr/bin/duramen` | the program, which is all that runs |
//! | `/etc/passwd`, `group`, `nsswitch.conf` | the user, and where the C library looks names up |
//! | `/var/lib/duramen` | the volume, which belongs to the user |

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::digest::sha256;
use super::files::{Input, STATE};
use super::program::Processor;
use super::release::date;
use super::tool::{gzip, output, tar, tool};
use super::tree::{plain_directories, put, text};
use crate::failure::{Attempt, Result};

/// The user of the image: the number that images without a distribution commonly use.
const USER: u32 = 65_532;

/// Writes the archive.
pub fn write(input: &Input<'_>, processor: Processor, scratch: &Path, archive: &Path) -> Result<()> {
    let Input { release, .. } = input;
    let root = scratch.join("root");
    let layer = scratch.join("layer.tar");
    lay_out(&root, input)?;
    let state = format!(".{STATE}");
    tar(&root, &layer, release.epoch, &["--create", &format!("--exclude={state}")])?;
    add_state(&root, &layer, release.epoch)?;
    let layout = scratch.join("layout");
    let blob = |bytes: &[u8]| -> Result<String> {
        let digest = sha256(bytes);
        put(&layout, &format!("blobs/sha256/{digest}"), bytes, 0o644)?;
        Ok(digest)
    };
    let plain = sha256(&fs::read(&layer).attempt(|| "read the layer".to_owned())?);
    gzip(&layer)?;
    let layer = fs::read(scratch.join("layer.tar.gz")).attempt(|| "read the layer".to_owned())?;
    let layer_digest = blob(&layer)?;
    let config = config(input, processor, &plain)?.to_string();
    let config_digest = blob(config.as_bytes())?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {
            "mediaType": "application/vnd.oci.image.config.v1+json",
            "digest": format!("sha256:{config_digest}"),
            "size": config.len(),
        },
        "layers": [{
            "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip",
            "digest": format!("sha256:{layer_digest}"),
            "size": layer.len(),
        }],
    })
    .to_string();
    let manifest_digest = blob(manifest.as_bytes())?;
    let tag = release.tag();
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [{
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": format!("sha256:{manifest_digest}"),
            "size": manifest.len(),
            "platform": { "architecture": processor.debian(), "os": "linux" },
            // The second is what Podman and containerd name the image by.
            "annotations": {
                "org.opencontainers.image.ref.name": tag,
                "io.containerd.image.name": format!("localhost/duramen:{tag}"),
            },
        }],
    });
    let loaded = json!([{
        "Config": format!("blobs/sha256/{config_digest}"),
        "RepoTags": [format!("duramen:{tag}")],
        "Layers": [format!("blobs/sha256/{layer_digest}")],
    }]);
    for (name, text) in [
        ("oci-layout", json!({ "imageLayoutVersion": "1.0.0" }).to_string()),
        ("index.json", index.to_string()),
        ("manifest.json", loaded.to_string()),
    ] {
        put(&layout, name, text.as_bytes(), 0o644)?;
    }
    plain_directories(&layout)?;
    tar(&layout, archive, release.epoch, &["--create"])
}

/// Writes the files of the image.
fn lay_out(root: &Path, input: &Input<'_>) -> Result<()> {
    let program = fs::read(input.program).attempt(|| format!("read {}", input.program.display()))?;
    put(root, "usr/bin/duramen", &program, 0o755)?;
    let passwd =
        format!("root:x:0:0:root:/:/sbin/nologin\nduramen:x:{USER}:{USER}:Duramen:{STATE}:/sbin/nologin\n");
    put(root, "etc/passwd", passwd.as_bytes(), 0o644)?;
    put(root, "etc/group", format!("root:x:0:\nduramen:x:{USER}:\n").as_bytes(), 0o644)?;
    put(root, "etc/nsswitch.conf", b"hosts: files dns\n", 0o644)?;
    put(root, "usr/share/doc/duramen/LICENSE-MIT", text(input.repository, "LICENSE-MIT")?.as_bytes(), 0o644)?;
    let apache = text(input.repository, "LICENSE-APACHE")?;
    put(root, "usr/share/doc/duramen/LICENSE-APACHE", apache.as_bytes(), 0o644)?;
    put(root, "usr/share/doc/duramen/third-party.txt", input.sbom.licences()?.as_bytes(), 0o644)?;
    let state = root.join(STATE.trim_start_matches('/'));
    fs::create_dir_all(&state).attempt(|| format!("make {}", state.display()))?;
    plain_directories(root)
}

/// Adds the volume's directory, which belongs to the user.
fn add_state(root: &Path, layer: &Path, epoch: u64) -> Result<()> {
    let mut add = tool("tar", "tar")?;
    add.args(["--format=gnu", "--append", "--no-recursion", "--numeric-owner", "--mode=0750"]);
    add.arg(format!("--owner={USER}")).arg(format!("--group={USER}")).arg(format!("--mtime=@{epoch}"));
    add.arg("--file").arg(layer).arg("--directory").arg(root).arg(format!(".{STATE}"));
    output(&mut add).map(drop)
}

fn config(input: &Input<'_>, processor: Processor, layer: &str) -> Result<Value> {
    let Input { release, sbom, .. } = input;
    let created = date(release.epoch, "+%Y-%m-%dT%H:%M:%SZ")?;
    let second: u64 = 1_000_000_000;
    Ok(json!({
        "created": created,
        "architecture": processor.debian(),
        "os": "linux",
        "config": {
            "User": format!("{USER}:{USER}"),
            "ExposedPorts": { "6379/tcp": {} },
            "Env": ["PATH=/usr/bin"],
            "Entrypoint": ["/usr/bin/duramen"],
            // Beyond loopback, with `protected-mode`: other machines are refused until there is a password.
            "Cmd": ["serve", "--bind", "*", "--path", format!("{STATE}/store"), "--dir", STATE],
            "Volumes": { STATE: {} },
            "WorkingDir": STATE,
            "StopSignal": "SIGTERM",
            "Labels": {
                "org.opencontainers.image.title": "Duramen",
                "org.opencontainers.image.version": release.upstream,
                "org.opencontainers.image.revision": release.commit,
                "org.opencontainers.image.source": sbom.homepage,
                "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
            },
            "Healthcheck": {
                "Test": ["CMD", "/usr/bin/duramen", "ping"],
                "Interval": 10 * second,
                "Timeout": 5 * second,
                "StartPeriod": 60 * second,
                "Retries": 3,
            },
        },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{layer}")] },
        "history": [{ "created": created, "created_by": "cargo xtask package" }],
    }))
}
