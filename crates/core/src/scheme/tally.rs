//! What came of the regions and pages in one turn of a scheme, in bytes, and what that says about a turn in which
//! nothing was done.

use super::idle::{IdleReason, Near};
use crate::addr::TABLE_SPAN;

/// What came of a turn.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// What came closest to the pattern.
    pub near: Near,
    /// Bytes of regions that match.
    pub matched: u64,
    /// Of these, too low in priority.
    pub below_cut_off: u64,
    /// Of what matches, treated lately.
    pub treated: u64,
    /// Of what matches, kept by filters.
    pub filtered: u64,
    /// Where pages must have been idle: for how long, ns.
    pub idle_ns: Option<u64>,
    /// For how long pages have been watched, ns; of the target where it is longest.
    pub watched_ns: u64,
    /// Pages that have been idle for so long.
    pub idle: u64,
    /// Pages that have not, or were used at the last moment.
    pub in_use: u64,
    /// Whether the quota suffices only for pages that have been idle for longer.
    pub cut: bool,
    /// Whether there was a huge page that the rest of the quota does not suffice for.
    pub too_large: bool,
    /// Targets of whose blocks nothing is known.
    pub unwalked: u64,
    /// In use, in blocks of 2 MiB of which too little is.
    pub sparse: u64,
    /// In huge pages already.
    pub huge: u64,
    /// Targets of which nothing new is known since the last turn.
    pub known: u64,
    /// Handed to the actuator.
    pub submitted: u64,
    /// Looked at page by page.
    pub looked: u64,
    /// Whether the actuator could take no more.
    pub busy: bool,
}

impl Tally {
    /// Why nothing was handed to the actuator: the first condition on the way that held everything back. `quota`: bytes
    /// in an interval.
    pub(crate) fn why_nothing(&self, quota: u64) -> IdleReason {
        if self.busy {
            return IdleReason::Busy;
        }
        if self.near.regions > 0 && self.matched == 0 {
            return IdleReason::NoMatch(self.near);
        }
        if self.matched > 0 && self.matched == self.below_cut_off {
            return IdleReason::BelowCutOff;
        }
        match self.idle_ns {
            _ if self.too_large && quota < TABLE_SPAN => IdleReason::QuotaTooSmall { effective: quota },
            _ if self.too_large => IdleReason::QuotaUsed { effective: quota },
            _ if self.treated > 0 => IdleReason::DoneAlready,
            None if self.sparse > 0 || self.huge > 0 => {
                IdleReason::NoDenseBlock { sparse: self.sparse, huge: self.huge }
            }
            _ if self.filtered > 0 => IdleReason::Filtered(self.filtered),
            None if self.unwalked > 0 => IdleReason::NoPageHistory { targets: Some(self.unwalked) },
            Some(idle_ns) if self.watched_ns < idle_ns => IdleReason::Watching { watched_ns: self.watched_ns, idle_ns },
            Some(_) if self.cut && self.in_use == 0 && self.idle == 0 => IdleReason::BelowCutOff,
            Some(idle_ns) if self.in_use > 0 => IdleReason::InUse { bytes: self.in_use, idle_ns },
            _ => IdleReason::NothingPresent,
        }
    }
}
