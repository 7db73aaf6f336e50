//! The order in which the pages of an area are touched: every page once per round.

/// A walk over `pages` pages that visits each exactly once per round, in steps of a fixed stride.
///
/// The k-th touch goes to page `k * stride mod pages`. The stride has no common factor with the number of pages, so the
/// walk is a permutation, and its inverse tells when a given page comes: that is what makes a terabyte area simulable
/// without keeping state for its pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sweep {
    pages: u64,
    stride: u64,
    inverse: u64,
}

impl Sweep {
    /// Page after page, in address order. `pages` of 0 counts as 1.
    pub fn sequential(pages: u64) -> Self {
        Self { pages: pages.max(1), stride: 1, inverse: 1 }
    }

    /// Scattered over the area, so that neither caches nor prefetchers, nor a monitor that looks at neighbours, can
    /// guess the next page. The stride is near the golden section of the length, which spreads any run of consecutive
    /// touches evenly. `pages` of 0 counts as 1.
    pub fn scattered(pages: u64) -> Self {
        let pages = pages.max(1);
        let golden = (pages as f64 * 0.618_033_988_749_895) as u64;
        let mut stride = golden.clamp(1, pages);
        while gcd(stride, pages) != 1 {
            stride += 1;
        }
        let stride = stride % pages.max(2);
        Self { pages, stride, inverse: inverse_mod(stride, pages) }
    }

    /// Pages in a round.
    pub const fn pages(&self) -> u64 {
        self.pages
    }

    /// Pages between two touches that follow each other.
    pub const fn stride(&self) -> u64 {
        self.stride
    }

    /// Whether pages come in address order.
    pub(crate) const fn is_sequential(&self) -> bool {
        self.stride == 1
    }

    /// The page that the `k`-th touch goes to, counted from 0.
    pub fn page_at(&self, k: u64) -> u64 {
        mul_mod(k % self.pages, self.stride, self.pages)
    }

    /// At which touch of a round `page` comes, 0 to `pages - 1`.
    pub(crate) fn position_of(&self, page: u64) -> u64 {
        mul_mod(page % self.pages, self.inverse, self.pages)
    }

    /// Whether one of the touches `from..to` goes to `page`.
    pub fn hits(&self, page: u64, from: u64, to: u64) -> bool {
        to.saturating_sub(from) >= self.pages || self.next_visit(page, from).is_some_and(|next| next < to)
    }

    /// The first touch from number `from` on that goes to `page`; `None`: beyond what can be counted.
    pub(crate) fn next_visit(&self, page: u64, from: u64) -> Option<u64> {
        let position = self.position_of(page);
        let into_round = from % self.pages;
        let wait = if position >= into_round { position - into_round } else { self.pages - into_round + position };
        from.checked_add(wait)
    }
}

fn mul_mod(a: u64, b: u64, m: u64) -> u64 {
    (u128::from(a) * u128::from(b) % u128::from(m)) as u64
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The number that `a` must be multiplied with to give 1 modulo `m`; both must be coprime. Extended Euclid.
fn inverse_mod(a: u64, m: u64) -> u64 {
    let (mut r0, mut r1) = (i128::from(m), i128::from(a % m));
    let (mut t0, mut t1) = (0i128, 1i128);
    while r1 != 0 {
        let q = r0 / r1;
        (r0, r1) = (r1, r0 - q * r1);
        (t0, t1) = (t1, t0 - q * t1);
    }
    t0.rem_euclid(i128::from(m)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn terabytes_are_walked_without_overflow() {
        let s = Sweep::scattered((5u64 << 40) / 4096);
        for k in [0, 1, 2, 1_000_000_007, s.pages() - 1] {
            assert_eq!(s.position_of(s.page_at(k)), k);
        }
    }

    proptest! {
        #[test]
        fn a_round_visits_every_page_once(pages in 1u64..2000) {
            for sweep in [Sweep::sequential(pages), Sweep::scattered(pages)] {
                let mut seen = vec![false; pages as usize];
                for k in 0..pages {
                    let page = sweep.page_at(k);
                    prop_assert!(!std::mem::replace(&mut seen[page as usize], true));
                    prop_assert_eq!(sweep.position_of(page), k);
                }
            }
        }

        #[test]
        fn hits_agrees_with_walking(pages in 1u64..60, from in 0u64..200, len in 0u64..130) {
            let sweep = Sweep::scattered(pages);
            let walked: Vec<u64> = (from..from + len).map(|k| sweep.page_at(k)).collect();
            for page in 0..pages {
                prop_assert_eq!(sweep.hits(page, from, from + len), walked.contains(&page));
            }
        }
    }
}
