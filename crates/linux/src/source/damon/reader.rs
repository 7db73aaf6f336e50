//! Two ways to get the kernel's regions: its tracepoint, and its files.
//!
//! The tracepoint tells every aggregation interval, with its exact end, for about a microsecond a region. The files
//! need three or four opened ones a region and a request that waits for the end of an interval. Where perf events or
//! tracefs are missing, or the tracepoint stays silent, the files serve.

use super::error::DamonError;
use super::files::ControlFiles;
use super::rounds::{Collect, Whole};
use super::session::{Asked, DamonSession};
use super::tracepoint::{Aggregated, follow, sample};
use super::tried::TriedRegions;
use crate::clock::thread_cpu_ns;
use crate::perf_ring::{PerfRing, Record};
use isotherm_core::attrs::MonitorAttrs;
use isotherm_core::clock::Clock;
use std::io;

/// Bytes that one region takes in the ring, rounded up.
const RECORD_BYTES: usize = 96;
/// Aggregation intervals that the ring holds: a reader may be late by so many.
const RING_INTERVALS: usize = 8;

/// Gets the regions of a session that is switched on.
#[derive(Debug)]
pub(super) enum Reader {
    Trace(Trace),
    Files(Files),
}

impl Reader {
    /// Takes the tracepoint if it can be had, else the files.
    pub(super) fn open<F: ControlFiles>(
        session: &DamonSession<F>,
        targets: usize,
        attrs: &MonitorAttrs,
        now_ns: u64,
    ) -> Result<Self, DamonError> {
        let found = session.kdamond().zip(session.event());
        match found.map(|(thread, event)| Trace::open(event, thread, attrs, now_ns)) {
            Some(Ok(trace)) => Ok(Self::Trace(trace)),
            _ => Files::open(session, targets, attrs).map(Self::Files),
        }
    }

    /// Appends the regions that have come. With files, this waits for the end of an aggregation interval.
    pub(super) fn read<F: ControlFiles>(
        &mut self,
        session: &mut DamonSession<F>,
        targets: usize,
        clock: &dyn Clock,
        out: &mut Vec<Whole>,
    ) -> Result<Asked, DamonError> {
        if let Self::Trace(trace) = self {
            if trace.drain(clock.now_ns(), out) {
                return Ok(Asked::Ready);
            }
            if !session.is_on() {
                return Ok(Asked::Stopped);
            }
            *self = Self::Files(Files::open(session, targets, &trace.attrs)?);
        }
        match self {
            Self::Files(files) => files.read(session, clock, out),
            Self::Trace(_) => Ok(Asked::Ready),
        }
    }

    /// When to read next, if an aggregation interval ended at `end_ns`, or (`None`) nothing has come at `now_ns`.
    pub(super) fn next_ns(&self, end_ns: Option<u64>, now_ns: u64, cpu_budget: Option<f64>) -> u64 {
        match (self, end_ns) {
            (Self::Trace(trace), Some(end_ns)) => end_ns + trace.attrs.aggr_us * 1000,
            // The kernel's intervals end late rather than early.
            (Self::Trace(trace), None) => now_ns + (trace.attrs.aggr_us * 1000 / 20).max(1_000_000),
            (Self::Files(files), _) => end_ns.unwrap_or(now_ns) + files.pause_ns(cpu_budget),
        }
    }
}

#[derive(Debug)]
pub(super) struct Trace {
    ring: PerfRing,
    event: Aggregated,
    collect: Collect,
    attrs: MonitorAttrs,
    last_ns: u64,
}

impl Trace {
    fn open(event: Aggregated, thread: u32, attrs: &MonitorAttrs, now_ns: u64) -> io::Result<Self> {
        let ring = follow(event.id, thread, attrs.max_regions as usize * RECORD_BYTES * RING_INTERVALS)?;
        Ok(Self { ring, event, collect: Collect::default(), attrs: *attrs, last_ns: now_ns })
    }

    /// Appends what has come; false if that has been nothing for too long.
    fn drain(&mut self, now_ns: u64, out: &mut Vec<Whole>) -> bool {
        let Self { ring, event, collect, .. } = self;
        let before = out.len();
        ring.drain(|record| match record {
            Record::Lost => collect.lost(),
            Record::Sample(body) => match sample(body).and_then(|(time_ns, raw)| Some((time_ns, event.region(raw)?))) {
                Some((time_ns, region)) => out.extend(collect.add(time_ns, region)),
                None => collect.lost(),
            },
        });
        if out.len() > before {
            self.last_ns = now_ns;
        }
        now_ns.saturating_sub(self.last_ns) < 3 * self.attrs.aggr_us * 1000 + 1_000_000_000
    }
}

/// The files with the regions that schemes tried.
#[derive(Debug)]
pub(super) struct Files {
    targets: Vec<TriedRegions>,
    aggr_ns: u64,
    /// CPU time that the last read took.
    cost_ns: u64,
}

impl Files {
    fn open<F: ControlFiles>(
        session: &DamonSession<F>,
        targets: usize,
        attrs: &MonitorAttrs,
    ) -> Result<Self, DamonError> {
        let open = |i| {
            let path = session.regions_folder(i);
            TriedRegions::open(&path).map_err(|source| DamonError::Io { action: "open".into(), path, source })
        };
        let targets = (0..targets).map(open).collect::<Result<_, _>>()?;
        Ok(Self { targets, aggr_ns: attrs.aggr_us * 1000, cost_ns: 0 })
    }

    fn read<F: ControlFiles>(
        &mut self,
        session: &mut DamonSession<F>,
        clock: &dyn Clock,
        out: &mut Vec<Whole>,
    ) -> Result<Asked, DamonError> {
        if session.ask_for_regions()? == Asked::Stopped {
            return Ok(Asked::Stopped);
        }
        let (cpu, time_ns) = (thread_cpu_ns(), clock.now_ns());
        for (target, reader) in (0..).zip(&mut self.targets) {
            let mut regions = Vec::new();
            reader.read(&mut regions).map_err(|source| DamonError::Io {
                action: "read the regions in".into(),
                path: session.regions_folder(target as usize),
                source,
            })?;
            out.push(Whole { target, time_ns, regions });
        }
        self.cost_ns = thread_cpu_ns() - cpu;
        Ok(Asked::Ready)
    }

    /// How long to wait after an interval's end before asking again. The request itself waits for the end of an
    /// interval, so most of one is slept away before, where a signal can end the sleep; and as many are left out as the
    /// budget demands.
    fn pause_ns(&self, cpu_budget: Option<f64>) -> u64 {
        /// Kernels up to 6.13 answer at the first multiple of this after the request.
        const ANSWER_GRID_NS: u64 = 100_000_000;
        let aggr = self.aggr_ns;
        let affordable = match cpu_budget {
            Some(share) if share > 0.0 => (self.cost_ns as f64 / share) as u64,
            _ => 0,
        };
        let skipped = (affordable / aggr.max(1)).min(1000) * aggr;
        // A little more than one grid step before the end, which comes late rather than early: then the answer comes
        // right behind it. A fifth of the interval is kept for the kernel to take notice of the request.
        skipped + (aggr.saturating_sub(ANSWER_GRID_NS) + aggr / 10).min(aggr / 5 * 4)
    }
}
