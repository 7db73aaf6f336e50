//! Lines of `schemes`.

use super::words::Words;
use crate::errno::Errno;
use crate::refused::Refused;
use crate::scheme::pattern_of;
use isotherm_core::attrs::MonitorAttrs;
use isotherm_core::scheme::Scheme;
use isotherm_core::scheme::action::Action;
use isotherm_core::scheme::pattern::Bounds;
use isotherm_core::scheme::priority::Weights;
use isotherm_core::scheme::quota::QuotaSpec;
use isotherm_core::scheme::stats::SchemeStats;
use isotherm_core::scheme::watermark::{WatermarkMetric, Watermarks};

/// Numbers in a line: the pattern's ranges and the action.
const SHORT: usize = 7;
/// With quota, weights and watermarks, as from Linux 5.16 on.
const LONG: usize = 18;
/// Schemes that are taken; the rest is left out.
const MOST: usize = 256;
/// By their numbers.
const ACTIONS: [Action; 6] =
    [Action::WillNeed, Action::Cold, Action::PageOut, Action::HugePage, Action::NoHugePage, Action::Stat];

/// A scheme as it was written, which is how it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SchemeLine {
    numbers: Vec<u64>,
    action: Action,
}

/// All lines. One that is neither of the seed's form nor of the later one is EINVAL, for it would mean something else.
pub(super) fn parse(text: &str) -> Result<Vec<SchemeLine>, Errno> {
    let lines = text.lines().filter(|line| !Words(line).is_empty());
    lines.take(MOST).map(line).collect()
}

fn line(text: &str) -> Result<SchemeLine, Errno> {
    let mut words = Words(text);
    let numbers = words.numbers();
    if !words.is_empty() || ![SHORT, LONG].contains(&numbers.len()) {
        return Err(Errno::Invalid);
    }
    let wide = |index: usize| matches!(index, 0 | 1 | 7..=9 | 14..=17);
    if numbers.iter().enumerate().any(|(index, &number)| !wide(index) && number > u64::from(u32::MAX)) {
        return Err(Errno::Invalid);
    }
    let rises = [0, 2, 4].iter().all(|&min| numbers[min] <= numbers[min + 1]);
    // The seed took such a pattern, which matches nothing.
    if numbers.len() == LONG && (!rises || numbers[13] > 1) {
        return Err(Errno::Invalid);
    }
    let action = usize::try_from(numbers[6]).ok().and_then(|number| ACTIONS.get(number));
    Ok(SchemeLine { action: *action.ok_or(Errno::Invalid)?, numbers })
}

impl SchemeLine {
    /// As it is shown: what was written, with what it has done.
    pub(super) fn show(&self, done: &SchemeStats) -> String {
        let SchemeStats { nr_tried, sz_tried, nr_applied, sz_applied, qt_exceeds, .. } = done;
        let written: Vec<String> = self.numbers.iter().map(u64::to_string).collect();
        let written = written.join(" ");
        match self.numbers.len() {
            SHORT => format!("{written} {nr_tried} {sz_tried}\n"),
            _ => format!("{written} {nr_tried} {sz_tried} {nr_applied} {sz_applied} {qt_exceeds}\n"),
        }
    }

    /// The scheme, by DAMOS's rules.
    pub(super) fn scheme(&self, attrs: &MonitorAttrs) -> Result<Scheme, Refused> {
        let n = &self.numbers;
        let range = |min: usize| Bounds::new(n[min], n[min + 1]);
        let mut scheme = Scheme::new(self.action, pattern_of(range(0), range(2), range(4), attrs));
        (scheme.confirm_ns, scheme.min_density_bp, scheme.brake) = (0, 0, None);
        scheme.quota = QuotaSpec::default();
        if n.len() == LONG {
            const MS: u64 = 1_000_000;
            let limit = |number: u64| Some(number).filter(|&number| number > 0);
            let weight = |index: usize| n[index] as u32;
            let (time_ns, bytes) = (limit(n[7].saturating_mul(MS)), limit(n[8]));
            if time_ns.is_some() || bytes.is_some() {
                let weights = Weights { size: weight(10), access_rate: weight(11), age: weight(12) };
                let reset_ns = n[9].saturating_mul(MS).max(MS);
                scheme.quota = QuotaSpec { bytes, time_ns, reset_ns, weights, ..QuotaSpec::default() };
            }
            let mark = |index: usize| u32::try_from(n[index].saturating_mul(10)).unwrap_or(u32::MAX);
            scheme.watermarks = (n[13] == 1).then(|| Watermarks {
                metric: WatermarkMetric::FreeMemRate,
                interval_us: n[14],
                high_bp: mark(15),
                mid_bp: mark(16),
                low_bp: mark(17),
            });
        }
        scheme.validate().map_err(Refused::new)?;
        Ok(scheme)
    }
}
