//! The node's file of rules: what is done to which control groups. docs/node.md lists every key.

use super::pattern::GroupPattern;
use crate::args::refused::Refused;
use crate::schemes::fault::FileError;
use crate::schemes::goal_text;
use crate::schemes::node::{Node, Tree};
use crate::schemes::preset::limit::{Limit, limit};
use crate::schemes::value::{self, Scalar};
use isotherm_core::meter::Metric;
use isotherm_core::printable::printable;
use isotherm_core::scheme::Scheme;
use isotherm_core::scheme::action::Action;
use isotherm_core::scheme::filter::{Filter, FilterType};
use isotherm_core::scheme::goal::{Goal, GoalMetric};
use isotherm_core::scheme::page_cache::CachePolicy;
use isotherm_core::scheme::pattern::{AccessPattern, Bounds};
use isotherm_core::scheme::priority::Weights;
use isotherm_core::scheme::quota::QuotaSpec;
use isotherm_core::scheme::threshold::{self, ThresholdPolicy};
use isotherm_core::units::NS_PER_S;

/// What all rules may reclaim together unless said otherwise, bytes a second.
const DEFAULT_PACE: u64 = 16 << 20;
/// How long memory must have been idle unless said otherwise, ns.
const DEFAULT_AGE_NS: u64 = 120_000_000_000;
/// For how much of the time a group's processes may wait for what was taken, unless said otherwise.
const DEFAULT_GOAL: &str = "stall=0.1%";
/// For page cache, where the goal is about something else.
const DEFAULT_STALL: f64 = 0.001;
/// Within which time the pages of a huge page must have been accessed, and how many of them, unless said otherwise.
const DEFAULT_USED_WITHIN_NS: u64 = 60_000_000_000;
const DEFAULT_USED_BP: u32 = 5_000;
/// How often a group's quota begins anew, ns: each time its pages are counted by age.
const WINDOW_NS: u64 = 5_000_000_000;
/// How often a rule gets its turn, ns.
const APPLY_NS: u64 = NS_PER_S;

/// The file.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Bytes a second for all rules together; `None`: no limit.
    pub pace: Option<u64>,
    pub rules: Vec<Rule>,
}

/// What is done to some control groups.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// What people call it.
    pub name: String,
    pub groups: Vec<GroupPattern>,
    pub what: What,
    /// Nothing is done; the status says what would be.
    pub dry_run: bool,
}

/// What a rule does.
#[derive(Debug, Clone, PartialEq)]
pub enum What {
    /// Pages out what rests.
    Reclaim(Reclaim),
    /// Makes huge pages of what is used densely.
    HugePages {
        /// Within which time pages must have been accessed, ns ...
        within_ns: u64,
        /// ... and how many of those in 2 MiB, basis points.
        used_bp: u32,
    },
}

/// How memory is taken.
#[derive(Debug, Clone, PartialEq)]
pub struct Reclaim {
    /// For how long a page must not have been accessed.
    pub min_age: MinAge,
    pub goals: Vec<Goal>,
    /// Whether files go that no process maps.
    pub page_cache: bool,
}

/// For how long a page must not have been accessed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MinAge {
    /// So many ns.
    Fixed(u64),
    /// As each group's own past says.
    Auto(ThresholdPolicy),
}

impl Config {
    /// Reads a file's text. `name` is what errors call it.
    pub fn parse(name: &str, text: &str) -> Result<Self, FileError> {
        let tree = Tree::of_toml(name, text)?;
        let file = tree.root(name);
        file.only(&["pace", "rule"])?;
        let pace = file.optional("pace", pace)?.unwrap_or(Some(DEFAULT_PACE));
        let mut rules = file.each("rule", rule)?;
        for (i, rule) in rules.iter_mut().enumerate().filter(|(_, rule)| rule.name.is_empty()) {
            rule.name = format!("rule {}", i + 1);
        }
        Ok(Self { pace, rules })
    }

    /// The rule for the group at `path`: the first that names it.
    pub fn rule_of(&self, path: &str) -> Option<usize> {
        self.rules.iter().position(|rule| rule.groups.iter().any(|pattern| pattern.matches(path)))
    }

    /// What of the rules never counts, since rules before it name the same groups: a sentence each.
    pub fn never_counts(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (i, rule) in self.rules.iter().enumerate() {
            for pattern in &rule.groups {
                let first =
                    self.rules[..i].iter().find(|before| before.groups.iter().any(|other| other.covers(pattern)));
                if let Some(first) = first {
                    found.push(format!(
                        "'{pattern}' in the rule '{}' never counts: '{}' before it names the same, and the first rule counts",
                        printable(&rule.name),
                        printable(&first.name)
                    ));
                }
            }
        }
        found
    }

    /// The same, if the engine has work for that rule: to act, or to find dense blocks.
    pub fn working_rule_of(&self, path: &str) -> Option<usize> {
        let works = |rule: &Rule| !rule.dry_run || matches!(rule.what, What::HugePages { .. });
        self.rule_of(path).filter(|rule| works(&self.rules[*rule]))
    }

    /// The policy of the rule for the group at `path`, if that goes by the group's past.
    pub fn policy_of(&self, path: &str) -> Option<ThresholdPolicy> {
        self.rules[self.rule_of(path)?].policy()
    }

    /// Whether any rule goes by the past of groups.
    pub fn learns(&self) -> bool {
        self.rules.iter().any(|rule| rule.policy().is_some())
    }

    /// Whether any rule pages out.
    pub fn reclaims(&self) -> bool {
        self.rules.iter().any(|rule| !rule.dry_run && rule.reclaim().is_some())
    }
}

impl Rule {
    /// How it takes memory, if it does.
    pub const fn reclaim(&self) -> Option<&Reclaim> {
        match &self.what {
            What::Reclaim(reclaim) => Some(reclaim),
            What::HugePages { .. } => None,
        }
    }

    fn policy(&self) -> Option<ThresholdPolicy> {
        match self.reclaim()?.min_age {
            MinAge::Auto(policy) => Some(policy),
            MinAge::Fixed(_) => None,
        }
    }

    /// The scheme of one group. Pages that go must not have been accessed for `min_age_ns`. `pace`: bytes a second that all rules
    /// may do together.
    pub fn scheme(&self, group: &str, min_age_ns: u64, pace: Option<u64>) -> Scheme {
        let scheme = match &self.what {
            What::Reclaim(reclaim) => reclaim.scheme(min_age_ns, pace),
            What::HugePages { within_ns, used_bp } => Scheme {
                used_within_ns: *within_ns,
                min_density_bp: *used_bp,
                // Files are shared with whoever reads them, and few kernels have huge pages for them.
                filters: vec![Filter { what: FilterType::Anon, matching: true, allow: true }],
                quota: QuotaSpec { reset_ns: WINDOW_NS, ..QuotaSpec::default() },
                ..Scheme::new(if self.dry_run { Action::Stat } else { Action::Collapse }, AccessPattern::default())
            },
        };
        Scheme { group: Some(group.to_owned()), apply_ns: APPLY_NS, ..scheme }
    }
}

impl Reclaim {
    /// What page cache is taken by, from the age `min_age_ns` on; `None`: it is not taken. A goal about waiting holds
    /// for files, too, by the group's own pressure; where the goal is about something else it is the usual one.
    pub fn cache_policy(&self, min_age_ns: u64) -> Option<CachePolicy> {
        let stall = self.goals.first().map(|goal| match goal.metric {
            GoalMetric::Read(Metric::TargetStall | Metric::SomeMemPsi(_)) if goal.window_ns > 0 => {
                goal.target as f64 * 1e3 / goal.window_ns as f64
            }
            _ => DEFAULT_STALL,
        });
        self.page_cache.then_some(CachePolicy { min_age_ns, stall })
    }

    fn scheme(&self, min_age_ns: u64, pace: Option<u64>) -> Scheme {
        let pattern = AccessPattern { age_us: Bounds::new(min_age_ns / 1000, u64::MAX), ..AccessPattern::default() };
        let quota = QuotaSpec {
            reset_ns: WINDOW_NS,
            // No more could go. Without that tuning would double the quota as long as nobody waits, and the goal would hold nothing
            // back for minutes; and a quota for more than there is takes pages in the order of their addresses, not the oldest first.
            bytes: pace.map(|pace| pace.saturating_mul(WINDOW_NS / NS_PER_S)),
            weights: Weights { size: 0, access_rate: 0, age: 1 },
            goals: self.goals.clone(),
            ..QuotaSpec::default()
        };
        Scheme { quota, ..Scheme::new(Action::PageOut, pattern) }
    }
}

fn pace(value: &Scalar) -> Result<Option<u64>, Refused> {
    let Limit(Some(rate)) = limit(&value.to_string())? else { return Ok(None) };
    if rate.per_ns == 0 {
        return Err(Refused::new(value, "is within no time; write for example \"16M/s\", or \"none\" for no limit"));
    }
    let per_second = u128::from(rate.bytes) * 1_000_000_000 / u128::from(rate.per_ns);
    if per_second < 4096 {
        return Err(Refused::new(value, "is less than a page a second, so nothing would ever be done"));
    }
    Ok(Some(u64::try_from(per_second).unwrap_or(u64::MAX)))
}

/// Keys of every rule, of those that reclaim, and of those that make huge pages.
const ANY: [&str; 4] = ["name", "groups", "action", "dry_run"];
const RECLAIM: [&str; 6] = ["min_age", "percentile", "warmup", "rate", "goal", "page_cache"];
const THP: [&str; 2] = ["used_within", "min_used"];

fn rule(node: &Node) -> Result<Rule, FileError> {
    node.only(&[&ANY[..], &RECLAIM, &THP].concat())?;
    let reclaims = node.need("action")?.read(|action| match action.to_string().as_str() {
        "reclaim" => Ok(true),
        "thp" => Ok(false),
        "hint" => {
            let why = "is not said of control groups: a guest gives free memory back to its host as a whole; \
                       `isotherm hint guest` (isotherm-hint-guest.service) does that beside a node";
            Err(Refused::new("hint", why))
        }
        other => Err(Refused::new(other, "is not what a rule can do; actions are \"reclaim\" and \"thp\"")),
    })?;
    let (others, action, own) = if reclaims { (&THP[..], "thp", "reclaim") } else { (&RECLAIM[..], "reclaim", "thp") };
    for key in others {
        let belongs = || format!("belongs to rules with action = \"{action}\"; this one has \"{own}\"");
        node.optional(key, |value| Err::<(), _>(Refused::new(value, belongs())))?;
    }
    let groups = node.need("groups")?;
    let list = if groups.is_list() { groups.items()? } else { vec![groups.clone()] };
    if list.is_empty() {
        return Err(groups.fault("an empty list names no control group"));
    }
    let pattern = |item: &Node| item.read(|text| GroupPattern::parse(&value::text(text)?));
    Ok(Rule {
        name: node.optional("name", value::text)?.unwrap_or_default(),
        groups: list.iter().map(pattern).collect::<Result<_, _>>()?,
        what: if reclaims { What::Reclaim(reclaim(node)?) } else { huge_pages(node)? },
        dry_run: node.optional("dry_run", value::flag)?.unwrap_or(false),
    })
}

fn reclaim(node: &Node) -> Result<Reclaim, FileError> {
    let min_age = min_age(node)?;
    let goal = node.optional("goal", value::text)?.unwrap_or_else(|| DEFAULT_GOAL.to_owned());
    let goals = match goal.as_str() {
        "none" => Vec::new(),
        text => {
            let goal = goal_text::parse(text).map_err(|why| node.fault_at("goal", why))?.of(Action::PageOut);
            goal.validate().map_err(|why| node.fault_at("goal", why))?;
            vec![goal]
        }
    };
    Ok(Reclaim { min_age, goals, page_cache: node.optional("page_cache", value::flag)?.unwrap_or(false) })
}

fn huge_pages(node: &Node) -> Result<What, FileError> {
    let within_ns = node.optional("used_within", value::time_ns)?.unwrap_or(DEFAULT_USED_WITHIN_NS);
    if within_ns < APPLY_NS {
        return Err(
            node.fault_at("used_within", "less than 1s says nothing of what is in use; write for example \"1m\"")
        );
    }
    let used_bp = node.optional("min_used", value::share_bp)?.unwrap_or(DEFAULT_USED_BP);
    if used_bp == 0 {
        return Err(
            node.fault_at("min_used", "0% would make huge pages of what nobody uses; write for example \"50%\"")
        );
    }
    Ok(What::HugePages { within_ns, used_bp })
}

/// Of `min_age`, and of what belongs to `"auto"`.
fn min_age(node: &Node) -> Result<MinAge, FileError> {
    let read = |age: &Scalar| if age.to_string() == "auto" { Ok(None) } else { value::time_ns(age).map(Some) };
    let fixed_ns = node.optional("min_age", read)?.unwrap_or(Some(DEFAULT_AGE_NS));
    let percentile = node.optional("percentile", percentile)?;
    let warmup_ns = node.optional("warmup", value::time_ns)?;
    if warmup_ns.is_some_and(|ns| !ns.is_multiple_of(NS_PER_S)) {
        return Err(node.fault_at("warmup", "is not a number of whole seconds; write for example \"5m\""));
    }
    let rate = node.optional("rate", rate)?;
    match fixed_ns {
        None => {
            let usual = ThresholdPolicy::default();
            Ok(MinAge::Auto(ThresholdPolicy {
                rate: rate.unwrap_or(usual.rate),
                percentile: percentile.unwrap_or(usual.percentile),
                warmup_s: warmup_ns.map_or(usual.warmup_s, |ns| ns / NS_PER_S),
            }))
        }
        Some(_) if percentile.is_some() || warmup_ns.is_some() || rate.is_some() => {
            Err(node.fault("percentile, warmup and rate belong to min_age = \"auto\""))
        }
        Some(ns) if ns < APPLY_NS => {
            Err(node.fault_at("min_age", "less than 1s says nothing of what is needed; write for example \"2m\""))
        }
        Some(ns) => Ok(MinAge::Fixed(ns)),
    }
}

/// 98, or "98%", as a share of one.
fn percentile(value: &Scalar) -> Result<f64, Refused> {
    threshold::parse_percentile(&value.to_string())
        .ok_or_else(|| Refused::new(value, "is no percentile from 0 to 100, such as 98"))
}

/// "0.2%/min" as a share of one.
fn rate(value: &Scalar) -> Result<f64, Refused> {
    let refused = || Refused::new(value, "is not a share of what is in use for a minute, such as \"0.2%/min\"");
    threshold::parse_rate(&value.to_string()).ok_or_else(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, FileError> {
        Config::parse("node.toml", text)
    }

    #[test]
    fn defaults_are_careful() {
        assert_eq!(parse("").unwrap(), Config { pace: Some(16 << 20), rules: Vec::new() });
        let config = parse("[[rule]]\ngroups = \"batch.slice\"\naction = \"reclaim\"\n").unwrap();
        let rule = &config.rules[0];
        let reclaim = rule.reclaim().unwrap();
        assert_eq!((&*rule.name, rule.dry_run, config.reclaims()), ("rule 1", false, true));
        assert_eq!((reclaim.min_age, reclaim.cache_policy(1)), (MinAge::Fixed(120_000_000_000), None));
        let scheme = rule.scheme("/batch.slice", 120_000_000_000, Some(16 << 20));
        assert!(scheme.validate().is_ok() && scheme.brake.is_some() && scheme.confirm_ns > 0);
        assert_eq!((scheme.group.as_deref(), scheme.pattern.age_us.min), (Some("/batch.slice"), 120_000_000));
        assert_eq!(scheme.quota.goals[0].metric, GoalMetric::Read(Metric::TargetStall));
        assert_eq!(scheme.quota.goals[0].target, 10_000, "us in 10 s");
        assert_eq!(scheme.quota.bytes, Some(80 << 20), "what the pace of all lets go in its window of 5 s");
    }

    #[test]
    fn the_example_does_nothing_until_somebody_edits_it() {
        let text = include_str!("../../../../../../dist/node.toml");
        assert_eq!(parse(text).unwrap(), parse("").unwrap());
        // Each line of it that is a comment without a space behind is one to be used.
        let used: String = text
            .lines()
            .map(|line| line.strip_prefix('#').filter(|l| !l.starts_with(' ')).unwrap_or("").to_owned() + "\n")
            .collect();
        let rules = parse(&used).unwrap().rules;
        assert!(rules.len() > 1 && rules.iter().any(|rule| rule.dry_run) && rules.iter().any(|rule| !rule.dry_run));
    }

    #[test]
    fn the_first_rule_that_names_a_group_counts() {
        let text = "pace = \"none\"\n\
                    [[rule]]\nname = \"spared\"\ngroups = [\"/a/b\"]\naction = \"reclaim\"\ndry_run = true\n\
                    [[rule]]\ngroups = [\"/a/*\", \"x.slice\"]\naction = \"reclaim\"\nmin_age = \"10m\"\ngoal = \"none\"\n";
        let config = parse(text).unwrap();
        assert_eq!((config.pace, config.rule_of("/a/b"), config.rule_of("/a/c")), (None, Some(0), Some(1)));
        assert_eq!((config.rule_of("/x.slice/y"), config.rule_of("/")), (Some(1), None));
        assert_eq!((&*config.rules[0].name, &*config.rules[1].name), ("spared", "rule 2"));
        assert!(config.rules[0].dry_run && config.rules[1].reclaim().unwrap().goals.is_empty());
    }

    #[test]
    fn what_never_counts_is_named() {
        let rule = |name: &str, groups: &str| {
            format!("[[rule]]\nname = \"{name}\"\ngroups = {groups}\naction = \"reclaim\"\n")
        };
        let never = |first: &str, second: &str| parse(&(rule("a", first) + &rule("b", second))).unwrap().never_counts();
        assert_eq!(
            never("\"/x\"", "[\"/y\", \"/x\"]"),
            ["'/x' in the rule 'b' never counts: 'a' before it names the same, and the first rule counts"]
        );
        for (first, second) in [("/x/**", "/x/y"), ("x.slice", "x.slice"), ("x.slice", "/x.slice/y"), ("/*", "/*")] {
            assert_eq!(never(&format!("\"{first}\""), &format!("\"{second}\"")).len(), 1, "{first} {second}");
        }
        // The second is for others, too.
        for (first, second) in [("/x/y", "/x/**"), ("/x", "x"), ("x.slice", "/x.slice/*"), ("/x", "/x/y")] {
            assert_eq!(never(&format!("\"{first}\""), &format!("\"{second}\"")).len(), 0, "{first} {second}");
        }
    }

    #[test]
    fn the_age_can_be_left_to_a_groups_past() {
        let auto = |more: &str| {
            let text = format!("[[rule]]\ngroups = \"/**\"\naction = \"reclaim\"\nmin_age = \"auto\"\n{more}");
            parse(&text).unwrap().rules[0].reclaim().unwrap().min_age
        };
        assert_eq!(auto(""), MinAge::Auto(ThresholdPolicy { rate: 0.002, percentile: 0.98, warmup_s: 1200 }));
        let policy = ThresholdPolicy { rate: 0.0005, percentile: 0.995, warmup_s: 0 };
        assert_eq!(auto("percentile = 99.5\nwarmup = \"0s\"\nrate = \"0.05%/min\"\n"), MinAge::Auto(policy));
    }

    #[test]
    fn page_cache_follows_the_goal_where_that_is_about_waiting() {
        let stall = |goal: &str| {
            let text = format!("[[rule]]\ngroups = \"/**\"\naction = \"reclaim\"\npage_cache = true\n{goal}\n");
            parse(&text).unwrap().rules[0].reclaim().unwrap().cache_policy(7).unwrap()
        };
        assert_eq!(stall(""), CachePolicy { min_age_ns: 7, stall: Some(0.001) });
        assert_eq!((stall("goal = \"psi=2%\"").stall, stall("goal = \"rss=2G\"").stall), (Some(0.02), Some(0.001)));
        assert_eq!(stall("goal = \"none\"").stall, None);
    }

    #[test]
    fn huge_pages_are_made_of_anonymous_memory_in_use() {
        let rule = |more: &str| {
            let text = format!("[[rule]]\ngroups = \"/a\"\naction = \"thp\"\n{more}\n");
            parse(&text).unwrap()
        };
        assert!(!rule("").reclaims() && !rule("").learns());
        let scheme = rule("").rules[0].scheme("/a", 0, None);
        assert_eq!(
            (scheme.action, scheme.used_within_ns, scheme.min_density_bp),
            (Action::Collapse, 60_000_000_000, 5000)
        );
        assert!(scheme.validate().is_ok() && matches!(scheme.filters[0].what, FilterType::Anon));
        let tried = rule("used_within = \"5m\"\nmin_used = \"90%\"\ndry_run = true");
        let scheme = tried.rules[0].scheme("/a", 0, None);
        assert_eq!(
            (scheme.action, scheme.used_within_ns, scheme.min_density_bp),
            (Action::Stat, 300_000_000_000, 9000)
        );
        assert_eq!(tried.working_rule_of("/a"), Some(0), "the engine looks for it");
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let thp = |more: &str| format!("[[rule]]\ngroups = \"/a\"\naction = \"thp\"\n{more}\n");
        let rule = |more: &str| format!("[[rule]]\ngroups = \"/a\"\naction = \"reclaim\"\n{more}\n");
        let cases = [
            ("pace = \"fast\"".to_owned(), "line 1, pace: 'fast'"),
            ("pace = \"1/s\"".to_owned(), "less than a page a second"),
            ("pace = \"16M/0s\"".to_owned(), "line 1, pace: '16M/0s' is within no time"),
            ("rules = 1".to_owned(), "unknown field `rules`"),
            ("[[rule]]\ngroups = \"/a\"".to_owned(), "'action' is missing"),
            ("[[rule]]\naction = \"reclaim\"".to_owned(), "'groups' is missing"),
            ("[[rule]]\naction = \"reclaim\"\ngroups = []".to_owned(), "names no control group"),
            ("[[rule]]\naction = \"reclaim\"\ngroups = [\"a/b\"]".to_owned(), "line 3, rule.groups: 'a/b' must begin"),
            ("[[rule]]\ngroups = \"/a\"\naction = \"freeze\"".to_owned(), "line 3, rule.action: 'freeze' is not"),
            ("[[rule]]\ngroups = \"/a\"\naction = \"hint\"".to_owned(), "`isotherm hint guest`"),
            (thp("min_age = \"2m\""), "line 4, rule.min_age: '2m' belongs to rules with action = \"reclaim\""),
            (thp("goal = \"stall=1%\""), "line 4, rule.goal: 'stall=1%' belongs"),
            (thp("page_cache = true"), "line 4, rule.page_cache: 'true' belongs"),
            (thp("used_within = \"1ms\""), "line 4, rule.used_within: less than 1s"),
            (thp("min_used = \"0%\""), "line 4, rule.min_used: 0%"),
            (rule("used_within = \"1m\""), "line 4, rule.used_within: '1m' belongs to rules with action = \"thp\""),
            (rule("page_cache = \"yes\""), "line 4, rule.page_cache"),
            (rule("min_age = \"10ms\""), "line 4, rule.min_age: less than 1s"),
            (rule("min_age = 5"), "'5' is not a time"),
            (rule("percentile = 98"), "belong to min_age = \"auto\""),
            (
                rule("min_age = \"auto\"\npercentile = 101"),
                "line 5, rule.percentile: '101' is no percentile from 0 to 100, such as 98",
            ),
            (rule("min_age = \"auto\"\nrate = \"0.2%\""), "line 5, rule.rate: '0.2%' is not a share"),
            (rule("goal = \"speed=1\""), "line 4, rule.goal: 'speed=1' is no goal"),
            (rule("dry_run = 1"), "neither true nor false"),
            (rule("agee = 1"), "unknown field `agee`"),
        ];
        for (text, part) in cases {
            let error = parse(&text).unwrap_err().to_string();
            assert!(error.starts_with("node.toml") && error.contains(part), "{text}\n{error}");
        }
    }
}
