//! Who acts on memory: one piece after the other, each taking its time, as the thread of the real actuator does.

use super::SimMemory;
use isotherm_core::actuator::{Outcome, Request};
use isotherm_core::addr::{AddrRange, TABLE_SPAN, total_len};
use std::collections::{BTreeMap, VecDeque};

/// Work in hand and what has come of it.
#[derive(Debug, Default)]
pub(super) struct Worker {
    jobs: VecDeque<Job>,
    /// The piece in hand, of the first job, and when it is done.
    piece: Option<(RequestPart, f64)>,
    pending: BTreeMap<usize, u64>,
    finished: Vec<Outcome>,
}

#[derive(Debug)]
struct Job {
    request: Request,
    pieces: VecDeque<RequestPart>,
    began: f64,
    applied: u64,
    nr_applied: u64,
    last_range: Option<usize>,
    error: Option<String>,
}

/// Part of a request within 2 MiB.
#[derive(Debug, Clone, Copy)]
struct RequestPart {
    /// Which range of the request it belongs to.
    index: usize,
    range: AddrRange,
}

impl Worker {
    /// When the piece in hand is done, ns.
    pub(crate) fn next_done(&self) -> Option<f64> {
        self.piece.map(|(_, done)| done)
    }

    /// Bytes asked for by a scheme and not finished.
    pub fn pending(&self, scheme: usize) -> u64 {
        self.pending.get(&scheme).copied().unwrap_or(0)
    }

    /// Moves what is finished to `out`.
    pub fn collect(&mut self, out: &mut Vec<Outcome>) {
        out.append(&mut self.finished);
    }
}

impl SimMemory {
    /// Takes work on at `now_ns`.
    pub(crate) fn submit(&mut self, request: Request, now_ns: u64) {
        self.advance(now_ns);
        let pieces = request.ranges.iter().enumerate().flat_map(|(index, r)| {
            let tables = r.start / TABLE_SPAN..r.end.div_ceil(TABLE_SPAN);
            let spans = tables.map(|i| AddrRange::new(i * TABLE_SPAN, (i + 1) * TABLE_SPAN));
            spans.filter_map(move |span| r.intersect(&span)).map(move |range| RequestPart { index, range })
        });
        let pieces = pieces.collect();
        *self.worker.pending.entry(request.scheme).or_default() += total_len(&request.ranges);
        let job = Job { request, pieces, began: 0.0, applied: 0, nr_applied: 0, last_range: None, error: None };
        self.worker.jobs.push_back(job);
        if self.worker.piece.is_none() {
            self.begin_job(now_ns as f64);
        }
    }

    /// Bytes asked for by a scheme and not finished.
    pub(crate) fn pending(&self, scheme: usize) -> u64 {
        self.worker.pending(scheme)
    }

    /// Moves what is finished to `out`.
    pub(crate) fn collect(&mut self, out: &mut Vec<Outcome>) {
        self.worker.collect(out);
    }

    fn begin_job(&mut self, when: f64) {
        if let Some(job) = self.worker.jobs.front_mut() {
            job.began = when;
        }
        self.begin_piece(when);
    }

    /// Takes the next piece in hand; jobs without one are finished.
    fn begin_piece(&mut self, when: f64) {
        while let Some(job) = self.worker.jobs.front_mut() {
            if let Some(piece) = job.pieces.pop_front() {
                let action = job.request.action;
                let cost = self.cost_ns(action, piece.range);
                self.counters.worker_ns += cost;
                self.worker.piece = Some((piece, when + cost as f64));
                return;
            }
            let Some(job) = self.worker.jobs.pop_front() else { return };
            let pending = self.worker.pending.entry(job.request.scheme).or_default();
            *pending -= total_len(&job.request.ranges).min(*pending);
            self.worker.finished.push(Outcome {
                nr_applied: job.nr_applied,
                applied: job.applied,
                took_ns: (when - job.began) as u64,
                done_ns: when.ceil() as u64,
                error: job.error,
                request: job.request,
            });
            if let Some(next) = self.worker.jobs.front_mut() {
                next.began = when;
            }
        }
    }

    /// The piece in hand is done: it takes effect, and the next is taken.
    pub(super) fn finish_piece(&mut self, when: f64) {
        let Some((piece, _)) = self.worker.piece.take() else { return };
        let Some(mut job) = self.worker.jobs.pop_front() else { return };
        match self.act(&job.request, piece.range) {
            Ok(bytes) => {
                job.applied += bytes;
                if bytes > 0 && job.last_range != Some(piece.index) {
                    job.last_range = Some(piece.index);
                    job.nr_applied += 1;
                }
            }
            Err(why) => {
                job.error.get_or_insert_with(|| format!("{:#x}-{:#x}: {why}", piece.range.start, piece.range.end));
            }
        }
        self.worker.jobs.push_front(job);
        self.begin_piece(when);
    }
}
