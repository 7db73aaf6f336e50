//! For how long a brake holds: each time for longer.

/// Stops that double, as long as little time lies between them.
#[derive(Debug, Clone)]
pub(super) struct Stops {
    first_ns: u64,
    longest_ns: u64,
    next_ns: u64,
    until_ns: u64,
    /// How many there were.
    pub count: u64,
}

impl Stops {
    /// None yet. The first one takes `first_ns`, and none more than `longest_ns`.
    pub const fn new(first_ns: u64, longest_ns: u64) -> Self {
        Self { first_ns, longest_ns, next_ns: first_ns, until_ns: 0, count: 0 }
    }

    /// The end of the last one, ns; in the past where it is over.
    pub const fn until_ns(&self) -> u64 {
        self.until_ns
    }

    /// A stop begins at `now_ns`; returns its end.
    pub fn stop(&mut self, now_ns: u64) -> u64 {
        self.until_ns = now_ns + self.next_ns;
        self.next_ns = (self.next_ns * 2).min(self.longest_ns);
        self.count += 1;
        self.until_ns
    }

    /// There is no reason for one at `now_ns`: where that has been so for as long as the next one would take, it is a short one
    /// again.
    pub fn go_on(&mut self, now_ns: u64) {
        if now_ns >= self.until_ns.saturating_add(self.next_ns) {
            self.next_ns = self.first_ns;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stops_double_until_one_is_long_ago() {
        let mut stops = Stops::new(10, 30);
        assert_eq!((stops.stop(100), stops.stop(110), stops.stop(130)), (110, 130, 160));
        stops.go_on(189);
        assert_eq!(stops.stop(200), 230, "at most so long");
        stops.go_on(260);
        assert_eq!((stops.stop(300), stops.until_ns(), stops.count), (310, 310, 5));
    }
}
