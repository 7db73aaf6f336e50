//! What is known of the memory of a part of the fleet: sums over hosts of each host's mean over the time that it was watched.

use super::usage::{IDLE, Usage};

/// From this entry on what was accessed is known wherever the entry is: 2 min.
pub const TWO_MIN: usize = 7;

/// An idle time in one unit: `30s`, `2m`, `8h`.
pub fn short_time(ns: u64) -> String {
    match ns / 1_000_000_000 {
        s if s % 3600 == 0 && s > 0 => format!("{}h", s / 3600),
        s if s % 60 == 0 && s > 0 => format!("{}m", s / 60),
        s => format!("{s}s"),
    }
}

/// Bytes are means over time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Account {
    /// Hosts that had any of it.
    pub hosts: u64,
    /// The last of them, so that none is counted twice: usage comes host by host.
    pub last_host: Option<String>,
    pub resident: f64,
    /// `None`: not known of any.
    pub swapped: Option<f64>,
    pub unobservable: f64,
    /// Accessed within 120 s, of what it is known of, `accessed_of`.
    pub accessed: f64,
    pub accessed_of: f64,
    /// Idle for at least each time, while that was known.
    pub cold: [f64; IDLE],
    /// What was resident meanwhile.
    pub cold_of: [f64; IDLE],
    /// Accessed again after each idle time, bytes a second, and what was in use meanwhile (`accessed`).
    pub promoted: [f64; IDLE],
    pub promoted_of: [f64; IDLE],
}

impl Account {
    /// Counts what a job held on a host that was watched for `watched_s`.
    pub fn add(&mut self, usage: &Usage, watched_s: f64) {
        if self.last_host.as_deref() != Some(&usage.host) {
            self.hosts += 1;
            self.last_host = Some(usage.host.clone());
        }
        let of_time = usage.window_s as f64 / watched_s;
        let mean = |sum: u64| sum as f64 * of_time;
        self.resident += mean(usage.resident);
        add_known(&mut self.swapped, usage.swapped.map(mean));
        self.unobservable += mean(usage.unobservable);
        let knows_accessed = usage.known > TWO_MIN;
        if knows_accessed {
            self.accessed += mean(usage.accessed);
            self.accessed_of += mean(usage.resident);
        }
        for i in 0..usage.known.min(IDLE) {
            self.cold[i] += mean(usage.cold[i]);
            self.cold_of[i] += mean(usage.resident);
            if knows_accessed {
                self.promoted[i] += usage.promoted[i] as f64 / watched_s;
                self.promoted_of[i] += mean(usage.accessed);
            }
        }
    }

    /// Takes over what another part held on other hosts or in other jobs.
    pub fn merge(&mut self, other: &Self) {
        self.hosts = self.hosts.max(other.hosts);
        let add = |to: &mut [f64], from: &[f64]| to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
        self.resident += other.resident;
        add_known(&mut self.swapped, other.swapped);
        self.unobservable += other.unobservable;
        self.accessed += other.accessed;
        self.accessed_of += other.accessed_of;
        add(&mut self.cold, &other.cold);
        add(&mut self.cold_of, &other.cold_of);
        add(&mut self.promoted, &other.promoted);
        add(&mut self.promoted_of, &other.promoted_of);
    }

    /// Of resident memory, what was idle for at least the `i`-th time; `None`: never watched for so long.
    pub fn cold_share(&self, i: usize) -> Option<f64> {
        (self.cold_of[i] > 0.0).then(|| self.cold[i] / self.cold_of[i])
    }

    /// For how much of the memory, over time, that is known.
    pub fn known_share(&self, i: usize) -> f64 {
        if self.resident > 0.0 { (self.cold_of[i] / self.resident).min(1.0) } else { 0.0 }
    }

    /// Idle for at least the `i`-th time, if what was not watched for so long is as the rest, bytes.
    pub fn cold_bytes(&self, i: usize) -> Option<f64> {
        self.cold_share(i).map(|share| share * self.resident)
    }

    /// Of what was in use, what came back a minute after having been idle for the `i`-th time.
    pub fn promoted_share(&self, i: usize) -> Option<f64> {
        (self.promoted_of[i] > 0.0).then(|| self.promoted[i] * 60.0 / self.promoted_of[i])
    }

    /// In use: accessed within 120 s, if what was not watched for so long is as the rest, bytes.
    pub fn accessed_bytes(&self) -> Option<f64> {
        (self.accessed_of > 0.0).then(|| self.accessed / self.accessed_of * self.resident)
    }
}

/// What is not known adds nothing, and does not make zero of what is not known.
fn add_known(sum: &mut Option<f64>, more: Option<f64>) {
    *sum = more.map(|more| sum.unwrap_or(0.0) + more).or(*sum);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(host: &str, window_s: u64, known: usize, resident: u64, cold: u64) -> Usage {
        let mut usage = Usage { host: host.to_owned(), window_s, known, windows: 1, resident, ..Usage::default() };
        usage.accessed = resident - cold;
        usage.cold[..known].fill(cold);
        usage.promoted[..known].fill(6);
        usage
    }

    #[test]
    fn a_host_watched_for_half_the_time_counts_in_full_and_what_is_not_known_is_not_zero() {
        let mut account = Account::default();
        // Two windows of 300 s on the first host, in one of which 8 entries were known.
        account.add(&usage("a", 300, 8, 1000, 500), 600.0);
        account.add(&usage("a", 300, 9, 1000, 300), 600.0);
        // One of 100 s on the second.
        account.add(&usage("b", 100, 16, 500, 100), 100.0);
        assert_eq!((account.hosts, account.resident), (2, 1500.0));
        assert_eq!(account.cold_share(7), Some((250.0 + 150.0 + 100.0) / 1500.0));
        assert_eq!((account.cold_share(8), account.known_share(8)), (Some((150.0 + 100.0) / 1000.0), 1000.0 / 1500.0));
        assert_eq!(account.cold_share(15), Some(0.2));
        assert_eq!(account.promoted_share(15), Some(6.0 / 100.0 * 60.0 / 400.0));
        let mut other = Account::default();
        other.add(&usage("c", 10, 3, 10, 1), 10.0);
        assert_eq!((other.cold_share(3), other.accessed_bytes(), other.promoted_share(2)), (None, None, None));
        assert_eq!(other.swapped, None);
        other.merge(&Account { swapped: Some(5.0), ..Account::default() });
        other.merge(&account);
        assert_eq!(other.swapped, Some(5.0));
    }
}
