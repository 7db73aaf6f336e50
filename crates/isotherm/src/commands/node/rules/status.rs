//! What a rule has done to a control group, or would have.

use super::limits::Limit;
use super::thresholds::Age;
use isotherm_core::history::frame::{PageAges, bytes};
use isotherm_core::history::reaccessed::Reaccessed;
use isotherm_core::history::times::{AGES_NS, IDLE_NS};
use isotherm_core::scheme::engine::SchemeStatus;
use isotherm_core::scheme::idle::IdleReason;
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

isotherm_core::figures! {
    /// What a rule has turned into huge pages.
    #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct Collapsed {
        collapsed: Option<u64> = Counter Bytes, "Memory of its processes that a rule has turned into huge pages.";
    }
}

isotherm_core::figures! {
    /// What a rule has taken of a control group's page cache.
    #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct CacheReclaimed {
        page_cache_reclaimed: Option<u64> = Counter Bytes, "Files in memory that the kernel has dropped since a rule asked it to.";
        page_cache_refaulted: Option<u64> = Counter Bytes, "Files read again after they were dropped, by whomever, since a rule first took some.";
        page_cache_brakes: Option<u64> = Counter Count, "Times the emergency brake of a rule was pulled because files were read again.";
    }
}

/// A control group's page cache under a rule.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CacheStatus {
    /// What was done.
    #[serde(flatten)]
    pub figures: CacheReclaimed,
    /// Of a rule that is only tried: what could go, bytes; `None`: not known.
    pub could_go: Option<u64>,
    /// The code of why nothing goes; `None` while something does.
    pub idle_code: Option<String>,
    /// The same in a sentence.
    pub idle_reason: Option<String>,
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
    /// The same, of rules that make huge pages.
    #[serde(flatten)]
    pub huge: Collapsed,
    /// Of a rule that makes huge pages and is only tried: memory that would have become some, each byte once.
    #[serde(default)]
    pub would_collapse: Option<u64>,
    /// Page cache, where the rule takes that.
    #[serde(default)]
    pub page_cache: Option<CacheStatus>,
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
        let idle = idle.or_else(|| limit.and_then(Limit::idle)).or_else(|| match scheme.idle? {
            IdleReason::RoomUsed => Some(Limit::protected()),
            idle => Some((idle.code(), idle.to_string())),
        });
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

    /// Of one that makes huge pages, or would. `off`: code and sentence of why none can be made.
    pub fn huge_pages(rule: &str, dry_run: bool, scheme: &SchemeStatus<'_>, off: Option<(&str, &str)>) -> Self {
        let idle = off.map(|(code, why)| (code, why.to_owned()));
        let (code, reason) = idle.or_else(|| scheme.idle.map(|idle| (idle.code(), idle.to_string()))).unzip();
        Self {
            rule: rule.to_owned(),
            dry_run,
            huge: Collapsed { collapsed: Some(scheme.stats.sz_applied).filter(|_| !dry_run) },
            would_collapse: Some(scheme.stats.sz_tried).filter(|_| dry_run),
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
        if let Some(bytes) = self.huge.collapsed.or(self.would_collapse) {
            let why = self.idle_reason.as_ref().map(|why| format!("; {why}")).unwrap_or_default();
            let (tried, verb) = if self.dry_run { (" (dry run)", "would become") } else { ("", "became") };
            return format!("{}{tried}: {} {verb} huge pages{why}", self.rule, format_size(bytes));
        }
        self.memory_words() + &self.page_cache.as_ref().map(CacheStatus::words).unwrap_or_default()
    }

    fn memory_words(&self) -> String {
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

impl CacheStatus {
    /// Of a rule that is only tried.
    pub fn tried(could_go: Option<u64>) -> Self {
        Self { could_go, ..Self::default() }
    }

    fn words(&self) -> String {
        let size = |bytes: Option<u64>| bytes.map_or_else(|| "not known".to_owned(), format_size);
        let Some(reclaimed) = self.figures.page_cache_reclaimed else {
            return format!("; page cache that could go: {}", size(self.could_go));
        };
        let back = size(self.figures.page_cache_refaulted);
        let why = self.idle_reason.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
        format!("; page cache: {} dropped, {back} read again{why}", format_size(reclaimed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_core::history::frame::IdlePages;
    use isotherm_core::scheme::Scheme;
    use isotherm_core::scheme::action::Action;
    use isotherm_core::scheme::pattern::AccessPattern;
    use isotherm_core::scheme::stats::SchemeStats;

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
            ..PageAges::default()
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

    #[test]
    fn people_see_page_cache_and_why_there_are_no_huge_pages() {
        let figures = CacheReclaimed {
            page_cache_reclaimed: Some(8 << 20),
            page_cache_refaulted: Some(1 << 20),
            page_cache_brakes: Some(0),
        };
        let cache = CacheStatus { figures, idle_reason: Some("so it is".into()), ..CacheStatus::default() };
        let words = RuleStatus { page_cache: Some(cache), ..RuleStatus::default() }.words();
        assert!(words.ends_with("; page cache: 8.00 MiB dropped, 1.00 MiB read again (so it is)"), "{words}");
        let tried = RuleStatus { dry_run: true, page_cache: Some(CacheStatus::tried(None)), ..RuleStatus::default() };
        assert!(tried.words().ends_with("page cache that could go: not known"), "{}", tried.words());
        let scheme = Scheme::new(Action::Collapse, AccessPattern::default());
        let now = SchemeStatus {
            scheme: &scheme,
            stats: SchemeStats { sz_applied: 2 << 20, ..SchemeStats::default() },
            back: Reaccessed::default(),
            idle: None,
            goals: Vec::new(),
            goal_targets: Vec::new(),
            rss: None,
        };
        let off = RuleStatus::huge_pages("r", false, &now, Some(("huge_pages_off", "switched off")));
        assert_eq!(
            (off.words().as_str(), off.idle_code.as_deref()),
            ("r: 2.00 MiB became huge pages; switched off", Some("huge_pages_off"))
        );
        let read: RuleStatus = serde_json::from_str(&serde_json::to_string(&off).unwrap()).unwrap();
        assert_eq!(read, off, "JSON keeps all of it");
    }
}
