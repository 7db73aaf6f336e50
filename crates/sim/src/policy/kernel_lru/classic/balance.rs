//! How the classic LRU divides its work: between active and inactive, between anonymous memory and files.

/// Pages of 1 GiB.
const GIB_PAGES_LOG2: u32 = 18;

/// How many times the inactive list the active one may be, given the pages of both.
pub(crate) const fn inactive_ratio(pages: u64) -> u64 {
    match pages >> GIB_PAGES_LOG2 {
        0 => 1,
        gib => (10 * gib).isqrt(),
    }
}

/// Whether pages of the active list should be made inactive.
pub(crate) const fn inactive_is_low(inactive: u64, active: u64) -> bool {
    inactive * inactive_ratio(inactive + active) < active
}

/// What reclaim of each kind has cost of late.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Costs {
    /// Anonymous memory, files.
    pub of: [u64; 2],
}

impl Costs {
    /// Counts reads and writes, and pages that were looked at in vain, in a memory of `pages`.
    pub fn note(&mut self, kind: usize, io: u64, rotated: u64, batch: u64, pages: u64) {
        self.of[kind] += io * batch + rotated;
        if self.of[0] + self.of[1] > pages / 4 {
            self.of = self.of.map(|cost| cost / 2);
        }
    }

    /// The shares of anonymous memory and of files in what is scanned.
    pub fn shares(self, swappiness: u8) -> [u64; 2] {
        let sum = self.of[0] + self.of[1];
        let [anon, file] = self.of.map(|cost| sum + cost);
        let total = anon + file;
        let swappiness = u64::from(swappiness.min(200));
        [swappiness * (total + 1) / (anon + 1), (200 - swappiness) * (total + 1) / (file + 1)]
    }
}

/// Which kinds are scanned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Balance {
    /// Only this kind.
    Only(usize),
    /// Both as far as their sizes say.
    Equal,
    /// Both by these shares.
    Shares([u64; 2]),
}

impl Balance {
    /// How many of `size >> priority` pages are scanned.
    pub fn apply(self, kind: usize, pages: u64) -> u64 {
        match self {
            Self::Only(only) => {
                if kind == only {
                    pages
                } else {
                    0
                }
            }
            Self::Equal => pages,
            Self::Shares(shares) => {
                (u128::from(pages) * u128::from(shares[kind]) / u128::from((shares[0] + shares[1]).max(1))) as u64
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_grows_with_the_root_of_the_size() {
        for (gib, ratio) in [(0, 1), (1, 3), (2, 4), (4, 6), (10, 10), (100, 31), (1024, 101), (10_240, 320)] {
            assert_eq!(inactive_ratio(gib << GIB_PAGES_LOG2), ratio, "{gib} GiB");
        }
        assert!(inactive_is_low(99, 100));
        assert!(!inactive_is_low(100, 100));
    }

    #[test]
    fn the_costlier_kind_is_scanned_less() {
        assert_eq!(Costs::default().shares(60), [60, 140]);
        let [anon, file] = Costs { of: [300, 0] }.shares(100);
        assert!(anon < file, "{anon} {file}");
        assert_eq!(Costs { of: [300, 0] }.shares(0)[0], 0);
        // (300 + 300, 300): 100 * 901 / 601, 100 * 901 / 301.
        assert_eq!([anon, file], [149, 299]);
    }

    #[test]
    fn costs_are_halved_when_they_are_many() {
        let mut costs = Costs::default();
        costs.note(0, 1, 3, 32, 200);
        assert_eq!(costs.of, [35, 0]);
        costs.note(1, 0, 16, 32, 200);
        assert_eq!(costs.of, [17, 8]);
    }
}
