//! Free pages: taken by misses, given by background reclaim ahead of need, or by the task that needs one.
//!
//! Background reclaim works like kswapd: it wakes when half of what it keeps free is gone, works on its own, page by
//! page, and sleeps when all of it is there again. Only when nothing is free does a task reclaim itself.

#[derive(Debug, Clone)]
pub(crate) struct Reclaimer {
    free: u64,
    /// What is to be kept free.
    high: u64,
    /// While it is awake: when it was done with its last page.
    done: Option<u64>,
    background: u64,
    direct: u64,
    busy: u64,
}

impl Reclaimer {
    /// `free` pages at first, `high` to be kept.
    pub const fn new(free: u64, high: u64) -> Self {
        Self { free, high, done: None, background: 0, direct: 0, busy: 0 }
    }

    /// Takes a page at `now`, when reclaiming one costs `cost`. How long the task has to work for it.
    pub fn take(&mut self, now: u64, cost: u64) -> u64 {
        self.work_until(now, cost);
        if self.free == 0 {
            self.direct += 1;
            return cost;
        }
        self.free -= 1;
        if self.done.is_none() && self.free <= self.high / 2 && self.high > 0 {
            self.done = Some(now);
        }
        0
    }

    fn work_until(&mut self, now: u64, cost: u64) {
        let Some(mut done) = self.done else { return };
        while self.free < self.high && done.saturating_add(cost) <= now {
            done += cost;
            self.free += 1;
            self.background += 1;
            self.busy += cost;
        }
        self.done = (self.free < self.high).then_some(done);
    }

    /// Pages reclaimed ahead of need.
    pub const fn background(&self) -> u64 {
        self.background
    }

    /// Pages that tasks had to reclaim themselves.
    pub const fn direct(&self) -> u64 {
        self.direct
    }

    /// How long background reclaim worked.
    pub const fn busy(&self) -> u64 {
        self.busy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wakes_at_half_and_sleeps_when_all_is_free() {
        let mut r = Reclaimer::new(4, 4);
        assert_eq!(r.take(0, 10), 0);
        assert_eq!(r.take(100, 10), 0, "half is gone: it wakes now");
        assert_eq!(r.take(105, 10), 0, "not done with the first page yet");
        assert_eq!((r.background(), r.free), (0, 1));
        assert_eq!(r.take(1000, 10), 0);
        assert_eq!((r.background(), r.free, r.busy()), (3, 3, 30), "all was free again");
        assert!(r.done.is_none());
    }

    #[test]
    fn who_finds_nothing_free_works_for_it() {
        let mut r = Reclaimer::new(2, 2);
        assert_eq!([r.take(0, 10), r.take(1, 10), r.take(2, 10), r.take(3, 10)], [0, 0, 10, 10]);
        assert_eq!((r.direct(), r.background()), (2, 0));
        assert_eq!(r.take(10, 10), 0, "the background is done with a page just now");
        let mut none = Reclaimer::new(1, 0);
        assert_eq!([none.take(0, 10), none.take(1000, 10)], [0, 10], "nothing is kept free, nobody works ahead");
    }
}
