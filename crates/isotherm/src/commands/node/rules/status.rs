//! What a rule has done to a control group, or would have.

use super::limits::Limit;
use super::thresholds::Age;
use isotherm_core::history::frame::{PageAges, bytes};
use isotherm_core::history::reaccessed::Reaccessed;
use isotherm_core::history::times::{AGES_NS, IDLE_NS};
use isotherm_core::scheme::engine::SchemeStatus;
use isotherm_core::units::{format_size, format_time};
use serde::{Deserialize, Serialize};

/// Within which times it is counted what came back, s.
pub const WITHIN_S: [u64; 2] = [10, 60];

isotherm_core::figures! {
    /// What a rule has paged out of a control group.
    #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
    pub struct Reclaimed {
        reclaimed: Option<u64> = Counter Bytes, "Memory of its processes that a rule has paged out.";
        reclaimed_out: Option<u64> = Gauge Bytes, "Of what a rule has paged out: what is out at present.";
        reclaim_brakes: Option<u64> = Counter Count, "Times the emergency brake of a rule was pulled.";
    }
}

/// A rule in a control group.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RuleStatus {
    /// What the rule is called.
    pub rule: String,
    /// For how long pages must have been idle, ns; `None` while nothing is taken whatever its age.
    pub min_age_ns: Option<u64>,
    /// Whether nothing is done.
    pub dry_run: bool,
    /// What was done.
    #[serde(flatten)]
    pub figures: Reclaimed,
    /// Bytes of it that came back within each of [`WITHIN_S`].
    pub refaulted: Option<[u64; 2]>,
    /// Without a rule that does something: what one would save now, bytes; `None`: not known yet.
    pub would_save: Option<u64>,
    /// The same: what would have come back since the group is watched, bytes.
    pub would_refault: Option<u64>,
    /// The code of why nothing is done; `None` while something is.
    pub idle_code: Option<String>,
    /// The same in a sentence.
    pub idle_reason: Option<String>,
}

impl RuleStatus {
    /// Of one that does something.
    pub fn acting(rule: &str, age: Age, scheme: &SchemeStatus<'_>, limit: Option<&Limit>) -> Self {
        let effect = scheme.stats.effect;
        let idle = age.idle().map(|(code, why)| (code, why.to_owned()));
        let idle = idle
            .or_else(|| limit.and_then(Limit::idle))
            .or_else(|| scheme.idle.map(|idle| (idle.code(), idle.to_string())));
        let (code, reason) = idle.unzip();
        Self {
            rule: rule.to_owned(),
            min_age_ns: age.ns(),
            figures: Reclaimed {
                reclaimed: Some(effect.out),
                reclaimed_out: Some(effect.saved_now),
                reclaim_brakes: Some(scheme.stats.brake_pulled),
            },
            refaulted: Some([effect.back_10s, effect.back_60s]),
            idle_code: code.map(str::to_owned),
            idle_reason: reason,
            ..Self::default()
        }
    }

    /// Of one that is only tried. Where the age is none that is counted, too little is saved and too much comes back.
    pub fn tried(rule: &str, age: Age, ages: Option<&PageAges>, again: Option<Reaccessed>) -> Self {
        let at_least = age.ns().and_then(|ns| AGES_NS.into_iter().find(|age| *age >= ns));
        let at_most = age.ns().and_then(|ns| IDLE_NS.partition_point(|age| *age <= ns).checked_sub(1));
        let (code, reason) = age.idle().unzip();
        Self {
            rule: rule.to_owned(),
            min_age_ns: age.ns(),
            dry_run: true,
            would_save: at_least.and_then(|age| Some(bytes(ages?.idle_for(age)?.pages))),
            would_refault: at_most.and_then(|i| Some(bytes(again?.pages()[i]))),
            idle_code: code.map(str::to_owned),
            idle_reason: reason.map(str::to_owned),
            ..Self::default()
        }
    }

    /// In a line, for people.
    pub fn words(&self) -> String {
        let size = |bytes: Option<u64>| bytes.map_or_else(|| "not known yet".to_owned(), format_size);
        let age = self.min_age_ns.map_or_else(|| "no age".to_owned(), format_time);
        let why = self.idle_reason.as_ref().map(|why| format!("; {why}")).unwrap_or_default();
        if self.dry_run {
            let (save, back) = (size(self.would_save), size(self.would_refault));
            return format!("{} ({age}, dry run): would save {save}; would have come back: {back}{why}", self.rule);
        }
        let (out, all) = (size(self.figures.reclaimed_out), size(self.figures.reclaimed));
        let back = size(self.refaulted.map(|back| back[1]));
        format!("{} ({age}): {out} out, of {all} {back} came back within 1 min{why}", self.rule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_core::history::frame::IdlePages;

    const S: u64 = 1_000_000_000;

    #[test]
    fn a_dry_run_says_what_would_be_and_errs_to_the_careful_side() {
        let idle = |pages| IdlePages { pages, least: pages, most: pages, unresolved: 0 };
        // Watched for two minutes.
        let ages = PageAges {
            resident: 1000,
            unobservable: 0,
            idle: AGES_NS
                .iter()
                .take_while(|age| **age <= 120 * S)
                .enumerate()
                .map(|(i, _)| idle(900 - i as u64))
                .collect(),
        };
        let known = ages.idle.len() as u64 - 1;
        let of = |min_age_ns| RuleStatus::tried("r", Age::Known(min_age_ns), Some(&ages), Some(Reaccessed::default()));
        assert_eq!(
            (of(120 * S).would_save, of(100 * S).would_save),
            (Some((900 - known) * 4096), Some((900 - known) * 4096))
        );
        assert_eq!((of(121 * S).would_save, of(120 * S).would_refault), (None, Some(0)), "not watched for so long");
        assert_eq!(RuleStatus::tried("r", Age::Known(S), None, None).would_refault, None);
        let unknown = RuleStatus::tried("r", Age::NotKnown, Some(&ages), Some(Reaccessed::default()));
        assert_eq!(
            (unknown.would_save, unknown.min_age_ns, unknown.idle_code.as_deref()),
            (None, None, Some("threshold_unknown"))
        );
        let words = of(120 * S).words();
        assert!(words.contains("dry run") && words.contains("would save 3.") && words.contains("0 B"), "{words}");
    }
}
