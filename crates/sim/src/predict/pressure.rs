//! How long tasks waited for memory: `some` of them, and all at once (`full`), as the kernel's pressure figures have
//! it.

/// Waits of tasks, reported in the order in which they begin.
#[derive(Debug, Clone)]
pub struct Pressure {
    /// When each task's last wait ends.
    until: Vec<u64>,
    /// Up to when `some` is counted.
    counted: u64,
    some: u64,
    full: u64,
    waited: u64,
}

impl Pressure {
    /// Nobody waits yet.
    pub fn new(tasks: u32) -> Self {
        Self { until: vec![0; tasks as usize], counted: 0, some: 0, full: 0, waited: 0 }
    }

    /// A task waits from `start` to `end`; its waits do not overlap.
    pub fn wait(&mut self, task: u32, start: u64, end: u64) {
        self.waited += end - start;
        self.some += end.saturating_sub(start.max(self.counted));
        self.counted = self.counted.max(end);
        self.until[task as usize] = end;
        // That all wait can only begin with the last of them, which is this one.
        let first = self.until.iter().copied().min().unwrap_or(0);
        self.full += first.saturating_sub(start);
    }

    /// How long at least one task waited.
    pub const fn some(&self) -> u64 {
        self.some
    }

    /// How long all waited at once.
    pub const fn full(&self) -> u64 {
        self.full
    }

    pub const fn waited(&self) -> u64 {
        self.waited
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn overlaps_count_once_and_all_at_once() {
        let mut p = Pressure::new(2);
        p.wait(0, 10, 20);
        p.wait(1, 15, 30);
        p.wait(0, 25, 27);
        p.wait(1, 40, 41);
        assert_eq!((p.some(), p.full(), p.waited()), (21, 7, 28));
    }

    proptest! {
        #[test]
        fn agrees_with_counting_moment_by_moment(waits in prop::collection::vec((0_u32..3, 0_u64..6, 0_u64..12), 0..60)) {
            let (mut p, mut free, mut at) = (Pressure::new(3), [0; 3], 0);
            let mut moments = vec![[false; 3]; 2000];
            for (task, later, len) in waits {
                at = free[task as usize].max(at + later);
                free[task as usize] = at + len;
                p.wait(task, at, at + len);
                moments[at as usize..(at + len) as usize].iter_mut().for_each(|m| m[task as usize] = true);
            }
            prop_assert_eq!(p.some(), moments.iter().filter(|m| m.contains(&true)).count() as u64);
            prop_assert_eq!(p.full(), moments.iter().filter(|m| !m.contains(&false)).count() as u64);
        }
    }
}
