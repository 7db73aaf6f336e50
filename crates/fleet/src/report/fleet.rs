//! A fleet's memory, added up host by host.

use super::account::Account;
use super::usage::{IDLE, Usage};
use crate::engine::clocks::AgentWindow;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Jobs that are distinguished; the smallest beyond are one, so that memory stays bounded.
const MOST_JOBS: usize = 50_000;
/// The name of what is not distinguished any more.
pub const OTHERS: &str = "(smaller ones)";

/// Sums over all rows, exact. What is not known adds nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sums {
    pub rows: u64,
    pub resident: u128,
    pub unobservable: u128,
    pub accessed: u128,
    pub cold: [u128; IDLE],
    pub promoted: [u128; IDLE],
}

/// One host.
#[derive(Debug, Clone, PartialEq)]
pub struct HostShare {
    pub host: String,
    /// Of resident memory, idle for at least each time; `None`: not known.
    pub cold: [Option<f64>; IDLE],
}

/// Agents of one kernel, version and source.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Agents {
    pub hosts: u64,
    pub watched_s: u64,
    pub cpu_us: u64,
    pub cpu_known_s: u64,
    pub cost_us: u64,
    pub cost_known_s: u64,
}

/// Kernel, version of Isotherm, source.
pub type AgentKey = (String, String, String);

/// All of it.
#[derive(Debug, Default)]
pub struct Fleet {
    pub sums: Sums,
    pub total: Account,
    pub clusters: BTreeMap<Option<String>, Account>,
    pub namespaces: BTreeMap<Option<String>, Account>,
    pub jobs: HashMap<String, Account>,
    pub hosts: Vec<HostShare>,
    pub agents: BTreeMap<AgentKey, Agents>,
    /// Begin of the first window and end of the last, s since 1970.
    pub begin_s: Option<u64>,
    pub end_s: u64,
    /// Over all hosts.
    pub watched_s: u64,
    /// Rows left out because their machine's clock was set back, by host.
    pub set_back: BTreeMap<String, u64>,
}

impl Fleet {
    /// Adds whole hosts: their windows, those that were left out, and what their jobs held.
    pub fn add(&mut self, windows: &[AgentWindow], left_out: &[AgentWindow], mut usages: Vec<Usage>) {
        for window in left_out {
            *self.set_back.entry(window.host.clone()).or_default() += window.rows;
        }
        let watched = self.add_windows(windows);
        // In an order of their own, since sums of fractions depend on it.
        usages
            .sort_by(|a, b| a.whose().cmp(&b.whose()).then_with(|| (a.window_s, a.known).cmp(&(b.window_s, b.known))));
        for of_host in usages.chunk_by(|a, b| a.host == b.host) {
            let Some(&watched_s) = watched.get(&*of_host[0].host) else { continue };
            let mut host = Account::default();
            for of_job in of_host.chunk_by(|a, b| a.whose() == b.whose()) {
                of_job.iter().for_each(|usage| self.sums.add(usage));
                let parts = [
                    &mut self.total,
                    self.clusters.entry(of_job[0].cluster.clone()).or_default(),
                    self.namespaces.entry(of_job[0].namespace.clone()).or_default(),
                    self.jobs.entry(of_job[0].job.clone()).or_default(),
                    &mut host,
                ];
                parts.into_iter().for_each(|part| part.add(of_job, watched_s as f64));
            }
            let cold = std::array::from_fn(|i| host.cold_share(i));
            self.hosts.push(HostShare { host: of_host[0].host.clone(), cold });
        }
        self.bound_jobs(MOST_JOBS);
    }

    /// Returns for how long each host was watched, s.
    fn add_windows<'a>(&mut self, windows: &'a [AgentWindow]) -> HashMap<&'a str, u64> {
        let mut watched: HashMap<&str, u64> = HashMap::new();
        let mut seen: HashSet<(&str, &str, &str, &str)> = HashSet::new();
        for window in windows {
            *watched.entry(&window.host).or_default() += window.window_s;
            self.watched_s += window.window_s;
            self.begin_s = Some(self.begin_s.map_or(window.start_s(), |begin| begin.min(window.start_s())));
            self.end_s = self.end_s.max(window.start_s() + window.window_s);
            let key = (window.kernel.clone(), window.version.clone(), window.source.clone());
            let agents = self.agents.entry(key).or_default();
            agents.hosts += u64::from(seen.insert((&window.host, &window.kernel, &window.version, &window.source)));
            agents.watched_s += window.window_s;
            if let Some(us) = window.monitor_cpu_us {
                agents.cpu_us += us;
                agents.cpu_known_s += window.window_s;
            }
            if let Some(us) = window.target_cost_us {
                agents.cost_us += us;
                agents.cost_known_s += window.window_s;
            }
        }
        watched
    }

    /// Makes one of the smallest jobs where there are more than `most`.
    fn bound_jobs(&mut self, most: usize) {
        if self.jobs.len() <= most {
            return;
        }
        let mut sizes: Vec<(f64, String)> =
            self.jobs.iter().map(|(name, job)| (job.resident.unwrap_or(0.0), name.clone())).collect();
        sizes.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        let mut others = self.jobs.remove(OTHERS).unwrap_or_default();
        for (_, name) in sizes.into_iter().skip(most / 2) {
            if let Some(job) = self.jobs.remove(&name) {
                others.merge(&job);
            }
        }
        self.jobs.insert(OTHERS.to_owned(), others);
    }

    /// Jobs by what was idle for at least the `i`-th time, most first.
    pub fn jobs_by_cold(&self, i: usize) -> Vec<(&str, &Account)> {
        let mut jobs: Vec<(&str, &Account)> = self.jobs.iter().map(|(name, job)| (&**name, job)).collect();
        let cold = |job: &Account| job.cold_bytes(i).unwrap_or(0.0);
        jobs.sort_by(|a, b| cold(b.1).total_cmp(&cold(a.1)).then_with(|| a.0.cmp(b.0)));
        jobs
    }

    /// The `p`-th quantile over hosts of the share that was idle for at least the `i`-th time, among those that know.
    pub fn host_quantile(&self, i: usize, p: f64) -> Option<f64> {
        let mut shares: Vec<f64> = self.hosts.iter().filter_map(|host| host.cold[i]).collect();
        shares.sort_by(f64::total_cmp);
        let last = shares.len().checked_sub(1)?;
        Some(shares[(p * last as f64).round() as usize])
    }
}

impl Sums {
    fn add(&mut self, usage: &Usage) {
        let add = |sum: &mut u128, more: Option<u64>| *sum += u128::from(more.unwrap_or(0));
        let list = |sums: &mut [u128], more: &[Option<u64>]| {
            sums.iter_mut().zip(more).for_each(|(sum, more)| add(sum, *more));
        };
        self.rows += usage.windows;
        add(&mut self.resident, usage.resident);
        add(&mut self.unobservable, usage.unobservable);
        add(&mut self.accessed, usage.accessed);
        list(&mut self.cold, &usage.cold);
        list(&mut self.promoted, &usage.promoted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_beyond_the_bound_are_one_and_their_sum_stays() {
        let mut fleet = Fleet::default();
        for i in 0..100u32 {
            let job = Account { resident: Some(f64::from(i)), hosts: 1, ..Account::default() };
            fleet.jobs.insert(format!("job-{i}"), job);
            fleet.bound_jobs(20);
        }
        assert!(fleet.jobs.len() <= 20, "{}", fleet.jobs.len());
        assert!(fleet.jobs.contains_key("job-99") && fleet.jobs[OTHERS].resident > Some(0.0));
        assert_eq!(fleet.jobs.values().filter_map(|job| job.resident).sum::<f64>(), 4950.0);
    }
}
