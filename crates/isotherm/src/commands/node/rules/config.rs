//! The node's file of rules: what is done to which control groups. docs/node.md lists every key.

use super::pattern::GroupPattern;
use crate::args::refused::Refused;
use crate::schemes::fault::FileError;
use crate::schemes::goal_text;
use crate::schemes::node::{Node, Tree};
use crate::schemes::preset::limit::{Limit, limit};
use crate::schemes::value::{self, Scalar};
use isotherm_core::scheme::Scheme;
use isotherm_core::scheme::action::Action;
use isotherm_core::scheme::goal::Goal;
use isotherm_core::scheme::pattern::{AccessPattern, Bounds};
use isotherm_core::scheme::priority::Weights;
use isotherm_core::scheme::quota::QuotaSpec;

/// What all rules may reclaim together unless said otherwise, bytes a second.
const DEFAULT_PACE: u64 = 16 << 20;
/// How long memory must have been idle unless said otherwise, ns.
const DEFAULT_AGE_NS: u64 = 120_000_000_000;
/// For how much of the time a group's processes may wait for what was taken, unless said otherwise.
const DEFAULT_GOAL: &str = "stall=0.1%";
/// How often a group's quota begins anew, ns: each time its pages are counted by age.
pub const WINDOW_NS: u64 = 5_000_000_000;
/// How often a rule gets its turn, ns.
const APPLY_NS: u64 = 1_000_000_000;

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
    /// For how long a page must not have been accessed, ns.
    pub min_age_ns: u64,
    pub goals: Vec<Goal>,
    /// Nothing is done; the status says what would be.
    pub dry_run: bool,
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

    /// The same, if that rule does something.
    pub fn acting_rule_of(&self, path: &str) -> Option<usize> {
        self.rule_of(path).filter(|rule| !self.rules[*rule].dry_run)
    }

    /// Whether any rule does something.
    pub fn acts(&self) -> bool {
        self.rules.iter().any(|rule| !rule.dry_run)
    }
}

impl Rule {
    /// The scheme of one group.
    pub fn scheme(&self, group: &str) -> Scheme {
        let pattern =
            AccessPattern { age_us: Bounds::new(self.min_age_ns / 1000, u64::MAX), ..AccessPattern::default() };
        let quota = QuotaSpec {
            reset_ns: WINDOW_NS,
            weights: Weights { size: 0, access_rate: 0, age: 1 },
            goals: self.goals.clone(),
            ..QuotaSpec::default()
        };
        Scheme { group: Some(group.to_owned()), apply_ns: APPLY_NS, quota, ..Scheme::new(Action::PageOut, pattern) }
    }
}

fn pace(value: &Scalar) -> Result<Option<u64>, Refused> {
    let Limit(Some(rate)) = limit(&value.to_string())? else { return Ok(None) };
    let per_second = u128::from(rate.bytes) * 1_000_000_000 / u128::from(rate.per_ns.max(1));
    if per_second < 4096 {
        return Err(Refused::new(value, "is less than a page a second, so nothing would ever be done"));
    }
    Ok(Some(u64::try_from(per_second).unwrap_or(u64::MAX)))
}

fn rule(node: &Node) -> Result<Rule, FileError> {
    node.only(&["name", "groups", "action", "min_age", "goal", "dry_run"])?;
    node.need("action")?.read(|action| match action.to_string().as_str() {
        "reclaim" => Ok(()),
        other => Err(Refused::new(other, "is not what a rule can do; the one action is \"reclaim\"")),
    })?;
    let groups = node.need("groups")?;
    let list = if groups.is_list() { groups.items()? } else { vec![groups.clone()] };
    if list.is_empty() {
        return Err(groups.fault("an empty list names no control group"));
    }
    let pattern = |item: &Node| item.read(|text| GroupPattern::parse(&value::text(text)?));
    let min_age_ns = node.optional("min_age", value::time_ns)?.unwrap_or(DEFAULT_AGE_NS);
    if min_age_ns < APPLY_NS {
        return Err(node.fault_at("min_age", "less than 1s says nothing of what is needed; write for example \"2m\""));
    }
    let goal = node.optional("goal", value::text)?.unwrap_or_else(|| DEFAULT_GOAL.to_owned());
    let goals = match goal.as_str() {
        "none" => Vec::new(),
        text => {
            let goal = goal_text::parse(text).map_err(|why| node.fault_at("goal", why))?.of(Action::PageOut);
            goal.validate().map_err(|why| node.fault_at("goal", why))?;
            vec![goal]
        }
    };
    Ok(Rule {
        name: node.optional("name", value::text)?.unwrap_or_default(),
        groups: list.iter().map(pattern).collect::<Result<_, _>>()?,
        min_age_ns,
        goals,
        dry_run: node.optional("dry_run", value::flag)?.unwrap_or(false),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_core::meter::Metric;
    use isotherm_core::scheme::goal::GoalMetric;

    fn parse(text: &str) -> Result<Config, FileError> {
        Config::parse("node.toml", text)
    }

    #[test]
    fn defaults_are_careful() {
        assert_eq!(parse("").unwrap(), Config { pace: Some(16 << 20), rules: Vec::new() });
        let config = parse("[[rule]]\ngroups = \"batch.slice\"\naction = \"reclaim\"\n").unwrap();
        let rule = &config.rules[0];
        assert_eq!(
            (&*rule.name, rule.min_age_ns, rule.dry_run, config.acts()),
            ("rule 1", 120_000_000_000, false, true)
        );
        let scheme = rule.scheme("/batch.slice");
        assert!(scheme.validate().is_ok() && scheme.brake.is_some() && scheme.confirm_ns > 0);
        assert_eq!((scheme.group.as_deref(), scheme.pattern.age_us.min), (Some("/batch.slice"), 120_000_000));
        assert_eq!(scheme.quota.goals[0].metric, GoalMetric::Read(Metric::TargetStall));
        assert_eq!(scheme.quota.goals[0].target, 10_000, "us in 10 s");
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
        assert!(config.rules[0].dry_run && config.rules[1].goals.is_empty());
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let rule = |more: &str| format!("[[rule]]\ngroups = \"/a\"\naction = \"reclaim\"\n{more}\n");
        let cases = [
            ("pace = \"fast\"".to_owned(), "line 1, pace: 'fast'"),
            ("pace = \"1/s\"".to_owned(), "less than a page a second"),
            ("rules = 1".to_owned(), "unknown field `rules`"),
            ("[[rule]]\ngroups = \"/a\"".to_owned(), "'action' is missing"),
            ("[[rule]]\naction = \"reclaim\"".to_owned(), "'groups' is missing"),
            ("[[rule]]\naction = \"reclaim\"\ngroups = []".to_owned(), "names no control group"),
            ("[[rule]]\naction = \"reclaim\"\ngroups = [\"a/b\"]".to_owned(), "line 3, rule.groups: 'a/b' must begin"),
            ("[[rule]]\ngroups = \"/a\"\naction = \"thp\"".to_owned(), "line 3, rule.action: 'thp' is not"),
            (rule("min_age = \"10ms\""), "line 4, rule.min_age: less than 1s"),
            (rule("min_age = 5"), "'5' is not a time"),
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
