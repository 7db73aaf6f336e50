//! What was found as a file for `isotherm node -c`.

use super::in_percent;
use crate::report::short_time;

/// Rules for all groups.
pub fn toml(percentile: f64, warmup_s: u64, rate: f64) -> String {
    let warmup = short_time(warmup_s.saturating_mul(1_000_000_000));
    format!(
        "# Found by `isotherm-fleet tune`. For `isotherm node -c`; docs/node.md lists every key.\n\
         [[rule]]\n\
         name = \"fleet\"\n\
         groups = [\"/**\"]\n\
         action = \"reclaim\"\n\
         min_age = \"auto\"\n\
         percentile = {}\n\
         warmup = \"{warmup}\"\n\
         rate = \"{}%/min\"\n",
        in_percent(percentile),
        in_percent(rate)
    )
}
