//! `--algorithm isotherm`: regions drawn from evidence.
//!
//! Where DAMON looks at one random page per region and splits at random, this algorithm
//! * watches many small windows (probes) that stay armed until they fire, so cold memory costs reads only ([`probe`]),
//! * draws regions where the observed density changes ([`segment`], [`likelihood`]),
//! * puts new probes where borders are uncertain ([`place`]),
//! * or, where the price fits the budget, reads every page's bit instead ([`scan`]).
//!
//! It looks at all probes at the end of each aggregation interval (touched at all), and at some of them after single
//! sampling intervals at random times within it (the access rate, comparable with DAMON's; [`rounds`]).
//! docs/algorithm.md explains the choices and shows what they gain.

mod age;
mod area;
mod cell;
mod likelihood;
mod place;
mod prices;
mod probe;
mod rounds;
mod scan;
mod segment;

use crate::addr::{AddrRange, PAGE_SIZE};
use crate::attrs::MonitorAttrs;
use crate::event::Mode;
use crate::monitor::algorithm::{Algorithm, Stretch, rescaled_age};
use crate::snapshot::{Evidence, RegionInfo};
use crate::source::{AccessSource, SourceError};
use crate::target::TargetId;
use area::Area;
use prices::Prices;
use segment::Limits;
use std::collections::BTreeMap;

/// A region as it is kept between intervals.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Region {
    start: u64,
    end: u64,
    nr: u32,
    age: u32,
    /// Share of the pages accessed within an aggregation interval.
    rate: f32,
    evidence: Evidence,
}

impl Region {
    fn new(start: u64, end: u64) -> Self {
        Self { start, end, ..Self::default() }
    }

    fn len(&self) -> u64 {
        self.end - self.start
    }

    /// Bytes accessed within the aggregation interval, in whole pages.
    fn accessed(&self) -> u64 {
        let pages = self.len() / PAGE_SIZE;
        match self.nr {
            0 => 0,
            _ => ((pages as f64 * f64::from(self.rate)).round() as u64).clamp(1, pages) * PAGE_SIZE,
        }
    }
}

/// Probes to begin with, and the most there may be, per region allowed.
const FEWEST_PROBES: usize = 64;
const PROBES_PER_REGION: usize = 3;

/// Clearing in one interval may cost so many times its budget: a start, or a target that wakes up, must not cost a
/// second's budget at once.
const BURST: f64 = 2.0;
/// Share of the budget to aim at: room for the bursts of a start and of changes.
const AIM: f64 = 0.8;

/// A load, and the intervals that a debt takes to be paid back, from which there must be fewer probes at once.
const OVERLOAD: f64 = 1.5;
const INTERVALS_IN_DEBT: f64 = 3.0;

/// Borders are pinned down to this part of the mean size that resident memory allows a region.
const PARTS_OF_A_REGION: u64 = 64;

/// What a call to the source takes at least, and reading a probe, in ns. Measured: 4 to 30 us for entering the kernel
/// and finding the target.
const CALL_NS: f64 = 10_000.0;
const READ_NS: f64 = 200.0;
/// What a probe takes in an interval, where every other one must be armed, at least, ns.
const PROBE_NS: f64 = 700.0;
/// Calls for a target and interval: arming, two rounds, the look at the end.
const CALLS: f64 = 6.0;
/// Part of the budget that rounds may take.
const ROUNDS_PART: f64 = 0.35;
/// Part of the budget that clearing for rates may take while every page is scanned.
const RATES_PART: f64 = 0.15;

/// What a scan costs, in ns: reading a byte of mapped memory's entries (0.18 ms a GiB), clearing an accessed page and
/// the target's price for setting it again, and both for the first clearing of a byte (13 ms a GiB without the
/// target's). Measured; see docs/algorithm.md.
const SCAN_READ_NS_PER_BYTE: f64 = 180_000.0 / (1u64 << 30) as f64;
const SCAN_CLEAR_NS_PER_BYTE: f64 = (55.0 + 300.0) / 4096.0;
const SCAN_FIRST_NS_PER_BYTE: f64 = (13e6 + 79e6) / (1u64 << 30) as f64;
/// Intervals to stay with probes after a scan proved too expensive.
const SCAN_COOLDOWN: u32 = 50;
/// Intervals after the begin of a scan before its load counts.
const SETTLING: u32 = 12;
/// What a scan's estimate is multiplied with at most after it proved too expensive, and how that fades per interval.
const MOST_PRICE_FACTOR: f64 = 16.0;
const PRICE_FACTOR_FADES: f64 = 0.999;

/// Isotherm's algorithm over any access source.
#[derive(Debug)]
pub(crate) struct Isotherm {
    /// What the user asked for; `None`: by cost.
    wanted_mode: Option<Mode>,
    mode: Mode,
    /// What an interval may cost, and what may be spent now, savings included: monitor and targets together, ns.
    budget_ns: f64,
    allowance_ns: f64,
    /// Intervals until a scan may be tried again.
    cooldown: u32,
    /// Intervals for which the load still shows the first clearing of a scan.
    settling: u32,
    /// How much more expensive than its estimate a scan proved here.
    scan_price_factor: f64,
    prices: Prices,
    /// What the source had cost when the interval's probes were armed.
    armed_at_ns: Option<u64>,
    rng: fastrand::Rng,
    areas: BTreeMap<TargetId, Area>,
    /// Probes wanted over all targets; the budget moves it.
    probes: usize,
    /// A target's memory has changed since probes were placed.
    moved: Option<MonitorAttrs>,
    interval: Interval,
}

/// What all targets have to share in an interval: summed up once, since a sum for each of hundreds is expensive.
#[derive(Debug, Default, Clone, Copy)]
struct Interval {
    /// Bytes monitored; at least 1.
    total_len: u64,
    /// What arming may cost, by its estimate, ns.
    arming_ns: f64,
    /// See [`Isotherm::rounds_each`].
    rounds_each: f64,
}

impl Isotherm {
    pub fn new(mode: Option<Mode>, seed: u64, attrs: &MonitorAttrs) -> Self {
        Self {
            wanted_mode: mode,
            mode: mode.unwrap_or(Mode::Sample),
            budget_ns: f64::INFINITY,
            allowance_ns: f64::INFINITY,
            cooldown: 0,
            settling: if mode == Some(Mode::Scan) { SETTLING } else { 0 },
            scan_price_factor: 1.0,
            prices: Prices::default(),
            armed_at_ns: None,
            rng: fastrand::Rng::with_seed(seed),
            areas: BTreeMap::new(),
            probes: (attrs.max_regions as usize).max(FEWEST_PROBES),
            moved: None,
            interval: Interval::default(),
        }
    }

    fn total_len(&self) -> u64 {
        self.areas.values().map(Area::total_len).sum()
    }

    fn place_all(&mut self, attrs: &MonitorAttrs) {
        let total = self.total_len().max(1);
        let resident: f64 = self.areas.values().map(|a| a.resident_and_hot().0).sum();
        let resolution = resident as u64 / u64::from(attrs.max_regions) / PARTS_OF_A_REGION;
        for area in self.areas.values_mut() {
            let share = (self.probes as u128 * u128::from(area.total_len()) / u128::from(total)) as usize;
            area.place(share.max(16), resolution, &mut self.rng);
        }
    }

    fn set_mode(&mut self, mode: Mode) {
        self.mode = mode;
        for area in self.areas.values_mut() {
            area.set_scanning(mode == Mode::Scan);
        }
    }

    /// What clearing may cost in this interval: what is left after the looks, which cannot be put off.
    fn arm_allowance_ns(&self) -> f64 {
        if self.mode == Mode::Scan {
            return (self.budget_ns * RATES_PART).min(self.allowance_ns);
        }
        let armed = self.areas.values().flat_map(|a| &a.probes).filter(|p| !p.needs_arm).count();
        let looks = self.areas.len() as f64 * 2.0 * CALL_NS + armed as f64 * READ_NS;
        (self.allowance_ns - looks).min(self.budget_ns * BURST)
    }

    /// What of this interval's allowance is left to rounds, ns: for the first ones of all a whole run, or rates would
    /// not be known for seconds.
    fn saved_for_rounds_ns(&self) -> f64 {
        let run_ns = area::RUN * self.prices.round_ns;
        let saved_ns = self.budget_ns.min(self.allowance_ns.max(0.0)) * ROUNDS_PART;
        let saved_ns = saved_ns.min(run_ns * self.areas.len() as f64);
        match self.prices.rounds_seen {
            true => saved_ns,
            false => saved_ns.max(run_ns.min(self.allowance_ns / 2.0)),
        }
    }

    /// What part of a round each target may have in this interval; where that is less than one, it saves.
    fn rounds_each(&self) -> f64 {
        self.budget_ns * ROUNDS_PART / (self.prices.round_ns * self.areas.len().max(1) as f64)
    }

    /// Whether scanning every page fits `budget_ns` per aggregation interval with room to spare.
    fn scan_fits(&self, budget_ns: f64) -> bool {
        let (mut resident, mut hot) = (0.0, 0.0);
        for area in self.areas.values() {
            let (r, h) = area.resident_and_hot();
            resident += r;
            hot += h;
        }
        let each = resident * SCAN_READ_NS_PER_BYTE + hot * SCAN_CLEAR_NS_PER_BYTE;
        each * self.scan_price_factor < budget_ns / 2.0
    }

    /// Whether enough is saved for clearing every page once.
    fn scan_is_saved_for(&self) -> bool {
        let resident: f64 = self.areas.values().map(|a| a.resident_and_hot().0).sum();
        resident * SCAN_FIRST_NS_PER_BYTE < self.allowance_ns
    }
}

/// What watching has cost the monitor and its targets so far.
fn spent_ns(source: &dyn AccessSource) -> u64 {
    let cost = source.cost();
    cost.monitor_ns + cost.target_ns
}

impl Algorithm for Isotherm {
    fn set_space(&mut self, target: TargetId, space: &[AddrRange], attrs: &MonitorAttrs) {
        let scanning = self.mode == Mode::Scan;
        let area = self.areas.entry(target).or_default();
        area.set_scanning(scanning);
        area.set_space(space);
        self.moved = Some(*attrs);
    }

    fn drop_target(&mut self, target: TargetId) {
        self.areas.remove(&target);
    }

    fn least_ns(&self) -> f64 {
        self.areas.len() as f64 * CALLS * CALL_NS
    }

    fn allow(&mut self, allowance_ns: f64, budget_ns: f64) {
        // A scan that the user asked for begins with a debt, its first clearing; its rates are not to wait until that
        // is paid.
        let least = if self.wanted_mode == Some(Mode::Scan) { budget_ns * RATES_PART } else { f64::NEG_INFINITY };
        if self.budget_ns.is_infinite() {
            // The first time: more probes than can be paid for would only be in each other's way.
            let affordable = (budget_ns / PROBE_NS).min(self.probes as f64) as usize;
            self.probes = affordable.max(FEWEST_PROBES).min(self.probes);
        }
        (self.allowance_ns, self.budget_ns) = (allowance_ns.max(least), budget_ns);
        if let Some(attrs) = self.moved.take() {
            self.place_all(&attrs);
        }
        // What rounds save for is not spent on arming.
        let arming_ns = (self.arm_allowance_ns() - self.saved_for_rounds_ns()) / self.prices.arming;
        let rounds_each = if self.allowance_ns > 0.0 { self.rounds_each() } else { 0.0 };
        self.interval = Interval { total_len: self.total_len().max(1), arming_ns, rounds_each };
    }

    fn prepare(
        &mut self,
        target: TargetId,
        tick: u32,
        per_aggr: u32,
        source: &mut dyn AccessSource,
    ) -> Result<(), SourceError> {
        if tick == 0 {
            let Some(area) = self.areas.get_mut(&target) else { return Ok(()) };
            let Interval { total_len, arming_ns, rounds_each } = self.interval;
            let part = area.total_len() as f64 / total_len as f64;
            let before_ns = spent_ns(source);
            let price_ns = area.begin(target, arming_ns * part, rounds_each, per_aggr, &mut self.rng, source)?;
            let armed_at_ns = spent_ns(source);
            self.prices.learn_arming(price_ns, armed_at_ns - before_ns);
            self.armed_at_ns = Some(armed_at_ns);
        }
        let Some(area) = self.areas.get_mut(&target) else { return Ok(()) };
        area.begin_round(target, tick, per_aggr, &mut self.rng, source)
    }

    fn next_check(&self, tick: u32, per_aggr: u32) -> u32 {
        self.areas.values().filter_map(|a| a.next_stop(tick)).min().unwrap_or(per_aggr)
    }

    fn check(
        &mut self,
        target: TargetId,
        tick: u32,
        per_aggr: u32,
        source: &mut dyn AccessSource,
    ) -> Result<(), SourceError> {
        if tick == per_aggr
            && let Some(armed_at_ns) = self.armed_at_ns.take()
        {
            // What was spent since the probes were armed went into the interval's rounds.
            let rounds = self.areas.values().map(Area::nr_rounds).sum();
            self.prices.learn_rounds(rounds, spent_ns(source).saturating_sub(armed_at_ns));
        }
        let Some(area) = self.areas.get_mut(&target) else { return Ok(()) };
        area.end_round(target, tick, source)?;
        if tick == per_aggr { area.look_aggr(target, source) } else { Ok(()) }
    }

    fn aggregate(&mut self, attrs: &MonitorAttrs) {
        let total = self.total_len().max(1);
        let max_nr = attrs.max_nr_accesses();
        let hottest = self.areas.values().flat_map(|a| &a.regions).map(|r| r.nr).max().unwrap_or(0);
        for area in self.areas.values_mut() {
            // Limits on the number of regions hold over all targets; each gets its share by size.
            let share = |n: u32| (u128::from(n) * u128::from(area.total_len()) / u128::from(total)) as usize;
            let limits = Limits {
                max_segments: share(attrs.max_regions).max(1),
                size_limit: (total / u64::from(attrs.min_regions.max(1))).max(crate::addr::TABLE_SPAN),
                max_nr,
                nr_threshold: hottest / 10,
            };
            let least = share(attrs.min_regions);
            area.aggregate(&limits);
            area.ensure_regions(least.min(limits.max_segments));
        }
        // Rounding shares down may leave the total below the least number.
        let missing = (attrs.min_regions as usize).saturating_sub(self.nr_regions());
        if missing > 0
            && let Some(area) = self.areas.values_mut().max_by_key(|a| a.total_len())
        {
            area.ensure_regions(area.regions.len() + missing);
        }
    }

    fn regions(&self, target: TargetId, out: &mut Vec<RegionInfo>) {
        if let Some(area) = self.areas.get(&target) {
            area.region_infos(out);
        }
    }

    fn reset(&mut self, attrs: &MonitorAttrs) {
        self.place_all(attrs);
    }

    fn rescale_ages(&mut self, old_us: u64, new_us: u64) {
        for r in self.areas.values_mut().flat_map(|a| &mut a.regions) {
            r.age = rescaled_age(r.age, old_us, new_us);
        }
    }

    fn adapt(&mut self, load: f64, budget_ns: f64, attrs: &MonitorAttrs) -> Stretch {
        self.cooldown = self.cooldown.saturating_sub(1);
        if self.mode == Mode::Scan {
            self.settling = self.settling.saturating_sub(1);
            let expensive = load > 1.0 && self.settling == 0;
            // What the last interval saw tells at once that much more is accessed now than when the scan began.
            if self.wanted_mode.is_none() && (expensive || !self.scan_fits(2.0 * budget_ns)) {
                self.cooldown = SCAN_COOLDOWN;
                self.scan_price_factor = (self.scan_price_factor * load.max(1.0)).min(MOST_PRICE_FACTOR);
                self.set_mode(Mode::Sample);
                return Stretch::Keep;
            }
            return match load {
                _ if self.settling > 0 => Stretch::Keep,
                l if l > 1.0 => Stretch::Longer(l.min(2.0)),
                l if l < 0.5 => Stretch::Shorter((AIM / l.max(AIM / 2.0)).min(2.0)),
                _ => Stretch::Keep,
            };
        }
        self.scan_price_factor = 1.0 + (self.scan_price_factor - 1.0) * PRICE_FACTOR_FADES;
        if self.wanted_mode.is_none() && self.cooldown == 0 && self.scan_fits(budget_ns) && self.scan_is_saved_for() {
            self.settling = SETTLING;
            self.set_mode(Mode::Scan);
            return Stretch::Keep;
        }
        let most = attrs.max_regions as usize * PROBES_PER_REGION;
        let fewest = FEWEST_PROBES.max(attrs.min_regions as usize * 4).min(most);
        // Slowly: where rounds come every few intervals, the load goes up and down with them, and probes that come and
        // go know no rates.
        let in_debt = load > OVERLOAD || self.allowance_ns < -budget_ns * INTERVALS_IN_DEBT;
        let by = if in_debt { 0.7 } else { (AIM / load.max(0.01)).clamp(0.95, 1.1) };
        let wanted = (self.probes as f64 * by) as usize;
        self.probes = wanted.clamp(fewest, most);
        if wanted < fewest && (load > OVERLOAD || self.allowance_ns < 0.0) {
            Stretch::Longer(load.clamp(1.0, 2.0))
        } else if load < 0.9 {
            // Shorter intervals are worth more than more probes.
            Stretch::Shorter((0.9 / load.max(0.45)).min(2.0))
        } else {
            Stretch::Keep
        }
    }

    fn nr_regions(&self) -> usize {
        self.areas.values().map(|a| a.regions.len()).sum()
    }

    fn mode(&self) -> Mode {
        self.mode
    }
}
