//! Rules: what the node does to control groups, if a file says so. For each group that a rule names there is a scheme of
//! the engine that watches anyway, so that goals, brakes and figures are the group's own.

mod cache;
pub mod config;
mod limits;
mod pattern;
mod read;
mod slots;
pub mod status;
mod thresholds;

use super::paths::GroupPaths;
use super::promotions::Promotions;
use crate::commands::schemes::run::engine;
use crate::exit::{Unsupported, in_words};
use crate::groups::Groups;
use crate::hangup::{Hangup, Hangups};
use cache::{Caches, Wanted};
use config::{Config, MinAge, What};
use isotherm_core::history::reaccessed::Reaccessed;
use isotherm_core::printable::printable;
use isotherm_core::scheme::Scheme;
use isotherm_core::scheme::action::Action;
use isotherm_core::scheme::engine::SchemeEngine;
use isotherm_core::scheme::pattern::AccessPattern;
use isotherm_core::units::format_size;
use isotherm_linux::action::{huge_pages_off, unsupported};
use isotherm_linux::roots::Roots;
use isotherm_linux::signals;
use isotherm_view::machine::{Machine, Row};
use limits::{Limit, Sharer, limits};
use slots::{Slot, Slots};
use status::{CacheStatus, RuleStatus};
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
    /// What may be taken until the next refresh, by the place of the group.
    limits: HashMap<usize, Limit>,
    /// Of groups whose rules leave the age to their past.
    thresholds: Thresholds,
    caches: Caches,
    /// Why no huge pages can be made; `None`: they can.
    no_huge_pages: Option<String>,
    acting: BTreeMap<String, RuleStatus>,
    /// By group: what its rule had paged out and came back.
    back: Vec<(String, Reaccessed)>,
    /// From which age on each slot's rule takes memory, as it is in force.
    ages: Vec<Age>,
    refresh_at_ns: u64,
    figures_at_ns: u64,
    hangups: Hangups,
}

impl Rules {
    /// Reads `file`. `dry_run`: none of its rules does anything.
    pub fn open(file: PathBuf, dry_run: bool) -> anyhow::Result<Self> {
        let hangups = Hangups::catch()?;
        let config = read::first(&file, dry_run)?;
        Ok(Self {
            file,
            dry_run,
            config,
            slots: Slots::default(),
            limits: HashMap::new(),
            thresholds: Thresholds::default(),
            caches: Caches::default(),
            no_huge_pages: None,
            acting: BTreeMap::new(),
            back: Vec::new(),
            ages: Vec::new(),
            refresh_at_ns: 0,
            figures_at_ns: 0,
            hangups,
        })
    }

    /// What is to act for them.
    pub fn engine(&self) -> anyhow::Result<SchemeEngine> {
        if let Some(why) = unsupported(&Roots::system(), Action::PageOut, &[]).filter(|_| self.config.reclaims()) {
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

    /// Between two steps of the engine: does what is due. Whether the file was read again.
    pub fn turn(&mut self, engine: &mut SchemeEngine, groups: &Groups, paths: &mut GroupPaths, now_ns: u64) -> bool {
        let hangup = self.hangups.take();
        match hangup {
            Some(Hangup::Reload) => self.reload(engine, now_ns),
            Some(Hangup::TerminalGone) => signals::request_stop(),
            None => {}
        }
        if now_ns >= self.refresh_at_ns {
            self.refresh_at_ns = now_ns + REFRESH_NS;
            self.refresh(engine, groups, paths, now_ns);
        }
        self.turn_caches(engine, groups, now_ns);
        if now_ns >= self.figures_at_ns {
            self.figures_at_ns = now_ns + FIGURES_NS;
            self.draw_figures(engine);
        }
        hangup == Some(Hangup::Reload)
    }

    /// How the rule for a group stands; `None`: there is none.
    pub fn status(&self, row: &Row, promotions: &Promotions, now_ns: u64) -> Option<RuleStatus> {
        let path = row.cgroup.as_deref()?;
        let number = self.config.rule_of(path)?;
        let rule = &self.config.rules[number];
        if rule.dry_run && rule.reclaim().is_some() {
            let age = self.age(number, path, now_ns);
            return Some(RuleStatus::tried(&rule.name, age, row.ages.as_ref(), promotions.of(path)));
        }
        self.acting.get(path).cloned()
    }

    /// By group: of what its rule has paged out, what came back, by how long it had been idle.
    pub fn back(&self) -> &[(String, Reaccessed)] {
        &self.back
    }

    /// The same with what could go of page cache, where that is only tried.
    pub fn status_with_cache(
        &self,
        row: &Row,
        promotions: &Promotions,
        groups: &Groups,
        now_ns: u64,
    ) -> Option<RuleStatus> {
        let mut status = self.status(row, promotions, now_ns)?;
        let path = row.cgroup.as_deref()?;
        let rule = &self.config.rules[self.config.rule_of(path)?];
        if rule.dry_run && rule.reclaim().is_some_and(|reclaim| reclaim.page_cache) {
            let idle = groups.memcg(path).and_then(|group| group.file_memory().ok()).map(|memory| memory.idle);
            status.page_cache = Some(CacheStatus::tried(idle));
        }
        Some(status)
    }

    /// Gives page cache back, where rules want that.
    fn turn_caches(&mut self, engine: &mut SchemeEngine, groups: &Groups, now_ns: u64) {
        let mut caches = std::mem::take(&mut self.caches);
        let wanted = |(place, path, rule): (usize, _, usize)| {
            let age = *self.ages.get(place)?;
            let reclaim = self.config.rules[rule].reclaim()?;
            let policy = reclaim.cache_policy(age.ns().unwrap_or(u64::MAX))?;
            Some(Wanted { path, policy, age, limit: self.limits.get(&place) })
        };
        let wanted: Vec<Wanted<'_>> = self.slots.groups().filter_map(wanted).collect();
        caches.turn(&wanted, |path| groups.memcg(path), engine, now_ns);
        self.caches = caches;
    }

    fn reload(&mut self, engine: &mut SchemeEngine, now_ns: u64) {
        match read::again(&self.file, self.dry_run, &self.config) {
            Ok(config) => {
                self.config = config;
                engine.set_pace(self.config.pace);
                self.slots.replace_rules(|path| self.config.working_rule_of(path), now_ns);
                self.ages = self.ages_at(now_ns);
                engine.commit(self.schemes());
                self.refresh_at_ns = 0;
                tracing::info!("read again: {}", self.words());
            }
            Err(e) => tracing::error!("{}; the rules stay as they were", in_words(&e)),
        }
    }

    /// Follows the groups that come and go.
    fn refresh(&mut self, engine: &mut SchemeEngine, groups: &Groups, paths: &mut GroupPaths, now_ns: u64) {
        engine.locate(|pid| paths.of(pid, now_ns, |pid| groups.path_of(pid)));
        let with_rule = |path: String| self.config.working_rule_of(&path).map(|rule| (path, rule));
        let changed = self.slots.update(engine.groups().into_iter().filter_map(with_rule).collect(), now_ns);
        let sharer = |(place, path, rule): (usize, &str, usize)| {
            let reclaim = self.config.rules[rule].reclaim()?;
            let protections = groups.protections(path)?;
            Some(Sharer { place, takers: 1 + u64::from(reclaim.page_cache), protections })
        };
        let sharers: Vec<_> = self.slots.groups().filter_map(sharer).collect();
        self.limits = limits(&sharers);
        let limits = self.slots.groups().map(|(place, path, _)| (path, self.limits.get(&place)));
        self.caches.limit(limits);
        self.no_huge_pages = huge_pages_off(&Roots::system());
        // A window has ended, or the time in which a young group is left alone.
        let ages = self.ages_at(now_ns);
        if changed || ages != self.ages {
            self.ages = ages;
            engine.commit(self.schemes());
        }
        // Schemes that have just come have none yet.
        for (place, _, rule) in self.slots.groups() {
            let is_off = self.no_huge_pages.is_some() && self.config.rules[rule].reclaim().is_none();
            engine.limit(place, self.limits.get(&place).map(Limit::bytes).or(is_off.then_some(0)));
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
        self.refresh_at_ns = now_ns;
    }

    /// From which age on the rule for the group at `path` takes memory now.
    fn age(&self, rule: usize, path: &str, now_ns: u64) -> Age {
        match self.config.rules[rule].reclaim().map(|reclaim| reclaim.min_age) {
            Some(MinAge::Fixed(ns)) => Age::Known(ns),
            Some(MinAge::Auto(_)) => self.thresholds.age(path, now_ns),
            // Huge pages go by another time.
            None => Age::None,
        }
    }

    /// That of each slot.
    fn ages_at(&self, now_ns: u64) -> Vec<Age> {
        let age = |slot: &Slot| match slot {
            Slot::Group { path, rule, .. } => self.age(*rule, path, now_ns),
            Slot::Empty { .. } => Age::None,
        };
        self.slots.all().iter().map(age).collect()
    }

    fn schemes(&self) -> Vec<Scheme> {
        let scheme = |(slot, age): (&Slot, &Age)| match slot {
            Slot::Group { path, rule, .. } => {
                // Else longer than anything lives.
                self.config.rules[*rule].scheme(path, age.ns().unwrap_or(u64::MAX), self.config.pace)
            }
            // For no group at all.
            Slot::Empty { .. } => {
                Scheme { group: Some(String::new()), ..Scheme::new(Action::Stat, AccessPattern::default()) }
            }
        };
        self.slots.all().iter().zip(&self.ages).map(scheme).collect()
    }

    fn draw_figures(&mut self, engine: &mut SchemeEngine) {
        let statuses = engine.status_without_meters();
        let mut acting = BTreeMap::new();
        self.back.clear();
        for (place, path, rule) in self.slots.groups() {
            let (Some(scheme), Some(&age)) = (statuses.get(place), self.ages.get(place)) else { continue };
            let limit = self.limits.get(&place);
            let rule = &self.config.rules[rule];
            let off = self.no_huge_pages.as_deref().map(|why| ("huge_pages_off", why));
            let status = match &rule.what {
                What::Reclaim(_) => RuleStatus {
                    page_cache: self.caches.status(path),
                    ..RuleStatus::acting(&rule.name, age, scheme, limit)
                },
                What::HugePages { .. } => RuleStatus::huge_pages(&rule.name, rule.dry_run, scheme, off),
            };
            let brakes = |status: &RuleStatus| status.figures.reclaim_brakes.unwrap_or_default();
            let before = self.acting.get(path).map_or(0, brakes);
            if brakes(&status) > before {
                let why = status.idle_reason.as_deref().unwrap_or("too much came back");
                tracing::warn!("{} is braked in {}: {why}", rule.name, printable(path));
            }
            self.back.push((path.to_owned(), scheme.back));
            acting.insert(path.to_owned(), status);
        }
        self.acting = acting;
    }
}
