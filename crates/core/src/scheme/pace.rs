//! What all schemes together may do within a time.

/// How much may be saved up while nothing is done, in terms of a second's.
const BURST_S: u128 = 1;

/// Bytes that come in steadily and are spent by whatever scheme has something to do.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// `None`: no limit.
    per_second: Option<u64>,
    left: u64,
    at_ns: Option<u64>,
}

impl Pace {
    /// Another limit, bytes a second; what has been saved up stays as far as it may.
    pub const fn set(&mut self, per_second: Option<u64>) {
        self.per_second = per_second;
    }

    pub const fn is_limited(&self) -> bool {
        self.per_second.is_some()
    }

    /// What may be done now, bytes.
    pub fn left(&mut self, now_ns: u64) -> u64 {
        let Some(per_second) = self.per_second.map(u128::from) else { return u64::MAX };
        let at_ns = self.at_ns.replace(now_ns);
        let most = per_second * BURST_S;
        let come = at_ns.map_or(0, |at| per_second * u128::from(now_ns.saturating_sub(at)) / 1_000_000_000);
        self.left = (u128::from(self.left) + come).min(most) as u64;
        self.left
    }

    /// Takes what was done.
    pub fn spend(&mut self, bytes: u64) {
        self.left = self.left.saturating_sub(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn what_comes_in_a_second_can_be_spent_once() {
        let mut pace = Pace::default();
        assert_eq!(pace.left(0), u64::MAX, "no limit");
        pace.set(Some(100));
        assert_eq!(pace.left(S), 0, "nothing has come yet");
        assert_eq!(pace.left(S + S / 2), 50);
        pace.spend(20);
        assert_eq!((pace.left(S + S / 2), pace.left(2 * S), pace.left(60 * S)), (30, 80, 100));
        pace.spend(500);
        assert_eq!(pace.left(60 * S), 0);
        pace.set(None);
        assert_eq!(pace.left(61 * S), u64::MAX);
    }
}
