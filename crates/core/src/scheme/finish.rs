//! What becomes of work that was handed over: figures, and what is not to be tried again at once.

use super::action::Action;
use super::engine::Runner;
use crate::actuator::Outcome;
use crate::addr::{AddrRange, total_len};
use crate::pages::PageSet;
use crate::source::{AccessSource, Clear};
use crate::target::TargetId;

impl Runner {
    /// Takes in what became of a piece of work.
    pub(super) fn finished(&mut self, outcome: &Outcome, source: Option<&mut dyn AccessSource>, now_ns: u64) {
        let request = &outcome.request;
        let asked = total_len(&request.ranges);
        self.quota.learn(asked, outcome.took_ns);
        self.stats.action_ns += outcome.took_ns;
        if let Some(in_flight) = self.in_flight.get_mut(&request.target.target) {
            in_flight.subtract(&PageSet::of(&request.ranges));
        }
        self.stats.nr_applied += outcome.nr_applied;
        let mut applied = outcome.applied;
        if let Some(source) = source.filter(|_| request.action == Action::PageOut) {
            let target = request.target.target;
            match self.effect.paged_out(source, target, &request.ranges, outcome.done_ns.min(now_ns)) {
                Ok(gone) => {
                    if gone < asked {
                        self.let_be(source, target, &request.ranges, now_ns);
                    }
                    applied = gone;
                }
                Err(_) => self.effect.forget(target),
            }
        }
        if request.action == Action::MigrateCold {
            // It is still there and still cold, and would be moved again and again at the cost of the quota.
            let treated = self.treated.entry(request.target.target).or_default();
            request.ranges.iter().for_each(|&r| treated.insert(r, now_ns));
        }
        self.stats.sz_applied += applied;
        self.refused = if applied == 0 { outcome.error.clone() } else { None };
    }

    /// What stayed although it was to go is not asked again at once.
    fn let_be(&mut self, source: &mut dyn AccessSource, target: TargetId, ranges: &[AddrRange], now_ns: u64) {
        let mut stayed = PageSet::default();
        let looked =
            source.scan(target, ranges, Clear::Nothing, &mut |bits| stayed.insert_mask(bits.base, &bits.present));
        if looked.is_ok() {
            let treated = self.treated.entry(target).or_default();
            stayed.ranges().into_iter().for_each(|r| treated.insert(r, now_ns));
        }
    }
}
