//! Runs policies over a trace: all sizes and policies at once, on all cores.

mod kernel;
mod sampled;
mod watch;

use crate::policy::kernel_lru::machine::{Bounds, Fairness};
use crate::policy::opt::{NextUse, optimum};
use crate::policy::{Policy, PolicyName, Work, arc, clock, fifo, lirs, lru, s3fifo, sieve, two_q, wtinylfu};
use crate::predict::{Machine, Model, Prediction};
use crate::trace::Trace;
use serde::Serialize;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use watch::Watch;

pub use watch::GroupFigures;

/// How memory is shared between the groups of a trace, by the policy that knows groups.
#[derive(Debug, Clone, Default)]
pub struct Groups {
    /// Bounds of each group, in the order of the trace's names, in pages; missing ones have none.
    pub bounds: Vec<Bounds>,
    /// Who is reclaimed when the machine is full.
    pub fairness: Fairness,
}

/// A policy with so many pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Job {
    pub policy: PolicyName,
    /// Pages that fit, at least one.
    pub size: u32,
}

/// What a job came to. Of a sampled trace, everything but the size is an estimate for the whole.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    pub policy: &'static str,
    /// Pages that fit.
    pub size: u32,
    pub requests: u64,
    /// Requests for pages that were not there.
    pub misses: u64,
    /// Their share.
    pub miss_ratio: f64,
    /// How far off `miss_ratio` may be because of sampling: half the width of the 95 % confidence interval. `None`: the
    /// sample is too small to tell, or there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub miss_ratio_error: Option<f64>,
    /// The share of pages looked at, if not all were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sample_rate: Option<f64>,
    /// Pages that had to leave.
    pub evictions: u64,
    /// Misses of pages that had been there before.
    pub refaults: u64,
    /// What else the policy did.
    #[serde(flatten)]
    pub work: Work,
    /// The same by group, if the trace names groups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupFigures>,
    /// What a machine makes of it, if one was described.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<Prediction>,
    /// How long the simulation took, s.
    pub seconds: f64,
}

/// What a policy did on a trace as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Count {
    misses: u64,
    evictions: u64,
    refaults: u64,
    work: Work,
}

/// A trace, and what is known of its future once somebody asked.
#[derive(Debug)]
struct Future {
    trace: Trace,
    next: OnceLock<NextUse>,
    /// Where each page lies in its address space, squeezed together; see [`kernel::place`].
    placed: OnceLock<Vec<u32>>,
}

impl Future {
    const fn new(trace: Trace) -> Self {
        Self { trace, next: OnceLock::new(), placed: OnceLock::new() }
    }

    /// `watch` is called for every request.
    fn count(&self, job: Job, groups: &Groups, watch: Option<&mut Watch<'_>>) -> Count {
        let (trace, pages, size) = (&self.trace, self.trace.footprint(), job.size);
        match job.policy {
            PolicyName::Lru => run(lru::Lru::new(pages, size), trace, watch),
            PolicyName::Fifo => run(fifo::Fifo::new(pages, size), trace, watch),
            PolicyName::Clock => run(clock::Clock::new(pages, size), trace, watch),
            PolicyName::TwoQ => run(two_q::TwoQ::new(pages, size), trace, watch),
            PolicyName::Arc => run(arc::Arc::new(pages, size), trace, watch),
            PolicyName::Lirs => run(lirs::Lirs::new(pages, size), trace, watch),
            PolicyName::S3Fifo => run(s3fifo::S3Fifo::new(pages, size), trace, watch),
            PolicyName::Sieve => run(sieve::Sieve::new(pages, size), trace, watch),
            PolicyName::WTinyLfu => run(wtinylfu::WTinyLfu::new(pages, size), trace, watch),
            PolicyName::Classic => kernel::classic(trace, self.placed(), size, watch),
            PolicyName::MgLru(variant) => {
                let config = kernel::generations(self.placed(), size, variant);
                if trace.groups().is_empty() {
                    kernel::mglru(trace, self.placed(), config, watch)
                } else {
                    kernel::mglru_of_groups(trace, self.placed(), config, groups, watch)
                }
            }
            PolicyName::Opt => {
                let next = self.next_use();
                let best = match watch {
                    None => optimum(next, size, |_| {}),
                    Some(watch) => {
                        let mut at = 0;
                        optimum(next, size, |hit| {
                            watch.see(at, hit, Work::default);
                            at += 1;
                        })
                    }
                };
                tally(trace, best.misses, best.resident, Work::default())
            }
        }
    }

    fn placed(&self) -> &[u32] {
        self.placed.get_or_init(|| kernel::place(self.trace.names()))
    }

    fn next_use(&self) -> &NextUse {
        self.next.get_or_init(|| NextUse::of(self.trace.pages(), self.trace.footprint()))
    }
}

/// Requests that are looked at ahead, for the processor's sake.
const AHEAD: usize = 16;

fn run<P: Policy>(mut policy: P, trace: &Trace, watch: Option<&mut Watch<'_>>) -> Count {
    let mut hits = 0u64;
    if let Some(watch) = watch {
        for (at, &page) in trace.pages().iter().enumerate() {
            let hit = policy.access(page);
            hits += u64::from(hit);
            watch.see(at, hit, || policy.work());
        }
        return tally(trace, trace.pages().len() as u64 - hits, policy.resident(), policy.work());
    }
    for pages in trace.pages().chunks(AHEAD) {
        std::hint::black_box(policy.warm(pages));
        for &page in pages {
            hits += u64::from(policy.access(page));
        }
    }
    tally(trace, trace.pages().len() as u64 - hits, policy.resident(), policy.work())
}

fn tally(trace: &Trace, misses: u64, resident: u64, work: Work) -> Count {
    // The first request for every page misses, and every miss brings a page in.
    Count { misses, evictions: misses - resident, refaults: misses - u64::from(trace.footprint()), work }
}

/// Runs jobs over traces.
#[derive(Debug)]
pub struct Replay {
    whole: Future,
    parts: OnceLock<Vec<Future>>,
    groups: Groups,
    machine: Option<Machine>,
    /// Anonymous pages of the trace.
    anon: u32,
}

impl Replay {
    /// Over `trace`.
    pub fn new(trace: Trace) -> Self {
        let groups = Groups::default();
        Self { whole: Future::new(trace), parts: OnceLock::new(), groups, machine: None, anon: 0 }
    }

    /// With bounds for groups.
    #[must_use]
    pub fn with_groups(self, groups: Groups) -> Self {
        Self { groups, ..self }
    }

    /// With a machine around the policy. A trace that was sampled gives no prediction.
    #[must_use]
    pub fn with_machine(self, machine: Machine) -> Self {
        let anon = self.trace().anonymous_pages();
        Self { machine: Some(machine), anon, ..self }
    }

    pub const fn trace(&self) -> &Trace {
        &self.whole.trace
    }

    /// Number of different pages in the whole trace; an estimate if it was sampled.
    pub fn footprint(&self) -> u64 {
        let kept = f64::from(self.trace().footprint());
        (kept / self.trace().sample_rate().unwrap_or(1.0)).round() as u64
    }

    pub fn run(&self, job: Job) -> Figures {
        // What serves all sizes is no part of any job's time.
        match job.policy {
            PolicyName::Opt => _ = self.whole.next_use(),
            PolicyName::Classic | PolicyName::MgLru(_) => _ = self.whole.placed(),
            _ => {}
        }
        let start = Instant::now();
        let mut figures = match self.trace().sample_rate() {
            Some(rate) => self.estimate(job, rate),
            None => self.exact(job),
        };
        figures.seconds = start.elapsed().as_secs_f64();
        figures
    }

    /// Runs jobs on as many threads as the machine has cores. `done` gets each result as it comes; all come in the
    /// order of the jobs.
    pub fn run_all(&self, jobs: &[Job], done: &(dyn Fn(&Figures) + Sync)) -> Vec<Figures> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(jobs.len());
        let next = AtomicUsize::new(0);
        let work = || {
            let mut results = Vec::new();
            while let Some(&job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                let figures = self.run(job);
                done(&figures);
                results.push((job, figures));
            }
            results
        };
        let mut results = Vec::new();
        std::thread::scope(|scope| {
            let helpers: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
            results.extend(work());
            for helper in helpers {
                match helper.join() {
                    Ok(more) => results.extend(more),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
        });
        let place = |job: Job| jobs.iter().position(|j| *j == job);
        results.sort_by_key(|r| place(r.0));
        results.into_iter().map(|r| r.1).collect()
    }

    fn exact(&self, job: Job) -> Figures {
        let requests = self.trace().pages().len() as u64;
        let trace = self.trace();
        let room = self.machine.as_ref().map(|m| (m, m.resident(job.size, trace.footprint(), self.anon)));
        let model = room.and_then(|(machine, room)| room.map(|room| Model::new(machine, room)));
        let resident = room.and_then(|(_, room)| room).map_or(job.size, |room| room.resident);
        let mut watch = Watch::new(trace, model);
        let count = self.whole.count(Job { size: resident, ..job }, &self.groups, watch.as_mut());
        let (groups, model) = watch.map(Watch::finish).unwrap_or_default();
        let outcome = model.map(|model| model.outcome());
        Figures {
            policy: job.policy.name(),
            size: job.size,
            requests,
            misses: count.misses,
            miss_ratio: if requests == 0 { 0.0 } else { count.misses as f64 / requests as f64 },
            miss_ratio_error: None,
            sample_rate: None,
            evictions: count.evictions,
            refaults: count.refaults,
            work: count.work,
            groups,
            machine: room.map(|(machine, room)| Prediction {
                name: machine.name,
                out_of_memory: room.is_none(),
                outcome,
            }),
            seconds: 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Generator, Selection, generate};

    fn made(spec: &str, sample_rate: Option<f64>) -> Replay {
        let selection = Selection { sample_rate, ..Selection::default() };
        Replay::new(generate(&Generator::parse(spec).expect("a spec"), selection, &mut |_| {}).expect("made"))
    }

    #[test]
    fn results_come_in_the_order_of_jobs_and_add_up() {
        let replay = made("zipf:pages=3000,requests=50000,theta=0.9", None);
        let jobs: Vec<Job> =
            [10, 1000, 100, 5000].iter().flat_map(|&size| PolicyName::ALL.map(|policy| Job { policy, size })).collect();
        let done = AtomicUsize::new(0);
        let results = replay.run_all(&jobs, &|_| {
            done.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(done.into_inner(), jobs.len());
        for (job, f) in jobs.iter().zip(&results) {
            assert_eq!((f.policy, f.size), (job.policy.name(), job.size));
            assert_eq!(f.requests, 50_000);
            let resident = f.misses - f.evictions;
            let most = u64::from(job.size).min(replay.footprint());
            // Linux evicts some ahead of need.
            let batched = matches!(job.policy, PolicyName::Classic | PolicyName::MgLru(_));
            assert!(resident == most || (batched && resident <= most && resident * 2 > most), "{f:?}");
            assert_eq!(f.misses - f.refaults, replay.footprint());
            if job.size == 5000 {
                assert_eq!((f.evictions, f.refaults), (0, 0), "everything fits");
            }
        }
    }

    #[test]
    fn a_sample_is_as_close_as_it_says() {
        let spec = "zipf:pages=60000,requests=600000,theta=0.8,seed=4";
        let (whole, sampled) = (made(spec, None), made(spec, Some(0.1)));
        assert!(sampled.trace().pages().len() < whole.trace().pages().len() / 4);
        let footprint = sampled.footprint() as f64 / whole.footprint() as f64;
        assert!((footprint - 1.0).abs() < 0.05, "{footprint}");
        let (mut within, mut all) = (0, 0);
        for policy in PolicyName::ALL {
            for size in [3000, 10_000, 30_000] {
                let (exact, estimate) = (whole.run(Job { policy, size }), sampled.run(Job { policy, size }));
                let error = estimate.miss_ratio_error.expect("large enough");
                let off = (exact.miss_ratio - estimate.miss_ratio).abs();
                assert!(error < 0.1 && off < 0.05, "{exact:?} {estimate:?}");
                assert_eq!(estimate.requests, 600_000);
                all += 1;
                within += u32::from(off <= error);
            }
        }
        assert!(within * 10 >= all * 8, "the interval holds the truth in {within} of {all} cases only");
    }

    #[test]
    fn a_sample_too_small_to_tell_its_error_says_so() {
        let replay = made("uniform:pages=1000,requests=10000", Some(0.1));
        assert_eq!(replay.run(Job { policy: PolicyName::Lru, size: 50 }).miss_ratio_error, None);
    }
}
