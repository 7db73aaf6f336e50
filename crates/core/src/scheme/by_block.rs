//! A turn of a scheme whose victims are blocks of 2 MiB of which much is in use, by the page history: a huge page there
//! is used, and wastes little.

use super::apply::{Go, LOOK_AT_ONCE, Turn};
use super::target_view::TargetView;
use super::victims::portions;
use crate::addr::{AddrRange, PAGE_SIZE, TABLE_SPAN, normalize};
use crate::mask::{self, NO_PAGES};
use crate::pages::push_range;
use crate::target::TargetId;
use std::collections::BTreeSet;
use std::ops::ControlFlow;

const ALL_PAGES: mask::PageMask = [u64::MAX; 8];
/// So many tables, of 8 GiB, are looked at in each turn, since others than walks find pages accessed, too.
const EACH_TURN: usize = 4096;

impl Turn<'_, '_> {
    /// Serves all targets.
    pub(super) fn all_blocks(&mut self, open: &BTreeSet<TargetId>) -> Go {
        let targets = self.world.targets;
        let stopped = open.iter().any(|id| self.target_blocks(&targets[id]) == Go::Stop);
        if stopped { Go::Stop } else { Go::On }
    }

    /// Hands over the blocks of a target of which enough pages were accessed lately, and which are not huge pages yet. Of
    /// more than [`EACH_TURN`] tables each is looked at once when a walk has begun, and once when it has ended.
    fn target_blocks(&mut self, t: &TargetView) -> Go {
        let (now_ns, target) = (self.world.now_ns, t.live.target);
        let source = self.world.source.as_deref();
        let history = source.and_then(|s| s.page_history(target));
        // The first walk finds bits set that say nothing.
        let Some(history) = history.filter(|history| history.walks() >= 2) else {
            self.tally.unwalked += 1;
            return Go::On;
        };
        let keep_ns = self.runner.keep_treated_ns(self.world.dry_run);
        let left_out = self.runner.left_out.entry(target).or_default();
        left_out.expire(now_ns, keep_ns, None);
        let each_turn = history.table_count() <= EACH_TURN;
        let changed_ns = if each_turn { now_ns } else { history.now_ns() };
        let from = left_out.blocks_of(changed_ns).below;
        if from == u64::MAX {
            self.tally.known += 1;
            return Go::On;
        }
        let runner = &*self.runner;
        let parts = runner.parts(t, &t.mapped());
        let mut ranges: Vec<_> = parts.passing.into_iter().flat_map(|(_, ranges)| ranges).collect();
        normalize(&mut ranges);
        let codes = history.accessed_codes(now_ns.saturating_sub(runner.scheme.used_within_ns));
        // At least a page: a block of which none is used is not in use.
        let least = (512 * u64::from(runner.scheme.min_density_bp)).max(1);
        let (mut blocks, mut sparse, mut treated, mut huge) = (Vec::new(), 0, 0, 0);
        let mut room = runner.quota.left();
        let full_at = history.try_each_table_in(&ranges, from, |base, table, asked| {
            let pages = mask::and(&table.pages(&codes), asked);
            if table.huge {
                huge += TABLE_SPAN;
            } else if *asked != ALL_PAGES || u64::from(mask::count(&pages)) * 10_000 < least {
                sparse += u64::from(mask::count(&pages)) * PAGE_SIZE;
            } else if runner.leaves_out(target, base) != NO_PAGES {
                treated += TABLE_SPAN;
            } else if room < TABLE_SPAN {
                return ControlFlow::Break(base);
            } else {
                room -= TABLE_SPAN;
                push_range(&mut blocks, AddrRange::new(base, base + TABLE_SPAN));
            }
            ControlFlow::Continue(())
        });
        (self.tally.sparse, self.tally.huge) = (self.tally.sparse + sparse, self.tally.huge + huge);
        self.tally.treated += treated;
        let mut below = full_at.break_value().unwrap_or(u64::MAX);
        for portion in portions(&blocks, LOOK_AT_ONCE) {
            let begin = portion[0].start;
            if self.submit(t, portion) == Go::Stop {
                below = begin;
                break;
            }
        }
        if let Some(left_out) = self.runner.left_out.get_mut(&target) {
            left_out.blocks.below = below;
        }
        if below == u64::MAX { Go::On } else { Go::Stop }
    }
}
