//! How long pages are watched before they go, where a scheme tunes itself: longer while too much of what went comes
//! back.
//!
//! A goal for pressure or stalls sets how much goes; that alone would let the same wrong pages go again and again, only
//! fewer at a time. Waiting longer picks others: pages whose own interval of use is longer than the wait never go at
//! all. (The same idea as the cold-age threshold that Google's far memory picks for each job by its promotion rate.)

/// After a change so much time must pass before it is judged again, ns: what went since then needs time to come back.
const SETTLE_NS: u64 = 10_000_000_000;
/// Less than this gone since the last change tells nothing.
const LEAST_OUT: u64 = 4 << 20;
/// With more than this share come back: more patience.
const TOO_MUCH: f64 = 0.2;
/// With less than this: less of it, down to what the scheme asks for.
const LITTLE: f64 = 0.05;
/// At most so many times the wait that the scheme asks for.
const MOST: f64 = 16.0;

/// A factor on the waiting time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Patience {
    factor: f64,
    changed_ns: u64,
}

impl Default for Patience {
    fn default() -> Self {
        Self { factor: 1.0, changed_ns: 0 }
    }
}

impl Patience {
    /// What went before this time says nothing about the present factor, ns on the clock.
    pub(crate) const fn changed_ns(&self) -> u64 {
        self.changed_ns
    }

    /// Judges by what went since [`changed_ns`](Self::changed_ns) and how much of it came back (bytes).
    pub fn judge(&mut self, now_ns: u64, out: u64, back: u64) {
        if now_ns < self.changed_ns + SETTLE_NS || out < LEAST_OUT {
            return;
        }
        let share = back as f64 / out as f64;
        let factor = if share > TOO_MUCH {
            (self.factor * 1.5).min(MOST)
        } else if share < LITTLE {
            (self.factor * 0.8).max(1.0)
        } else {
            return;
        };
        if factor != self.factor {
            *self = Self { factor, changed_ns: now_ns };
        }
    }

    /// The waiting time to use where the scheme asks for `confirm_ns`.
    pub fn stretch(&self, confirm_ns: u64) -> u64 {
        (confirm_ns as f64 * self.factor) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn waits_longer_while_much_comes_back_and_shorter_again_later() {
        let mut p = Patience::default();
        p.judge(10 * S, 100 << 20, 50 << 20);
        assert_eq!((p.stretch(2 * S), p.changed_ns()), (3 * S, 10 * S));
        p.judge(19 * S, 100 << 20, 50 << 20);
        assert_eq!(p.stretch(2 * S), 3 * S, "not judged again so soon");
        for i in 2..40 {
            p.judge(i * 10 * S, 100 << 20, 50 << 20);
        }
        assert_eq!(p.stretch(2 * S), 32 * S, "bounded");
        for i in 40..80 {
            p.judge(i * 10 * S, 100 << 20, 1 << 20);
        }
        assert_eq!(p.stretch(2 * S), 2 * S);
        p.judge(900 * S, 100, 100);
        assert_eq!(p.stretch(2 * S), 2 * S, "too little to tell");
    }
}
