//! What may be done for one guest in a time, however it is connected.

use super::bucket::Bucket;

/// Steps a second, and at once. A guest that returns 4 GiB a second in huge pages needs 2000 and 100 reports.
const STEPS: (u64, u64) = (4096, 4096);
/// What a report costs beside its holes; a hole costs one step.
const STEPS_OF_REPORT: u64 = 8;
/// Greetings a second, and at once: each has files opened and the VMM asked. Agents greet once a second.
const GREETINGS: (u64, u64) = (2, 16);

/// Bytes, steps and greetings.
#[derive(Debug, Clone)]
pub struct Allowance {
    bytes: Bucket,
    steps: Bucket,
    greetings: Bucket,
}

impl Allowance {
    /// `bytes`: of what may be dropped.
    pub const fn new(bytes: Bucket, now_ns: u64) -> Self {
        Self {
            bytes,
            steps: Bucket::new(STEPS.0, STEPS.1, now_ns),
            greetings: Bucket::new(GREETINGS.0, GREETINGS.1, now_ns),
        }
    }

    pub fn greet(&mut self, now_ns: u64) -> bool {
        self.greetings.take(1, now_ns)
    }

    /// Whether a report may be looked at; else in how many ns the next one may.
    pub fn report(&mut self, now_ns: u64) -> Result<(), u64> {
        if self.steps.take(STEPS_OF_REPORT, now_ns) {
            return Ok(());
        }
        Err(self.steps.wait_ns(STEPS_OF_REPORT, now_ns).max(1))
    }

    /// In how many ns that many bytes may be dropped in that many holes; 0: now.
    pub fn wait_ns(&mut self, bytes: u64, holes: u64, now_ns: u64) -> u64 {
        self.bytes.wait_ns(bytes, now_ns).max(self.steps.wait_ns(holes, now_ns))
    }

    /// Whether that many bytes may be dropped in that many holes; else in how many ns they may.
    pub fn drop(&mut self, bytes: u64, holes: u64, now_ns: u64) -> Result<(), u64> {
        let wait_ns = self.wait_ns(bytes, holes, now_ns);
        if wait_ns > 0 {
            return Err(wait_ns);
        }
        self.bytes.take(bytes, now_ns);
        self.steps.take(holes, now_ns);
        Ok(())
    }
}
