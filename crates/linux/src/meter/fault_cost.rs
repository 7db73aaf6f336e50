//! What it costs to bring one page back from swap on this machine, measured on pages of our own.

use super::cgroup::Trouble;
use crate::mm::swap_trip::round_trip;

/// Pages that are sent and brought back: well below a millisecond of work where swap is compressed memory.
const PAGES: usize = 64;
const LEAST: usize = 8;

/// The median time of a major fault, ns.
pub(super) fn measure(any_swap: bool) -> Result<u64, Trouble> {
    let remedy = "add swap with room in it, for example zram";
    if !any_swap {
        return Err(("there is no swap that memory could come back from".into(), remedy.into()));
    }
    let mut times =
        round_trip(PAGES).map_err(|e| (format!("pages of our own cannot be paged out: {e}"), remedy.into()))?;
    if times.len() < LEAST {
        let reason = format!("only {} of {PAGES} pages of our own went to swap", times.len());
        return Err((reason, remedy.into()));
    }
    times.sort_unstable();
    Ok(times[times.len() / 2])
}
