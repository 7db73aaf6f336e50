//! Moving pages to other memory nodes: `move_pages(2)`.

use super::hinted::{forget_reading, take_marks_off};
use super::pace::Pace;
use super::tally::{Tally, gone, refusal};
use crate::mm::move_pages;
use crate::proc::smaps;
use crate::proc::{PidFd, ProcessDir};
use isotherm_core::actuator::{Destination, Request};
use isotherm_core::addr::{AddrRange, PAGE_SIZE, TABLE_SPAN};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Times that a call which ended early is taken up again behind the page that ended it.
const TRIES: u32 = 8;

/// Nodes by weight, as DAMOS does: index modulo the sum of the weights, so that neighbours are spread.
#[derive(Debug)]
struct Weighted {
    destinations: Vec<Destination>,
    sum: u64,
}

impl Weighted {
    fn new(destinations: &[Destination]) -> Option<Self> {
        let destinations: Vec<_> = destinations.iter().copied().filter(|d| d.weight > 0).collect();
        let sum = destinations.iter().map(|d| u64::from(d.weight)).sum();
        (sum > 0).then_some(Self { destinations, sum })
    }

    fn node(&self, index: u64) -> u32 {
        let mut left = index % self.sum;
        for d in &self.destinations {
            match left.checked_sub(d.weight.into()) {
                Some(rest) => left = rest,
                None => return d.node,
            }
        }
        self.destinations[0].node
    }

    fn is_single(&self) -> bool {
        self.destinations.len() == 1
    }
}

/// Pages of one call.
#[derive(Debug, Default)]
struct Batch {
    pages: Vec<u64>,
    nodes: Vec<libc::c_int>,
    status: Vec<libc::c_int>,
}

/// Moves the request's ranges to its destinations.
///
/// The call takes a pid. The pidfd is looked at before each call; should the target die and its pid be given away in
/// that instant, a call's worth of another process's pages moves, which changes nothing but where they lie.
pub(super) fn migrate(request: &Request, process: &PidFd, stop: &AtomicBool, pace: &mut Pace) -> Tally {
    let mut tally = Tally::default();
    let (action, pid) = (request.action, process.pid());
    let Some(weighted) = Weighted::new(&request.destinations) else {
        tally.refuse(|| format!("{action} of pid {pid} names no node to move to; give one with a weight above 0"));
        return tally;
    };
    let huge = if weighted.is_single() { Vec::new() } else { huge_areas(pid) };
    let mut batch = Batch::default();
    for range in &request.ranges {
        let mut start = range.start;
        while start < range.end {
            if stop.load(Ordering::Relaxed) {
                tally.refuse(|| "stopped before it was finished".into());
                return tally;
            }
            if process.has_exited() {
                tally.refuse(|| format!("pid {pid} has exited"));
                return tally;
            }
            let cut = ((start + pace.limit()) / TABLE_SPAN * TABLE_SPAN).max(start + PAGE_SIZE);
            let part = AddrRange::new(start, cut.min(range.end));
            batch.fill(part, &weighted, &huge);
            let begin = Instant::now();
            match batch.move_marked(process) {
                Ok(pages) => tally.add_partly(part, pages * PAGE_SIZE),
                Err(e) => {
                    tally.refuse(|| explain(request, pid, part, &e));
                    return tally;
                }
            }
            pace.learn(part.len(), begin.elapsed());
            start = part.end;
        }
    }
    tally
}

fn explain(request: &Request, pid: u32, part: AddrRange, error: &io::Error) -> String {
    let nodes: Vec<String> = request.destinations.iter().map(|d| d.node.to_string()).collect();
    let why = match error.raw_os_error() {
        _ if gone(error) => return format!("pid {pid} has exited"),
        Some(libc::ENODEV) => "one of them has no memory; see /sys/devices/system/node/has_memory",
        Some(libc::EACCES) => "the target's cpuset does not allow one of them; see cpuset.mems",
        Some(libc::ENOSYS) => "use a kernel with CONFIG_NUMA and CONFIG_MIGRATION",
        Some(libc::ENOMEM) => "no memory is free there",
        _ => "",
    };
    format!("{} to node {}: {why}", refusal(request.action, pid, part, error), nodes.join(", "))
}

impl Batch {
    fn fill(&mut self, part: AddrRange, weighted: &Weighted, huge: &[AddrRange]) {
        self.pages.clear();
        self.nodes.clear();
        for page in (part.start..part.end).step_by(PAGE_SIZE as usize) {
            self.pages.push(page);
            // A huge page moves as a whole: all its parts must name the same node.
            let i = huge.partition_point(|h| h.end <= page);
            let is_huge = huge.get(i).is_some_and(|h| h.contains(page));
            let index = page / if is_huge { TABLE_SPAN } else { PAGE_SIZE };
            self.nodes.push(weighted.node(index) as libc::c_int);
        }
    }

    /// The same as [`move_all`](Self::move_all), also for pages that NUMA balancing has marked.
    fn move_marked(&mut self, process: &PidFd) -> io::Result<u64> {
        let moved = self.move_all(process.pid())?;
        let absent = |(&page, &status): (&u64, &libc::c_int)| (status == -libc::ENOENT).then_some(page);
        let absent: Vec<u64> = self.pages.iter().zip(&self.status).filter_map(absent).collect();
        let marked = if absent.is_empty() { Vec::new() } else { take_marks_off(process, &absent) };
        if marked.is_empty() {
            return Ok(moved);
        }
        let moved = self.move_all(process.pid());
        forget_reading(process, &marked);
        moved
    }

    /// Moves them; gives how many lie where they should afterwards. Pages that are not there, or that other processes
    /// map, stay.
    fn move_all(&mut self, pid: u32) -> io::Result<u64> {
        const UNTRIED: libc::c_int = libc::c_int::MIN;
        let mut from = 0;
        for _ in 0..TRIES {
            self.status.clear();
            self.status.resize(self.pages.len(), UNTRIED);
            // A run of pages for one node that did not go wholly ends the call, and tells nothing of its pages or those
            // behind.
            if move_pages(pid, &self.pages[from..], Some(&self.nodes[from..]), &mut self.status[from..])? == 0 {
                break;
            }
            let Some(first) = self.status[from..].iter().position(|s| *s == UNTRIED) else { break };
            let first = from + first;
            move_pages(pid, &self.pages[first..], None, &mut self.status[first..])?;
            let misplaced = |i: &usize| self.status[*i] >= 0 && self.status[*i] != self.nodes[*i];
            let Some(stuck) = (first..self.pages.len()).find(misplaced) else { break };
            from = stuck + 1;
            if from == self.pages.len() {
                break;
            }
        }
        // Only what is seen afterwards counts: of a huge page that moved, the call says that most of its parts were
        // busy.
        self.status.clear();
        self.status.resize(self.pages.len(), UNTRIED);
        move_pages(pid, &self.pages, None, &mut self.status)?;
        Ok(self.status.iter().zip(&self.nodes).filter(|(s, n)| s == n).count() as u64)
    }
}

/// Mappings that hold huge pages. Costs about 10 ms per resident GiB.
fn huge_areas(pid: u32) -> Vec<AddrRange> {
    let dir = ProcessDir::live(pid);
    let mut areas = Vec::new();
    // Where smaps cannot be read there are none to know of: then a huge page may move more than once.
    let _ = smaps::read(&dir, &mut Vec::new(), |line, figures| {
        if figures.anon_huge > 0 {
            areas.push(line.range);
        }
    });
    areas
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_spread_neighbours() {
        let d = |node, weight| Destination { node, weight };
        let w = Weighted::new(&[d(3, 2), d(5, 0), d(1, 1)]).unwrap();
        let nodes: Vec<u32> = (0..7).map(|i| w.node(i)).collect();
        assert_eq!(nodes, [3, 3, 1, 3, 3, 1, 3]);
        assert!(!w.is_single() && Weighted::new(&[d(0, 7), d(1, 0)]).unwrap().is_single());
        assert!(Weighted::new(&[]).is_none() && Weighted::new(&[d(0, 0)]).is_none());
    }

    #[test]
    fn parts_of_a_huge_page_go_to_one_node() {
        let d = |node| Destination { node, weight: 1 };
        let w = Weighted::new(&[d(0), d(1)]).unwrap();
        let (a, b) = (AddrRange::new(0, 2 * TABLE_SPAN), AddrRange::new(2 * TABLE_SPAN, 4 * TABLE_SPAN));
        let mut batch = Batch::default();
        batch.fill(AddrRange::new(a.start, b.end), &w, &[b]);
        assert_eq!(batch.nodes[..4], [0, 1, 0, 1]);
        assert!(batch.nodes[1024..1536].iter().all(|n| *n == 0));
        assert!(batch.nodes[1536..].iter().all(|n| *n == 1));
    }
}
