//! Rules: what the node does to control groups, if a file says so. For each group that a rule names there is a scheme of
//! the engine that watches anyway, so that goals, brakes and figures are the group's own.

mod config;
mod limits;
mod pattern;
mod slots;
pub mod status;
mod thresholds;

use super::paths::GroupPaths;
use super::promotions::Promotions;
use crate::commands::schemes::run::engine;
use crate::exit::{Unsupported, Usage, in_words};
use crate::groups::Groups;
use crate::hangup::{Hangup, Hangups};
use crate::schemes::file::read_file;
use config::{Config, MinAge, WINDOW_NS};
use isotherm_core::printable::printable;
use isotherm_core::scheme::Scheme;
use isotherm_core::scheme::action::Action;
use isotherm_core::scheme::engine::SchemeEngine;
use isotherm_core::scheme::pattern::AccessPattern;
use isotherm_core::units::format_size;
use isotherm_linux::action::unsupported;
use isotherm_linux::roots::Roots;
use isotherm_linux::signals;
use isotherm_view::machine::{Machine, Row};
use limits::{Limit, limits};
use slots::{Slot, Slots};
use status::RuleStatus;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use thresholds::{Age, Thresholds};

/// How often it is looked which groups there are and what protects them, ns.
const REFRESH_NS: u64 = 10_000_000_000;
/// How often figures are drawn, ns.
const FIGURES_NS: u64 = 1_000_000_000;

/// A file of rules, and how they stand.
#[derive(Debug)]
pub struct Rules {
    file: PathBuf,
    dry_run: bool,
    config: Config,
    slots: Slots,
    /// What may be taken in a window, by the place of the group.
    limits: HashMap<usize, Limit>,
    /// Of groups whose rules leave the age to their past.
    thresholds: Thresholds,
    acting: BTreeMap<String, RuleStatus>,
    ages_changed: bool,
    refresh_at_ns: u64,
    figures_at_ns: u64,
    hangups: Hangups,
}

impl Rules {
    /// Reads `file`. `dry_run`: none of its rules does anything.
    pub fn open(file: PathBuf, dry_run: bool) -> anyhow::Result<Self> {
        let config = read(&file, dry_run)?;
        Ok(Self {
            file,
            dry_run,
            config,
            slots: Slots::default(),
            limits: HashMap::new(),
            thresholds: Thresholds::default(),
            acting: BTreeMap::new(),
            ages_changed: false,
            refresh_at_ns: 0,
            figures_at_ns: 0,
            hangups: Hangups::new(),
        })
    }

    /// What is to act for them.
    pub fn engine(&self) -> anyhow::Result<SchemeEngine> {
        if let Some(why) = unsupported(&Roots::system(), Action::PageOut, &[]).filter(|_| self.config.acts()) {
            return Err(Unsupported(format!("rules cannot reclaim here: {why}")).into());
        }
        let mut engine = engine(Vec::new(), self.dry_run)?;
        engine.set_pace(self.config.pace);
        Ok(engine)
    }

    /// In a few words.
    pub fn words(&self) -> String {
        let pace = self.config.pace.map_or("no limit".to_owned(), |pace| format!("{}/s together", format_size(pace)));
        let rules = match self.config.rules.len() {
            1 => "1 rule".to_owned(),
            n => format!("{n} rules"),
        };
        let tried = self.config.rules.iter().filter(|rule| rule.dry_run).count();
        let tried = if tried > 0 { format!(", {tried} of them only tried") } else { String::new() };
        format!("{rules} of {}{tried}; {pace}", self.file.display())
    }

    /// Between two steps of the engine: does what is due.
    pub fn turn(&mut self, engine: &mut SchemeEngine, groups: &Groups, paths: &mut GroupPaths, now_ns: u64) {
        match self.hangups.take() {
            Some(Hangup::Reload) => self.reload(engine, now_ns),
            Some(Hangup::TerminalGone) => signals::request_stop(),
            None => {}
        }
        if now_ns >= self.refresh_at_ns {
            self.refresh_at_ns = now_ns + REFRESH_NS;
            self.refresh(engine, groups, paths, now_ns);
        }
        if now_ns >= self.figures_at_ns {
            self.figures_at_ns = now_ns + FIGURES_NS;
            self.draw_figures(engine, now_ns);
        }
    }

    /// How the rule for a group stands; `None`: there is none.
    pub fn status(&self, row: &Row, promotions: &Promotions, now_ns: u64) -> Option<RuleStatus> {
        let path = row.cgroup.as_deref()?;
        let number = self.config.rule_of(path)?;
        let rule = &self.config.rules[number];
        if rule.dry_run {
            let age = self.age(number, path, now_ns);
            return Some(RuleStatus::tried(&rule.name, age, row.ages.as_ref(), promotions.of(path)));
        }
        self.acting.get(path).cloned()
    }

    fn reload(&mut self, engine: &mut SchemeEngine, now_ns: u64) {
        match read(&self.file, self.dry_run) {
            Ok(config) => {
                self.config = config;
                engine.set_pace(self.config.pace);
                self.slots.replace_rules(|path| self.config.acting_rule_of(path), now_ns);
                engine.commit(self.schemes(now_ns));
                self.refresh_at_ns = 0;
                tracing::info!("read again: {}", self.words());
            }
            Err(e) => tracing::error!("{}; the rules stay as they were", in_words(&e)),
        }
    }

    /// Follows the groups that come and go.
    fn refresh(&mut self, engine: &mut SchemeEngine, groups: &Groups, paths: &mut GroupPaths, now_ns: u64) {
        engine.locate(|pid| paths.of(pid, now_ns, |pid| groups.path_of(pid)));
        let with_rule = |path: String| self.config.acting_rule_of(&path).map(|rule| (path, rule));
        let changed = self.slots.update(engine.groups().into_iter().filter_map(with_rule).collect(), now_ns);
        let protections = |(place, path, _)| {
            // What has gone has no limit any more.
            let memcg = groups.memcg(path)?;
            let protections = memcg.protections();
            (protections.is_ok() || memcg.exists()).then_some((place, protections))
        };
        let protections: Vec<_> = self.slots.groups().filter_map(protections).collect();
        let before = std::mem::replace(&mut self.limits, limits(&protections, REFRESH_NS / WINDOW_NS));
        for (place, ..) in self.slots.groups().filter(|(place, ..)| before.get(place) != self.limits.get(place)) {
            engine.limit(place, self.limits.get(&place).map(Limit::bytes));
        }
        if changed || self.ages_changed {
            self.ages_changed = false;
            engine.commit(self.schemes(now_ns));
        }
    }

    /// Whether it is time to [`learn`](Self::learn).
    pub fn is_window_over(&self, now_ns: u64) -> bool {
        self.config.learns() && self.thresholds.is_due(now_ns)
    }

    /// Ends a window: takes over how much of each group's memory was in use and came back, for rules that go by it.
    pub fn learn(&mut self, machine: &Machine, promotions: &Promotions, now_ns: u64) {
        let config = &self.config;
        self.thresholds.end_window(now_ns, machine, promotions, |path| config.policy_of(path));
        self.ages_changed = true;
        self.refresh_at_ns = now_ns;
    }

    /// From which age on the rule for the group at `path` takes memory now.
    fn age(&self, rule: usize, path: &str, now_ns: u64) -> Age {
        match self.config.rules[rule].min_age {
            MinAge::Fixed(ns) => Age::Known(ns),
            MinAge::Auto(_) => self.thresholds.age(path, now_ns),
        }
    }

    fn schemes(&self, now_ns: u64) -> Vec<Scheme> {
        let scheme = |(place, slot): (usize, &Slot)| match slot {
            Slot::Group { path, rule, .. } => {
                let age_ns = match self.age(*rule, path, now_ns) {
                    Age::Known(ns) => ns,
                    // Longer than anything lives.
                    Age::NotKnown | Age::None => u64::MAX,
                };
                let mut scheme = self.config.rules[*rule].scheme(path, age_ns);
                scheme.quota.bytes = self.limits.get(&place).map(Limit::bytes);
                scheme
            }
            // For no group at all.
            Slot::Empty { .. } => {
                Scheme { group: Some(String::new()), ..Scheme::new(Action::Stat, AccessPattern::default()) }
            }
        };
        self.slots.all().iter().enumerate().map(scheme).collect()
    }

    fn draw_figures(&mut self, engine: &mut SchemeEngine, now_ns: u64) {
        let statuses = engine.status_without_meters();
        let mut acting = BTreeMap::new();
        for (place, path, rule) in self.slots.groups() {
            let Some(scheme) = statuses.get(place) else { continue };
            let (limit, age) = (self.limits.get(&place), self.age(rule, path, now_ns));
            let rule = &self.config.rules[rule];
            let status = RuleStatus::acting(&rule.name, age, scheme, limit);
            let brakes = |status: &RuleStatus| status.figures.reclaim_brakes.unwrap_or_default();
            let before = self.acting.get(path).map_or(0, brakes);
            if brakes(&status) > before {
                let why = status.idle_reason.as_deref().unwrap_or("too much came back");
                tracing::warn!("{} is braked in {}: {why}", rule.name, printable(path));
            }
            acting.insert(path.to_owned(), status);
        }
        self.acting = acting;
    }
}

fn read(file: &std::path::Path, dry_run: bool) -> anyhow::Result<Config> {
    let text = read_file(file)?;
    let mut config = Config::parse(&file.display().to_string(), &text).map_err(|e| Usage(e.to_string()))?;
    config.rules.iter_mut().for_each(|rule| rule.dry_run |= dry_run);
    Ok(config)
}
