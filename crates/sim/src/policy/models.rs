//! Slow, obviously right policies: plain lists, searched from end to end, the newest at the front.

use std::collections::HashMap;

type Queue = Vec<u32>;

fn take(queue: &mut Queue, page: u32) -> bool {
    let at = queue.iter().position(|&p| p == page);
    at.map(|i| queue.remove(i)).is_some()
}

pub fn lru(trace: &[u32], size: usize) -> Vec<bool> {
    let mut list = Queue::new();
    let mut access = |&page: &u32| {
        let hit = take(&mut list, page);
        list.insert(0, page);
        list.truncate(size);
        hit
    };
    trace.iter().map(&mut access).collect()
}

pub fn fifo(trace: &[u32], size: usize) -> Vec<bool> {
    let mut list = Queue::new();
    let mut access = |&page: &u32| {
        let hit = list.contains(&page);
        if !hit {
            list.insert(0, page);
            list.truncate(size);
        }
        hit
    };
    trace.iter().map(&mut access).collect()
}

pub fn clock(trace: &[u32], size: usize) -> Vec<bool> {
    let mut list: Vec<(u32, bool)> = Vec::new();
    let mut access = |&page: &u32| {
        if let Some(entry) = list.iter_mut().find(|e| e.0 == page) {
            entry.1 = true;
            return true;
        }
        while list.len() >= size {
            let (last, used) = list.pop().unwrap();
            if used {
                list.insert(0, (last, false));
            }
        }
        list.insert(0, (page, false));
        false
    };
    trace.iter().map(&mut access).collect()
}

pub fn sieve(trace: &[u32], size: usize) -> Vec<bool> {
    let mut list: Vec<(u32, bool)> = Vec::new();
    // The page to look at next, by name.
    let mut hand: Option<u32> = None;
    let mut access = |&page: &u32| {
        if let Some(entry) = list.iter_mut().find(|e| e.0 == page) {
            entry.1 = true;
            return true;
        }
        if list.len() == size {
            let mut at = hand.and_then(|h| list.iter().position(|e| e.0 == h)).unwrap_or(list.len() - 1);
            while list[at].1 {
                list[at].1 = false;
                at = if at == 0 { list.len() - 1 } else { at - 1 };
            }
            hand = (at > 0).then(|| list[at - 1].0);
            list.remove(at);
        }
        list.insert(0, (page, false));
        false
    };
    trace.iter().map(&mut access).collect()
}

pub(crate) fn two_q(trace: &[u32], size: usize) -> Vec<bool> {
    let (most_in, most_out) = ((size / 4).max(1), (size / 2).max(1));
    let (mut a1in, mut a1out, mut am) = (Queue::new(), Queue::new(), Queue::new());
    let mut access = |&page: &u32| {
        if take(&mut am, page) {
            am.insert(0, page);
            return true;
        }
        if a1in.contains(&page) {
            return true;
        }
        let named = take(&mut a1out, page);
        if a1in.len() + am.len() == size {
            if a1in.len() > most_in || am.is_empty() {
                a1out.insert(0, a1in.pop().unwrap());
                a1out.truncate(most_out);
            } else {
                am.pop();
            }
        }
        if named { &mut am } else { &mut a1in }.insert(0, page);
        false
    };
    trace.iter().map(&mut access).collect()
}

pub fn arc(trace: &[u32], c: usize) -> Vec<bool> {
    let [mut t1, mut t2, mut b1, mut b2] = [const { Queue::new() }; 4];
    let mut p = 0.0f64;
    let replace = |t1: &mut Queue, t2: &mut Queue, b1: &mut Queue, b2: &mut Queue, p: f64, in_b2: bool| {
        let n = t1.len() as f64;
        if !t1.is_empty() && (n > p || (in_b2 && n == p)) || t2.is_empty() {
            b1.insert(0, t1.pop().unwrap());
        } else {
            b2.insert(0, t2.pop().unwrap());
        }
    };
    let mut access = |&x: &u32| {
        if take(&mut t1, x) || take(&mut t2, x) {
            t2.insert(0, x);
            return true;
        }
        let (n1, n2) = (b1.len() as f64, b2.len() as f64);
        if b1.contains(&x) {
            p = (p + f64::max(1.0, n2 / n1)).min(c as f64);
            replace(&mut t1, &mut t2, &mut b1, &mut b2, p, false);
            take(&mut b1, x);
            t2.insert(0, x);
        } else if b2.contains(&x) {
            p = (p - f64::max(1.0, n1 / n2)).max(0.0);
            replace(&mut t1, &mut t2, &mut b1, &mut b2, p, true);
            take(&mut b2, x);
            t2.insert(0, x);
        } else {
            let total = t1.len() + t2.len() + b1.len() + b2.len();
            if t1.len() + b1.len() == c {
                if t1.len() < c {
                    b1.pop();
                    replace(&mut t1, &mut t2, &mut b1, &mut b2, p, false);
                } else {
                    t1.pop();
                }
            } else if total >= c {
                if total == 2 * c {
                    b2.pop();
                }
                replace(&mut t1, &mut t2, &mut b1, &mut b2, p, false);
            }
            t1.insert(0, x);
        }
        false
    };
    trace.iter().map(&mut access).collect()
}

pub fn lirs(trace: &[u32], size: usize) -> Vec<bool> {
    let most_lir = size - (size / 100).max(1);
    // The stack with its top in front; the queue of resident HIR pages and the names of pages gone, newest in front.
    let (mut stack, mut queue, mut gone) = (Queue::new(), Queue::new(), Queue::new());
    let mut lir = Queue::new();
    let mut access = |&x: &u32| {
        let hit = lir.contains(&x) || queue.contains(&x);
        if !hit && lir.len() + queue.len() == size {
            let victim = queue.pop().unwrap();
            if stack.contains(&victim) {
                gone.insert(0, victim);
            }
        }
        let in_stack = take(&mut stack, x);
        stack.insert(0, x);
        if !lir.contains(&x) {
            take(&mut queue, x);
            take(&mut gone, x);
            if in_stack || (!hit && lir.len() < most_lir) {
                lir.push(x);
            } else {
                queue.insert(0, x);
            }
        }
        if lir.len() > most_lir {
            let bottom = *stack.iter().rev().find(|p| lir.contains(p)).unwrap();
            take(&mut lir, bottom);
            take(&mut stack, bottom);
            queue.insert(0, bottom);
            // What lay below it goes with it.
        }
        while let Some(&bottom) = stack.last()
            && !lir.contains(&bottom)
        {
            stack.pop();
            take(&mut gone, bottom);
        }
        if gone.len() > size {
            let oldest = gone.pop().unwrap();
            take(&mut stack, oldest);
        }
        hit
    };
    trace.iter().map(&mut access).collect()
}

pub fn s3fifo(trace: &[u32], size: usize) -> Vec<bool> {
    let most_main = size - (size / 10).max(1);
    let most_ghosts = (size * 9 / 10).max(1);
    let (mut small, mut main, mut ghosts) = (Queue::new(), Queue::new(), Queue::new());
    let mut uses: HashMap<u32, u8> = HashMap::new();
    let mut access = |&page: &u32| {
        if small.contains(&page) || main.contains(&page) {
            let n = uses.entry(page).or_default();
            *n = (*n + 1).min(3);
            return true;
        }
        let named = take(&mut ghosts, page);
        while small.len() + main.len() == size {
            if main.len() > most_main || small.is_empty() {
                let last = main.pop().unwrap();
                let n = uses.entry(last).or_default();
                if *n > 0 {
                    *n -= 1;
                    main.insert(0, last);
                }
            } else {
                let last = small.pop().unwrap();
                if uses.insert(last, 0).unwrap_or(0) >= 2 {
                    main.insert(0, last);
                } else {
                    ghosts.insert(0, last);
                    ghosts.truncate(most_ghosts);
                }
            }
        }
        uses.insert(page, 0);
        if named { &mut main } else { &mut small }.insert(0, page);
        false
    };
    trace.iter().map(&mut access).collect()
}

pub fn wtinylfu(trace: &[u32], size: usize) -> Vec<bool> {
    let most_window = (size / 100).max(1);
    let most_main = size - most_window;
    let most_protected = most_main * 4 / 5;
    let (mut window, mut probation, mut protected) = (Queue::new(), Queue::new(), Queue::new());
    let mut counts: HashMap<u32, u32> = HashMap::new();
    let mut requests = 0;
    let mut access = |&page: &u32| {
        let count = counts.entry(page).or_default();
        *count = (*count + 1).min(15);
        requests += 1;
        if requests % (10 * size) == 0 {
            counts.values_mut().for_each(|c| *c /= 2);
        }
        if take(&mut window, page) {
            window.insert(0, page);
            return true;
        }
        if take(&mut probation, page) || take(&mut protected, page) {
            protected.insert(0, page);
            if protected.len() > most_protected {
                probation.insert(0, protected.pop().unwrap());
            }
            return true;
        }
        window.insert(0, page);
        if window.len() <= most_window {
            return false;
        }
        let candidate = window.pop().unwrap();
        if probation.len() + protected.len() < most_main {
            probation.insert(0, candidate);
            return false;
        }
        let from = if probation.is_empty() { &mut protected } else { &mut probation };
        if let Some(&victim) = from.last()
            && counts[&candidate] > counts[&victim]
        {
            from.pop();
            probation.insert(0, candidate);
        }
        false
    };
    trace.iter().map(&mut access).collect()
}

/// Counts as libCacheSim keeps them: ten of 14.4 counters per page of the main part, all of them raised, the least
/// believed. With many more pages than that, counters are shared and the counts too high.
struct Sketch(Vec<u32>);

fn hash(page: u32) -> u64 {
    let h = (u64::from(page) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let h = (h ^ (h >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    h ^ (h >> 32)
}

impl Sketch {
    fn places(&self, page: u32) -> impl Iterator<Item = usize> + use<> {
        let (hash, counters) = (hash(page), self.0.len() as u64);
        let (a, b) = (hash & 0xffff_ffff, hash >> 32);
        (0..10).map(move |i| (a.wrapping_add(i * b) % counters) as usize)
    }

    fn add(&mut self, page: u32) {
        self.places(page).for_each(|at| self.0[at] += 1);
    }

    fn estimate(&self, page: u32) -> u32 {
        self.places(page).map(|at| self.0[at]).min().unwrap()
    }
}

/// W-TinyLFU by the rules of libCacheSim. The window grows into what the main part does not use yet. Counted are
/// misses, hits in the main part, and what leaves the window, whichever way it goes; hits in the window are not. Counts
/// have no upper end and are halved after 32 hits in the main part per page of it. As long as there is room, what comes
/// to a full probation segment goes to the protected one.
pub(crate) fn wtinylfu_of_libcachesim(trace: &[u32], size: usize) -> Vec<bool> {
    let most_main = size - size / 100;
    let (most_probation, most_protected) = (most_main / 5, most_main * 4 / 5);
    let (mut window, mut probation, mut protected) = (Queue::new(), Queue::new(), Queue::new());
    let mut counts = Sketch(vec![0; (most_main as f64 * 14.378).ceil() as usize]);
    let mut main_hits = 0;
    let mut access = |&page: &u32| {
        if take(&mut window, page) {
            window.insert(0, page);
            return true;
        }
        if take(&mut probation, page) || take(&mut protected, page) {
            protected.insert(0, page);
            if protected.len() > most_protected {
                probation.insert(0, protected.pop().unwrap());
            }
            counts.add(page);
            main_hits += 1;
            if main_hits == 32 * most_main {
                main_hits = 0;
                counts.0.iter_mut().for_each(|c| *c /= 2);
            }
            return true;
        }
        while window.len() + probation.len() + protected.len() == size {
            let candidate = window.pop().unwrap();
            let mut admitted = probation.len() + protected.len() < most_main;
            if !admitted {
                let from = if probation.is_empty() { &mut protected } else { &mut probation };
                admitted = counts.estimate(candidate) > counts.estimate(*from.last().unwrap());
                if admitted {
                    from.pop();
                }
            }
            if admitted {
                let room_above = probation.len() >= most_probation && protected.len() < most_protected;
                if room_above { &mut protected } else { &mut probation }.insert(0, candidate);
            }
            counts.add(candidate);
        }
        window.insert(0, page);
        counts.add(page);
        false
    };
    trace.iter().map(&mut access).collect()
}

pub fn opt(trace: &[u32], size: usize) -> Vec<bool> {
    let mut there = Queue::new();
    let mut access = |(i, &page): (usize, &u32)| {
        if there.contains(&page) {
            return true;
        }
        if there.len() == size {
            let next = |p: u32| trace[i..].iter().position(|&q| q == p).unwrap_or(usize::MAX);
            let victim = there.iter().copied().max_by_key(|&p| next(p)).unwrap();
            take(&mut there, victim);
        }
        there.push(page);
        false
    };
    trace.iter().enumerate().map(&mut access).collect()
}
