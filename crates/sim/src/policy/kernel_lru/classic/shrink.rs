//! Reclaim from the two lists.

use super::super::flags::Flags;
use super::super::reclaim::DEF_PRIORITY;
use super::super::shadow::Shadow;
use super::super::tables::{PageTables, ones};
use super::balance::{Balance, inactive_is_low};
use super::{Classic, LISTS, NODE, list};

/// What becomes of a page at the tail of the inactive list.
enum Verdict {
    Evict,
    Keep,
    Activate,
    /// Dirty: written by someone else, then first in line.
    Write,
}

/// What one reclaim has decided and met so far.
#[derive(Debug, Clone, Copy, Default)]
struct Course {
    /// Which kinds' active lists may be shrunk.
    deactivate: [bool; 2],
    /// Shrink them in any case.
    force: bool,
    /// Some were not.
    skipped: bool,
}

impl Classic {
    fn accessed(&mut self, page: u32) -> u32 {
        let (mut accessed, mut nth) = (0, 0);
        while let Some(place) = self.tables.place(page, nth) {
            nth += 1;
            self.stats.ptes_read += 1;
            let bits = self.tables.take_young(place.table, place.entry, place.entry + 1);
            accessed += u32::from(ones(&bits).next().is_some());
        }
        accessed
    }

    fn judge(&mut self, page: u32) -> Verdict {
        let accessed = self.accessed(page);
        let flags = self.pages.flags_mut(page);
        let referenced = flags.has(Flags::REFERENCED);
        flags.clear(Flags::REFERENCED);
        let dirty_file = flags.has(Flags::FILE) && flags.has(Flags::DIRTY);
        if accessed > 0 {
            flags.set(Flags::REFERENCED);
            if referenced || accessed > 1 { Verdict::Activate } else { Verdict::Keep }
        } else if dirty_file && referenced {
            Verdict::Keep
        } else if dirty_file {
            Verdict::Write
        } else {
            Verdict::Evict
        }
    }

    fn evict(&mut self, page: u32) {
        self.tables.unmap(page);
        let flags = self.pages.flags(page);
        let shadow = Shadow { seq: self.age, refs: 0, memcg: 0, node: NODE, workingset: flags.has(Flags::WORKINGSET) };
        self.age += 1;
        let flags = self.pages.flags_mut(page);
        flags.reset();
        flags.set(Flags::SHADOW);
        self.pages.set_shadow(page, shadow.pack());
        self.resident -= 1;
        self.stats.evictions += 1;
    }

    pub(super) fn shrink_inactive(&mut self, kind: usize, count: u64) -> u64 {
        let mut batch = std::mem::take(&mut self.isolated);
        for _ in 0..count {
            let Some(page) = self.pages.tail(list(kind, false)) else { break };
            self.take_off(page);
            batch.push(page);
        }
        self.stats.pages_scanned += batch.len() as u64;
        let (mut reclaimed, mut written) = (0, 0);
        for &page in &batch {
            match self.judge(page) {
                Verdict::Evict => {
                    let flags = self.pages.flags(page);
                    written += u64::from(kind == 0 && !flags.has(Flags::SWAPCACHE));
                    self.evict(page);
                    reclaimed += 1;
                    continue;
                }
                Verdict::Keep => self.put(page, true),
                Verdict::Activate => {
                    self.pages.flags_mut(page).set(Flags::ACTIVE);
                    self.put(page, true);
                    self.age += 1;
                }
                Verdict::Write => {
                    self.pages.flags_mut(page).clear(Flags::DIRTY);
                    self.put(page, false);
                }
            }
            self.stats.list_moves += 1;
        }
        let rotated = batch.len() as u64 - reclaimed;
        batch.clear();
        self.isolated = batch;
        let pages = u64::from(self.resident);
        self.costs.note(kind, written, rotated, u64::from(self.config.batch), pages);
        reclaimed
    }

    fn shrink_active(&mut self, kind: usize, count: u64) {
        self.stats.agings += 1;
        for _ in 0..count {
            let Some(page) = self.pages.tail(list(kind, true)) else { break };
            self.stats.pages_scanned += 1;
            // Accessed or not, it goes: only executable files would stay.
            self.accessed(page);
            self.take_off(page);
            let flags = self.pages.flags_mut(page);
            flags.clear(Flags::ACTIVE);
            flags.set(Flags::WORKINGSET);
            self.put(page, true);
            self.stats.list_moves += 1;
        }
    }

    fn is_low(&self, kind: usize) -> bool {
        inactive_is_low(self.sizes[list(kind, false) as usize], self.sizes[list(kind, true) as usize])
    }

    fn balance(&self, course: Course, priority: u32) -> Balance {
        let swappiness = self.config.swappiness;
        let trim = self.sizes[list(1, false) as usize] >> priority > 0 && !course.deactivate[1];
        if !self.config.swap || swappiness == 0 {
            Balance::Only(1)
        } else if priority == 0 {
            Balance::Equal
        } else if trim {
            Balance::Only(1)
        } else {
            Balance::Shares(self.costs.shares(swappiness))
        }
    }

    fn shrink(&mut self, course: &mut Course, priority: u32, target: u64) -> u64 {
        for kind in 0..2 {
            course.deactivate[kind] =
                course.force || self.activations[kind] != self.activations_seen[kind] || self.is_low(kind);
        }
        let balance = self.balance(*course, priority);
        let mut left = [0; LISTS as usize];
        for (at, left) in left.iter_mut().enumerate() {
            *left = balance.apply(at / 2, self.sizes[at] >> priority);
        }
        let targets = left;
        let (mut reclaimed, mut adjusted) = (0, false);
        while left[0] > 0 || left[2] > 0 || left[3] > 0 {
            for (at, left) in left.iter_mut().enumerate() {
                let count = (*left).min(u64::from(self.config.batch));
                *left -= count;
                let kind = at / 2;
                if count == 0 {
                } else if at % 2 == 0 {
                    reclaimed += self.shrink_inactive(kind, count);
                } else if course.deactivate[kind] {
                    self.shrink_active(kind, count);
                } else {
                    course.skipped = true;
                }
            }
            if reclaimed >= target && !adjusted {
                if !keep_proportion(&mut left, &targets) {
                    break;
                }
                adjusted = true;
            }
        }
        if self.config.swap && self.is_low(0) {
            self.shrink_active(0, u64::from(self.config.batch));
        }
        reclaimed
    }

    fn try_reclaim(&mut self, target: u64) -> u64 {
        let mut course = Course::default();
        let mut reclaimed = 0;
        for _ in 0..2 {
            for priority in (0..=DEF_PRIORITY).rev() {
                reclaimed += self.shrink(&mut course, priority, target);
                if reclaimed >= target {
                    break;
                }
            }
            self.activations_seen = self.activations;
            if reclaimed > 0 || !course.skipped {
                break;
            }
            course = Course { force: true, ..Course::default() };
        }
        reclaimed
    }

    pub(super) fn make_room(&mut self) {
        let target = u64::from(self.config.batch).clamp(1, u64::from(self.config.capacity));
        for _ in 0..16 {
            if self.resident < self.config.capacity {
                return;
            }
            self.try_reclaim(target);
        }
        // Nothing that may be evicted: the kernel would kill someone. Here something must still give way.
        for at in [2, 3, 0, 1] {
            while self.resident >= self.config.capacity {
                let Some(page) = self.pages.tail(at) else { break };
                self.take_off(page);
                self.evict(page);
            }
        }
    }
}

/// Enough was evicted: of the kind with less left nothing more is scanned, of the other as much as keeps the
/// proportion. False if nothing is left of one of them.
fn keep_proportion(left: &mut [u64; 4], targets: &[u64; 4]) -> bool {
    let sum = |lists: &[u64; 4], kind: usize| lists[kind * 2] + lists[kind * 2 + 1];
    if sum(left, 0) == 0 || sum(left, 1) == 0 {
        return false;
    }
    let smaller = usize::from(sum(left, 1) <= sum(left, 0));
    let percentage = sum(left, smaller) * 100 / (sum(targets, smaller) + 1);
    for at in 0..4 {
        left[at] = if at / 2 == smaller {
            0
        } else {
            let scanned = targets[at] - left[at];
            (targets[at] * (100 - percentage) / 100).saturating_sub(scanned)
        };
    }
    true
}
