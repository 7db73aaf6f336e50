//! What was done ahead of faults.

use crate::figures;
use crate::units::format_size;
use serde::{Deserialize, Serialize};
use std::fmt;

figures! {
    /// Requests for huge pages ahead of the faults, of all targets.
    #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct AheadTotals {
        asked: u64 = Counter Count as "requests",
            "Mappings for which huge pages were asked for ahead of the faults; one that has grown counts again.";
        room: u64 = Counter Bytes as "requested", "Of those that were not collapsed, what had no page yet then.";
        collapsed: u64 = Counter Bytes as "collapsed",
            "What was filled all over, page by page, and became huge pages at once.";
        taken_back: u64 = Counter Count as "withdrawals",
            "Requests that were taken back: most of what the huge pages hold was never written, or they had become expensive.";
    }
    and {
        /// The first refusal: pid, reason, remedy; `null`: there was none.
        refusal: Option<String>;
    }
}

impl fmt::Display for AheadTotals {
    /// In a line, for people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { asked, room, collapsed, taken_back, refusal } = self;
        write!(f, "asked for huge pages {asked} times, for {} without a page then; ", format_size(*room))?;
        if *collapsed > 0 {
            write!(f, "collapsed {}; ", format_size(*collapsed))?;
        }
        write!(f, "took {taken_back} back")?;
        refusal.iter().try_for_each(|why| write!(f, "; first refusal: {why}"))
    }
}
