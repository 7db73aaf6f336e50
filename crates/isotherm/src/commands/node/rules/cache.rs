//! Page cache of control groups: files in memory that no process maps. Rules that want it give it back by
//! `memory.reclaim`, in a thread of its own: the kernel lets callers wait.

use super::limits::Limit;
use super::status::{CacheReclaimed, CacheStatus};
use super::thresholds::Age;
use isotherm_core::scheme::engine::SchemeEngine;
use isotherm_core::scheme::page_cache::{CacheIdle, CachePolicy, CacheReclaim, CacheView, STEP_NS};
use isotherm_linux::cgroup::memory::Memcg;
use isotherm_linux::cgroup::reclaim::NoFileReclaim;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

/// A group whose page cache a rule wants.
#[derive(Debug)]
pub struct Wanted<'a> {
    pub path: &'a str,
    pub policy: CachePolicy,
    pub age: Age,
    /// What protects it.
    pub limit: Option<&'a Limit>,
}

/// All groups whose page cache rules want.
#[derive(Debug, Default)]
pub struct Caches {
    groups: BTreeMap<String, Cache>,
    worker: Option<Worker>,
}

#[derive(Debug, Default)]
struct Cache {
    reclaim: CacheReclaim,
    due_ns: u64,
    /// What the kernel is at, bytes.
    in_flight: u64,
    /// What may still go until it is looked again what protects the group; `None`: all.
    room: Option<u64>,
    reclaimed: u64,
    /// What was read again since the first went.
    refaulted: Grown,
    idle: Option<(&'static str, String)>,
}

/// What a counter of the kernel's has grown by, whoever began it anew: that of a group that was made again starts at 0.
#[derive(Debug, Default)]
struct Grown {
    last: Option<u64>,
    by: u64,
}

impl Grown {
    /// Takes the counter in; its growth until now is added if that `counts`.
    fn read(&mut self, counter: u64, counts: bool) {
        let last = self.last.replace(counter);
        self.by += last.filter(|_| counts).map_or(0, |last| counter.saturating_sub(last));
    }
}

#[derive(Debug)]
struct Job {
    path: String,
    group: Memcg,
    bytes: u64,
}

#[derive(Debug)]
struct Worker {
    jobs: Sender<Job>,
    done: Receiver<(String, Result<u64, NoFileReclaim>)>,
}

impl Caches {
    /// Takes in what protects groups: how much may go until this is called again, with what the kernel is at. What one has
    /// not taken before is forgotten.
    pub fn limit<'a>(&mut self, limits: impl Iterator<Item = (&'a str, Option<&'a Limit>)>) {
        for (path, limit) in limits {
            if let Some(cache) = self.groups.get_mut(path) {
                cache.room = limit.map(|limit| limit.bytes().saturating_sub(cache.in_flight));
            }
        }
    }

    /// Goes on with the groups whose time has come. `group_of`: the group at a path, if it is still there.
    pub fn turn(
        &mut self,
        wanted: &[Wanted<'_>],
        group_of: impl Fn(&str) -> Option<Memcg>,
        engine: &mut SchemeEngine,
        now_ns: u64,
    ) {
        self.collect(now_ns);
        let paths: BTreeSet<&str> = wanted.iter().map(|wanted| wanted.path).collect();
        self.groups.retain(|path, _| paths.contains(path.as_str()));
        for wanted in wanted {
            let fresh = || Cache { room: wanted.limit.map(|_| 0), ..Cache::default() };
            let cache = self.groups.entry(wanted.path.to_owned()).or_insert_with(fresh);
            if now_ns < cache.due_ns || cache.in_flight > 0 {
                continue;
            }
            cache.due_ns = now_ns + STEP_NS;
            let Some(group) = group_of(wanted.path) else { continue };
            let bytes = match cache.step(wanted, &group, engine.pace_left(now_ns), now_ns) {
                Ok(bytes) => bytes,
                Err(why) => {
                    cache.idle = Some(why);
                    continue;
                }
            };
            let job = Job { path: wanted.path.to_owned(), group, bytes };
            match Worker::get(&mut self.worker).and_then(|worker| worker.jobs.send(job).ok()) {
                Some(()) => {
                    engine.spend_pace(bytes);
                    cache.room = cache.room.map(|room| room.saturating_sub(bytes));
                    (cache.in_flight, cache.idle) = (bytes, None);
                }
                None => cache.idle = Some(("refused", "no thread can be started for it".to_owned())),
            }
        }
    }

    /// How it stands with the group at `path`; `None`: no rule wants its page cache.
    pub fn status(&self, path: &str) -> Option<CacheStatus> {
        let cache = self.groups.get(path)?;
        let (idle_code, idle_reason) = cache.idle.clone().unzip();
        let figures = CacheReclaimed {
            page_cache_reclaimed: Some(cache.reclaimed),
            page_cache_refaulted: Some(cache.refaulted.by),
            page_cache_brakes: Some(cache.reclaim.brakes()),
        };
        Some(CacheStatus { figures, could_go: None, idle_code: idle_code.map(str::to_owned), idle_reason })
    }

    fn collect(&mut self, now_ns: u64) {
        let Some(worker) = &self.worker else { return };
        loop {
            let (path, result) = match worker.done.try_recv() {
                Ok(done) => done,
                Err(TryRecvError::Empty) => return,
                // Its thread has panicked; what it was at is not done.
                Err(TryRecvError::Disconnected) => break,
            };
            let Some(cache) = self.groups.get_mut(&path) else { continue };
            cache.in_flight = 0;
            match result {
                Ok(0) => cache.idle = Some(("refused", "the kernel found nothing of it to drop".to_owned())),
                Ok(bytes) => {
                    cache.reclaimed += bytes;
                    cache.reclaim.took(now_ns, bytes);
                }
                Err(why) => cache.idle = Some((why.code(), why.to_string())),
            }
        }
        self.worker = None;
        self.groups.values_mut().for_each(|cache| cache.in_flight = 0);
    }
}

impl Cache {
    /// How much is to go now, or code and sentence of why nothing does.
    fn step(
        &mut self,
        wanted: &Wanted<'_>,
        group: &Memcg,
        pace: u64,
        now_ns: u64,
    ) -> Result<u64, (&'static str, String)> {
        let refused = |why: NoFileReclaim| (why.code(), why.to_string());
        group.can_reclaim_files().map_err(refused)?;
        let memory = group.file_memory().map_err(|e| refused(e.into()))?;
        let refaulted = memory.refaulted.ok_or_else(|| refused(NoFileReclaim::NoRefaults))?;
        self.refaulted.read(refaulted, self.reclaimed > 0);
        let view = CacheView { idle: memory.idle, stall_us: group.stall_us().ok(), refaulted };
        let room = pace.min(self.room.unwrap_or(u64::MAX));
        let bytes = self.reclaim.step(now_ns, &view, &wanted.policy, room);
        if let Some((code, why)) = wanted.age.idle() {
            return Err((code, why.to_owned()));
        }
        bytes.map_err(|why| {
            let limit = wanted.limit.and_then(Limit::idle).filter(|_| why == CacheIdle::PaceUsed);
            limit.unwrap_or_else(|| (why.code(), why.to_string()))
        })
    }
}

impl Worker {
    /// The one that runs, or a new one; `None`: none can be started.
    fn get(worker: &mut Option<Self>) -> Option<&Self> {
        if worker.is_none() {
            let (jobs, to_do) = channel::<Job>();
            let (finished, done) = channel();
            // It ends with the sender, or in the midst of its work with the process: the kernel is interrupted then.
            let work = move || {
                for job in to_do {
                    let result = job.group.reclaim_files(job.bytes);
                    if finished.send((job.path, result)).is_err() {
                        return;
                    }
                }
            };
            std::thread::Builder::new().name("isotherm-cache".into()).spawn(work).ok()?;
            *worker = Some(Self { jobs, done });
        }
        worker.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_counter_grows_by_is_counted_over_its_new_begin() {
        let mut grown = Grown::default();
        grown.read(100, false);
        grown.read(150, false);
        for counter in [170, 200, 0, 30, 35] {
            grown.read(counter, true);
        }
        assert_eq!(grown.by, 50 + 35);
    }

    #[test]
    fn after_its_thread_has_panicked_a_new_one_goes_on() {
        let ((jobs, _), (finished, done)) = (channel(), channel());
        let mut caches = Caches { worker: Some(Worker { jobs, done }), ..Caches::default() };
        caches.groups.insert("/a".into(), Cache { in_flight: 4096, ..Cache::default() });
        caches.collect(0);
        assert_eq!(caches.groups["/a"].in_flight, 4096, "it is at work");
        drop(finished);
        caches.collect(0);
        assert!(caches.worker.is_none());
        assert_eq!(caches.groups["/a"].in_flight, 0);
    }
}
