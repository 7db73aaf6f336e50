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

/// Bytes are means over time. `None`: not known of any.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Account {
    /// Hosts that had any of it.
    pub hosts: u64,
    /// The last of them, so that none is counted twice: usage comes host by host.
    pub last_host: Option<String>,
    pub resident: Option<f64>,
    pub swapped: Option<f64>,
    pub unobservable: Option<f64>,
    /// Accessed within 120 s while that was known, and what was resident meanwhile.
    pub accessed: f64,
    pub accessed_of: f64,
    /// Idle for at least each time while that was known, and what was resident meanwhile.
    pub cold: [f64; IDLE],
    pub cold_of: [f64; IDLE],
    /// Accessed again after each idle time while that was known, bytes a second, and what was in use meanwhile (`accessed`).
    pub promoted: [f64; IDLE],
    pub promoted_of: [f64; IDLE],
}

impl Account {
    /// Counts what a job held on a host that was watched for `watched_s`.
    pub fn add(&mut self, of_job: &[Usage], watched_s: f64) {
        let Some(first) = of_job.first() else { return };
        if self.last_host.as_deref() != Some(&first.host) {
            self.hosts += 1;
            self.last_host = Some(first.host.clone());
        }
        // Windows of no length have no mean.
        if watched_s <= 0.0 {
            return;
        }
        add_known(&mut self.resident, mean_of(of_job, watched_s, |usage| usage.resident));
        add_known(&mut self.swapped, mean_of(of_job, watched_s, |usage| usage.swapped));
        add_known(&mut self.unobservable, mean_of(of_job, watched_s, |usage| usage.unobservable));
        for usage in of_job {
            self.add_shares(usage, watched_s);
        }
    }

    fn add_shares(&mut self, usage: &Usage, watched_s: f64) {
        let mean = |sum: u64| sum as f64 * usage.window_s as f64 / watched_s;
        let Some(resident) = usage.resident.map(mean) else { return };
        let accessed = usage.accessed.map(mean);
        if let Some(accessed) = accessed {
            self.accessed += accessed;
            self.accessed_of += resident;
        }
        for i in 0..IDLE {
            if let Some(cold) = usage.cold[i] {
                self.cold[i] += mean(cold);
                self.cold_of[i] += resident;
            }
            if let Some((promoted, accessed)) = usage.promoted[i].zip(accessed) {
                self.promoted[i] += promoted as f64 / watched_s;
                self.promoted_of[i] += accessed;
            }
        }
    }

    /// Takes over what another part held on other hosts or in other jobs.
    pub fn merge(&mut self, other: &Self) {
        self.hosts = self.hosts.max(other.hosts);
        let add = |to: &mut [f64], from: &[f64]| to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
        add_known(&mut self.resident, other.resident);
        add_known(&mut self.swapped, other.swapped);
        add_known(&mut self.unobservable, other.unobservable);
        self.accessed += other.accessed;
        self.accessed_of += other.accessed_of;
        add(&mut self.cold, &other.cold);
        add(&mut self.cold_of, &other.cold_of);
        add(&mut self.promoted, &other.promoted);
        add(&mut self.promoted_of, &other.promoted_of);
    }

    /// Of resident memory, these bytes; `None`: one of both is not known, or nothing is resident.
    pub fn share(&self, bytes: Option<f64>) -> Option<f64> {
        let resident = self.resident.filter(|resident| *resident > 0.0)?;
        bytes.map(|bytes| bytes / resident)
    }

    /// Of resident memory, what was idle for at least the `i`-th time; `None`: never watched for so long.
    pub fn cold_share(&self, i: usize) -> Option<f64> {
        (self.cold_of[i] > 0.0).then(|| self.cold[i] / self.cold_of[i])
    }

    /// For how much of the memory, over time, that is known.
    pub fn known_share(&self, i: usize) -> f64 {
        self.share(Some(self.cold_of[i])).map_or(0.0, |share| share.min(1.0))
    }

    /// Idle for at least the `i`-th time, if what was not watched for so long is as the rest, bytes.
    pub fn cold_bytes(&self, i: usize) -> Option<f64> {
        Some(self.cold_share(i)? * self.resident?)
    }

    /// Of what was in use, what came back a minute after having been idle for the `i`-th time.
    pub fn promoted_share(&self, i: usize) -> Option<f64> {
        (self.promoted_of[i] > 0.0).then(|| self.promoted[i] * 60.0 / self.promoted_of[i])
    }

    /// In use: accessed within 120 s, if what was not watched for so long is as the rest, bytes.
    pub fn accessed_bytes(&self) -> Option<f64> {
        (self.accessed_of > 0.0).then_some(self.accessed / self.accessed_of * self.resident?)
    }
}

/// The mean over the time that a host was watched of what a job held. Windows in which it is not known are taken as those in which
/// it is. `None`: there are none of these.
fn mean_of(of_job: &[Usage], watched_s: f64, of: impl Fn(&Usage) -> Option<u64>) -> Option<f64> {
    let time_s = |usage: &Usage| usage.windows as f64 * usage.window_s as f64;
    let (mut all_s, mut known_s, mut sum) = (0.0, 0.0, 0.0);
    for usage in of_job {
        all_s += time_s(usage);
        if let Some(bytes) = of(usage) {
            known_s += time_s(usage);
            sum += bytes as f64 * usage.window_s as f64;
        }
    }
    (known_s > 0.0).then(|| sum / watched_s * (all_s / known_s))
}

/// What is not known adds nothing, and does not make zero of what is not known.
fn add_known(sum: &mut Option<f64>, more: Option<f64>) {
    *sum = more.map(|more| sum.unwrap_or(0.0) + more).or(*sum);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(host: &str, window_s: u64, known: usize, resident: u64, cold: u64) -> Usage {
        let resident = Some(resident);
        let mut usage = Usage { host: host.to_owned(), window_s, windows: 1, resident, ..Usage::default() };
        usage.accessed = resident.filter(|_| known > TWO_MIN).map(|resident| resident - cold);
        usage.cold[..known].fill(Some(cold));
        usage.promoted[..known].fill(Some(6));
        usage
    }

    #[test]
    fn a_host_watched_for_half_the_time_counts_in_full_and_what_is_not_known_is_not_zero() {
        let mut account = Account::default();
        // Two windows of 300 s on the first host, in one of which 8 entries were known.
        account.add(&[usage("a", 300, 8, 1000, 500), usage("a", 300, 9, 1000, 300)], 600.0);
        // One of 100 s on the second.
        account.add(&[usage("b", 100, 16, 500, 100)], 100.0);
        assert_eq!((account.hosts, account.resident), (2, Some(1500.0)));
        assert_eq!(account.cold_share(7), Some((250.0 + 150.0 + 100.0) / 1500.0));
        assert_eq!((account.cold_share(8), account.known_share(8)), (Some((150.0 + 100.0) / 1000.0), 1000.0 / 1500.0));
        assert_eq!(account.cold_share(15), Some(0.2));
        assert_eq!(account.promoted_share(15), Some(6.0 / 100.0 * 60.0 / 400.0));
        let mut other = Account::default();
        other.add(&[usage("c", 10, 3, 10, 1)], 10.0);
        assert_eq!((other.cold_share(3), other.accessed_bytes(), other.promoted_share(2)), (None, None, None));
        assert_eq!(other.swapped, None);
        other.merge(&Account { swapped: Some(5.0), ..Account::default() });
        other.merge(&account);
        assert_eq!(other.swapped, Some(5.0));
    }

    #[test]
    fn each_figure_is_a_mean_over_the_time_in_which_it_is_known() {
        let known = Usage { swapped: Some(1000), unobservable: Some(20), ..usage("a", 300, 16, 1000, 400) };
        let half = Usage { promoted: [None; IDLE], ..usage("a", 300, 16, 1000, 400) };
        let nothing = Usage { host: "a".to_owned(), window_s: 300, windows: 1, ..Usage::default() };
        let mut account = Account::default();
        account.add(&[known, half.clone(), nothing.clone()], 900.0);
        assert_eq!(account.resident.map(f64::round), Some(1000.0));
        assert_eq!((account.swapped, account.unobservable), (Some(1000.0), Some(20.0)));
        assert_eq!(account.accessed_bytes().map(f64::round), Some(600.0));
        // 6 bytes in a window of 300 s with 600 bytes in use.
        assert!((account.promoted_share(TWO_MIN).unwrap() - 6.0 / 300.0 * 60.0 / 600.0).abs() < 1e-12);
        assert!((account.known_share(TWO_MIN) - 2.0 / 3.0).abs() < 1e-12);
        let mut account = Account::default();
        account.add(&[half], 300.0);
        assert_eq!(
            (account.cold_share(TWO_MIN), account.promoted_share(TWO_MIN), account.swapped),
            (Some(0.4), None, None)
        );
        let mut account = Account::default();
        account.add(&[nothing], 300.0);
        assert_eq!(
            (account.hosts, account.resident, account.unobservable, account.cold_bytes(0)),
            (1, None, None, None)
        );
    }
}
