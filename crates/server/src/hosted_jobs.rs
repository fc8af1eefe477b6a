//! Jobs of continuous SQL in this process, and their state.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// What a job does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JobState {
    /// It is compiled, and its sources and sinks are opened.
    #[default]
    Starting,
    /// It reads its input.
    Running,
    /// Its input has ended.
    Finished,
    /// It was asked to stop.
    Stopped,
    /// An error has ended it.
    Failed,
}

impl JobState {
    /// All states.
    pub const ALL: [Self; 5] = [Self::Starting, Self::Running, Self::Finished, Self::Stopped, Self::Failed];

    /// Its word, in INFO and in metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Finished => "finished",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
        }
    }
}

/// The numbers of a job. Counts include those of earlier runs as far as the job's checkpoint has them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct JobProgress {
    /// Records read.
    pub records_read: u64,
    /// Rows written to sinks, by this run.
    pub records_written: u64,
    /// Records that could not be read, and were skipped.
    pub records_skipped: u64,
    /// Rows that came after their window had closed.
    pub records_late: u64,
    /// Rows without an event time.
    pub records_timeless: u64,
    /// The watermark in Unix seconds, once there is one.
    pub watermark: Option<f64>,
    /// Bytes of state.
    pub state_bytes: u64,
    /// Entries of state.
    pub state_keys: u64,
    /// Checkpoints, of a job with a store.
    pub checkpoints: Option<JobCheckpoints>,
}

/// The checkpoints of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct JobCheckpoints {
    /// Complete ones.
    pub count: u64,
    /// Unix seconds of the last complete one, or of the start of the run.
    pub at: f64,
    /// Seconds that the last one took.
    pub took: f64,
    /// The part of that for its commit.
    pub commit: f64,
    /// Bytes that the last one wrote.
    pub bytes: u64,
    /// The longest time for which one kept rows waiting, in seconds.
    pub pause_max: f64,
    /// Seconds between two.
    pub every: f64,
}

/// The last report of a job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobReport {
    /// What it does.
    pub state: JobState,
    /// More about that, in one line.
    pub text: String,
    /// Its plan, in lines; empty until it is known.
    pub plan: Arc<str>,
    /// Its numbers, once it has run.
    pub progress: Option<JobProgress>,
}

/// The last report of each job, by name.
#[derive(Debug, Default)]
pub struct HostedJobs(Mutex<BTreeMap<String, JobReport>>);

impl HostedJobs {
    /// Names and last reports, as INFO shows them.
    pub fn all(&self) -> Vec<(String, String)> {
        let line = |report: JobReport| match report.text.as_str() {
            "" => format!("state={}", report.state.word()),
            text => format!("state={},{text}", report.state.word()),
        };
        self.reports().into_iter().map(|(name, report)| (name, line(report))).collect()
    }

    /// Names and last reports.
    pub fn reports(&self) -> Vec<(String, JobReport)> {
        let told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.iter().map(|(name, report)| (name.clone(), report.clone())).collect()
    }

    /// Reports the state of the named job. Without numbers it keeps its last ones.
    pub fn report(&self, name: &str, state: JobState, text: &str, progress: Option<JobProgress>) {
        let text = text.replace(['\r', '\n'], " ");
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let job = told.entry(name.to_owned()).or_default();
        (job.state, job.text, job.progress) = (state, text, progress.or(job.progress));
    }

    /// Reports the plan of the named job.
    pub fn report_plan(&self, name: &str, plan: &str) {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.entry(name.to_owned()).or_default().plan = plan.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_fails_keeps_its_last_numbers() {
        let jobs = HostedJobs::default();
        let progress = JobProgress { records_read: 7, ..JobProgress::default() };
        jobs.report("a", JobState::Starting, "", None);
        assert_eq!(jobs.all(), [("a".to_owned(), "state=starting".to_owned())]);
        jobs.report("a", JobState::Running, "7 records", Some(progress));
        jobs.report("a", JobState::Failed, "error=two\nlines", None);
        assert_eq!(jobs.all(), [("a".to_owned(), "state=failed,error=two lines".to_owned())]);
        assert_eq!(jobs.reports()[0].1.progress, Some(progress));
    }
}
