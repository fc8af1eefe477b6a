//! SAVE, BGSAVE and LASTSAVE.
//!
//! SAVE writes an RDB file while no other command reads or writes, at `dir` and `dbfilename`. The file is durable
//! before it has its name: it is written next to it, synced and renamed, and the directory is synced. A crash leaves
//! the old file or the new one, and maybe the temporary one, which the next SAVE of a process with that number
//! overwrites. A file of another server is not replaced.

use crate::config::Config;
use crate::export;
use crate::observe::log;
use crate::redis::command::{After, Call, CommandError, errors};
use duramen_structures::Txn;
use duramen_structures::dump::file::{HEAD_BYTES, is_ours};
use std::fs::{self, File};
use std::io::{self, BufWriter, Read as _};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// SAVE. It commits too, whatever the durability.
pub fn save(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let config = call.server.config();
    let file = config.dump_file();
    let begun = Instant::now();
    let keys = write(call.txn, call.now, &file).map_err(|why| {
        let error = format!("ERR cannot write {}: {why}", file.display());
        log::warning(format_args!("SAVE: {}", &error[4..]));
        CommandError::with(error)
    })?;
    log::notice(format_args!(
        "SAVE: {} written to {} in {:.3} s",
        log::counted(keys, "key"),
        file.display(),
        begun.elapsed().as_secs_f64()
    ));
    *call.after = After::Save;
    call.reply.ok();
    Ok(())
}

fn write(txn: &mut Txn<'_>, now: u64, file: &Path) -> Result<u64, String> {
    let told = |error: io::Error| error.to_string();
    check(file)?;
    let beside = file.with_extension(format!("{}.part", std::process::id()));
    let written = File::create(&beside).map_err(told).and_then(|out| {
        let out = BufWriter::with_capacity(1 << 20, out);
        let (out, keys) = export::databases(txn, now, out, &mut |_| ()).map_err(|why| why.to_string())?;
        let out = out.into_inner().map_err(|error| told(error.into_error()))?;
        out.sync_all().and_then(|()| fs::rename(&beside, file)).map_err(told)?;
        let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(directory.unwrap_or(Path::new(".")))
            .and_then(|directory| directory.sync_all())
            .map_err(told)?;
        Ok(keys)
    });
    written.inspect_err(|_| drop(fs::remove_file(&beside)))
}

/// Refuses to replace a file that another kind of server has written.
fn check(file: &Path) -> Result<(), String> {
    let mut head = Vec::new();
    match File::open(file).and_then(|file| file.take(HEAD_BYTES as u64).read_to_end(&mut head)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error.to_string()),
        Ok(_) if is_ours(&head) => Ok(()),
        Ok(_) => Err(
            "another program wrote the file that is there: move it away, or start the server with another \
                      --dbfilename or --dir"
                .to_owned(),
        ),
    }
}

/// BGSAVE [SCHEDULE]: not available until a backup is possible during writes. It still commits, with any durability.
pub fn bgsave(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    match call.args.len() {
        1 => {}
        2 if call.args.is(1, "schedule") => {}
        _ => return Err(errors::SYNTAX),
    }
    *call.after = After::Save;
    call.stats.error("ERR");
    call.reply.error(
        "ERR BGSAVE is not supported, no file was written: SAVE writes an RDB file while other clients wait; \
         \"duramen export\" writes one of a store whose server has ended",
    );
    Ok(())
}

/// LASTSAVE: when everything was last saved, in Unix seconds.
pub fn lastsave(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    call.reply.integer(call.server.saved_at.load(Ordering::Relaxed) as i64);
    Ok(())
}

impl Config {
    /// The file that SAVE writes.
    pub fn dump_file(&self) -> std::path::PathBuf {
        Path::new(&self.dir).join(&self.dbfilename)
    }
}
