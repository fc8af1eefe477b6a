//! Runs `duramen check` and `duramen check --salvage` on a store that was killed, before anything opens it.

use std::path::Path;

use duramen::{ErrorKind, Options};

use super::history::{Fault, Violation};
use super::{Settings, Tally, child};

impl Settings {
    fn options(&self) -> Options {
        child::options(self.medium, self.durability, self.index, self.residence)
    }

    /// Verifies a store that nobody has open: a kill must not cause damage, whatever the values hold.
    pub(super) fn check(&self, path: &Path, tally: &mut Tally) {
        let report = match duramen::check(path, &self.options()) {
            Ok(report) => report,
            // Its creation did not finish.
            Err(error) if error.kind() == ErrorKind::NotFound => return,
            Err(error) => {
                tally.violations.push(Violation { fault: Fault::Damaged, what: error.to_string() });
                return;
            }
        };
        tally.checks += 1;
        let violation = |fault| move |what: String| Violation { fault, what };
        let records = report.damaged_records.iter().map(|record| format!("{record:?}"));
        // A kill may interrupt the write of one of the two copies of the superblock; the other copy is then whole.
        let damage = report.damage.into_iter().filter(|damage| !damage.starts_with("superblock copy"));
        let damage = damage.chain(records);
        tally.violations.extend(damage.map(violation(Fault::Damaged)));
        tally.violations.extend(report.differences.into_iter().map(violation(Fault::Miscounted)));
    }

    /// Salvages a store that nobody has open into a new one at `into`; returns whether there was a store.
    pub(super) fn salvage(&self, path: &Path, into: &Path, tally: &mut Tally) -> bool {
        match duramen::salvage(path, into, &self.options()) {
            Ok(_) => {
                tally.salvaged += 1;
                true
            }
            Err(error) if error.kind() == ErrorKind::NotFound => false,
            Err(error) => {
                tally.violations.push(Violation { fault: Fault::Damaged, what: error.to_string() });
                false
            }
        }
    }
}
