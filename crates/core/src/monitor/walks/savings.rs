//! What walks may spend: their part of the CPU budget, saved up from walk to walk.

/// Part of the CPU budget that walks may take; the rest is for regions.
const SHARE: f64 = 0.55;
/// The same while much has never been cleared: until then regions say little either.
pub(in crate::monitor) const SHARE_AT_FIRST: f64 = 0.75;
/// The same where there are no regions: at most this part, ...
const MOST_ALONE: f64 = 0.95;
/// ... and of the budget so much may be aimed at by what follows mappings and footprints, which takes a part of it.
const LEFT_ALONE: f64 = 0.5;
/// What these have spent beyond that is made up for later on, by so large a part of what walks have.
const MADE_UP: f64 = 0.5;
/// Budget is saved up for so many times the time between two walks.
const SAVED: f64 = 1.5;
/// Of what walks do not need, so much is given to regions; over so long is seen what they need, ns.
const GIVEN: f64 = 0.4;
const RATE_NS: f64 = 5e9;
/// Of the budget so much is aimed at: what things cost is known only afterwards.
const AIM: f64 = 0.86;
/// Of the difference so much may be spent in advance later on.
const ADVANCE_PART: f64 = 0.5;
/// Part of the walks' budget that looking for pages that several targets map may take.
pub(super) const TOGETHER_PART: f64 = 0.2;
/// It is saved up for no longer than this: of thousands of targets it is more expensive, and not put off for long, ns.
const LONGEST_ASIDE_NS: f64 = 60e9;
/// What a start may take in advance, ns of its share.
pub(super) const ADVANCE_NS: u64 = 250_000_000;

/// The budget of the walks of all targets.
#[derive(Debug, Default)]
pub(super) struct Savings {
    /// Budget that is saved, ns; negative where more was spent.
    pub saved_ns: f64,
    filled_ns: Option<u64>,
    /// When the first walks began.
    pub began_ns: Option<u64>,
    /// What is set aside for looking for pages that several targets map, how much that is to be, and what it cost the last
    /// time, ns.
    aside_ns: f64,
    wanted_aside_ns: f64,
    aside_cost_ns: Option<f64>,
    /// Spent since the last fill, and a moving average of what is spent, in parts of a core; `None`: not known yet.
    recent_ns: f64,
    rate: Option<f64>,
    /// Whether much was never cleared when the last turn began: then bits say little.
    pub at_first: bool,
    /// Where there are no regions: what all else takes.
    others: Option<Others>,
}

/// What is spent on something else than walks and regions: following mappings and footprints.
#[derive(Debug, Default)]
struct Others {
    /// Since the last fill, ns.
    recent_ns: f64,
    /// A moving average, in parts of a core.
    rate: f64,
    /// What was spent beyond the budget, and is not made up for yet, ns.
    over_ns: f64,
    /// Whether it is being made up for.
    makes_up: bool,
}

/// Of a CPU `budget` (a share of a core), what walks may take at any time.
pub(super) const fn least_share(budget: f64) -> f64 {
    budget * AIM * SHARE
}

impl Savings {
    /// `alone`: there are no regions.
    pub fn new(alone: bool) -> Self {
        Self { others: alone.then(Others::default), ..Self::default() }
    }

    /// Whether there are no regions.
    pub const fn is_alone(&self) -> bool {
        self.others.is_some()
    }

    pub fn others_spent(&mut self, ns: u64) {
        if let Some(others) = &mut self.others {
            others.recent_ns += ns as f64;
        }
    }

    /// The part of the CPU `budget` (a share of a core) that walks may take at present.
    fn part(&self, budget: f64) -> f64 {
        let part = if self.at_first { SHARE_AT_FIRST } else { SHARE };
        match &self.others {
            // Finding hundreds of processes is expensive at first, and over soon.
            Some(others) => {
                let made_up = if others.makes_up && others.over_ns > 0.0 { MADE_UP } else { 0.0 };
                (1.0 - others.rate / budget).clamp(part, MOST_ALONE) * (1.0 - made_up)
            }
            None => part,
        }
    }

    /// The share of a core that walks aim at, of a `budget`.
    pub fn share(&self, budget: f64) -> f64 {
        budget * AIM * self.part(budget)
    }

    /// The part of `budget` that is left for regions.
    pub fn left(&self, budget: f64) -> f64 {
        if self.is_alone() {
            return LEFT_ALONE;
        }
        let part = self.part(budget);
        let needed = self.rate.map_or(part, |rate| rate / budget);
        AIM * (1.0 - part + (part - needed).max(0.0) * GIVEN)
    }

    /// How long there have been walks, ns.
    pub fn watched_ns(&self) -> u64 {
        self.filled_ns.zip(self.began_ns).map_or(0, |(now, begin)| now - begin)
    }

    /// What may be spent before it is saved, ns of a `share` of a core: less than the budget has been more than was aimed
    /// at so far.
    pub fn advance_ns(&self, share: f64) -> f64 {
        share * (self.watched_ns() as f64 * (1.0 / AIM - 1.0) * ADVANCE_PART).min(ADVANCE_NS as f64)
    }

    /// Takes out what was spent.
    pub fn spend(&mut self, ns: f64) {
        self.saved_ns -= ns;
        self.recent_ns += ns;
    }

    /// Without regions: whether what finding thousands of processes took beyond the budget is made up for. Not before there
    /// are figures.
    pub fn make_up(&mut self, now: bool) {
        if let Some(others) = &mut self.others {
            others.makes_up = now;
        }
    }

    /// Whether what is set aside pays for looking for pages that several targets map.
    pub fn has_aside(&self) -> bool {
        self.wanted_aside_ns > 0.0 && self.aside_ns >= self.wanted_aside_ns
    }

    /// Takes what that cost out of what is set aside for it.
    pub fn spend_aside(&mut self, ns: f64) {
        self.recent_ns += ns;
        self.saved_ns += (self.aside_ns - ns).min(0.0);
        (self.aside_ns, self.aside_cost_ns) = ((self.aside_ns - ns).max(0.0), Some(ns));
    }

    /// Adds what the time since the last call has brought, of a `budget` (a share of a core; `None`: there is none).
    /// `interval_ns`: the time between two walks, of a share; `together_ns`: what looking for pages that several targets map
    /// costs, as long as nobody knows better; 0: nobody does.
    pub fn fill(&mut self, budget: Option<f64>, now_ns: u64, interval_ns: impl FnOnce(f64) -> f64, together_ns: f64) {
        let share = budget.map(|budget| self.share(budget));
        let Some(filled_ns) = self.filled_ns else {
            // The first walks may begin at once, with what the next moments bring.
            self.filled_ns = Some(now_ns + ADVANCE_NS);
            self.began_ns = self.filled_ns;
            self.saved_ns = share.map_or(0.0, |share| share * ADVANCE_NS as f64);
            return;
        };
        let since = now_ns.saturating_sub(filled_ns) as f64;
        self.filled_ns = Some(filled_ns.max(now_ns));
        if since > 0.0 {
            let rate = std::mem::take(&mut self.recent_ns) / since;
            let weight = (since / RATE_NS).min(1.0);
            self.rate = Some(self.rate.map_or(rate, |known| known + (rate - known) * weight));
            if let Some(others) = &mut self.others {
                let spent_ns = std::mem::take(&mut others.recent_ns);
                others.rate += (spent_ns / since - others.rate) * weight;
                let left = budget.zip(share).map_or(f64::INFINITY, |(budget, share)| budget * AIM - share);
                others.over_ns = (others.over_ns + spent_ns - left * since).max(0.0);
            }
        }
        let Some(share) = share else { return };
        let rate = share * TOGETHER_PART;
        let cost_ns = if together_ns > 0.0 { self.aside_cost_ns.unwrap_or(together_ns) } else { 0.0 };
        self.wanted_aside_ns = cost_ns.min(rate * LONGEST_ASIDE_NS);
        let aside_ns = (rate * since).min(self.wanted_aside_ns - self.aside_ns).max(0.0);
        self.aside_ns += aside_ns;
        self.saved_ns = (self.saved_ns + share * since - aside_ns).min(share * interval_ns(share) * SAVED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;
    const BUDGET: f64 = 0.01;

    #[test]
    fn what_finding_targets_took_is_made_up_for_once_there_are_figures() {
        let mut savings = Savings::new(true);
        savings.fill(Some(BUDGET), 0, |_| 1e9, 0.0);
        savings.others_spent(S / 10);
        let mut shares = Vec::new();
        for second in 1..=100 {
            savings.make_up(second > 50);
            savings.fill(Some(BUDGET), second * S, |_| 1e9, 0.0);
            shares.push(savings.share(BUDGET));
        }
        let whole = BUDGET * AIM * MOST_ALONE;
        assert!((shares[49] - whole).abs() < 1e-9, "nobody waits for figures: {shares:?}");
        assert!((shares[51] - whole * (1.0 - MADE_UP)).abs() < 1e-9);
        // Nothing else is spent: what is left beside half of it makes up for 100 ms.
        let halved = shares.iter().filter(|&&share| share < whole * 0.9 && share > whole * 0.3).count();
        assert!((1..50).contains(&halved), "{halved}");
        assert!((shares[99] - whole).abs() < 1e-9, "made up for");
    }
}
