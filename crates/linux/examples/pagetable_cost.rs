//! What the page table source costs: time per window armed or looked at, and per GiB scanned.
//!
//! `cargo run --release -p isotherm-linux --example pagetable_cost [MIB [huge|many N]]` (as root). Watches a child of
//! its own that touches exactly what it is asked to, or N of them. Prints microseconds of CPU time, medians of several
//! rounds.

use isotherm_core::addr::{AddrRange, PAGE_SIZE};
use isotherm_core::bits::{TableBits, Window};
use isotherm_core::mask::{NO_PAGES, span_mask};
use isotherm_core::source::{AccessSource, Clear};
use isotherm_linux::arena::{Arena, HugePages};
use isotherm_linux::clock::thread_cpu_ns;
use isotherm_linux::source::pagetable::{PageTableReader, PageTableSource};
use isotherm_linux::targets::{TargetSpec, TargetTracker};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

const ROUNDS: usize = 15;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().collect();
    let mib: u64 = args.get(1).map_or(Ok(1024), |a| a.parse())?;
    let huge = args.get(2).is_some_and(|a| a == "huge");
    match (args.get(2).map(String::as_str), args.get(3)) {
        (_, Some(child_mark)) if child_mark == "child" => child(mib, huge),
        (Some("many"), Some(n)) => many(mib, n.parse()?),
        _ => measure(mib, huge),
    }
}

/// Touches pages as lines `FIRST COUNT STRIDE` (in pages) on stdin. After a line `busy THREADS` it goes on
/// touching the last ones, with another thread that only runs where there are to be two, until another line comes; then
/// tells how often it went round in a second.
fn child(mib: u64, huge: bool) -> Outcome<()> {
    let mut arena = Arena::new(mib << 20, if huge { HugePages::Yes } else { HugePages::No })?;
    println!("{}", arena.range().start);
    let stop = AtomicBool::new(false);
    let mut pages: Vec<u64> = Vec::new();
    let mut lines = std::io::stdin().lines();
    while let Some(line) = lines.next().transpose()? {
        if let Some(threads) = line.strip_prefix("busy ") {
            let threads: u32 = threads.parse()?;
            stop.store(false, Relaxed);
            println!("done");
            let rounds = std::thread::scope(|scope| {
                for _ in 1..threads {
                    scope.spawn(|| {
                        while !stop.load(Relaxed) {
                            std::hint::spin_loop()
                        }
                    });
                }
                // Not a thread of its own: a target with one thread must have one.
                let (begin, mut rounds) = (Instant::now(), 0u64);
                let (stdin, at_once) = (std::io::stdin(), Timespec { tv_sec: 0, tv_nsec: 0 });
                while poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&at_once)) == Ok(0) {
                    arena.touch(&pages);
                    rounds += 1;
                }
                stop.store(true, Relaxed);
                rounds as f64 / begin.elapsed().as_secs_f64()
            });
            lines.next();
            println!("{rounds}");
            continue;
        }
        let n: Vec<u64> = line.split(' ').map(str::parse).collect::<Result<_, _>>()?;
        pages = (0..n[1]).map(|i| n[0] + i * n[2]).collect();
        arena.touch(&pages);
        println!("done");
    }
    Ok(())
}

struct Toucher {
    child: Child,
    from: BufReader<std::process::ChildStdout>,
    base: u64,
}

impl Toucher {
    fn start(mib: u64, huge: bool) -> Outcome<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args([mib.to_string().as_str(), if huge { "huge" } else { "base" }, "child"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut from = BufReader::new(child.stdout.take().ok_or("no pipe")?);
        let mut line = String::new();
        from.read_line(&mut line)?;
        Ok(Self { child, from, base: line.trim().parse()? })
    }

    fn tell(&mut self, line: &str) -> Outcome<String> {
        writeln!(self.child.stdin.as_mut().ok_or("no pipe")?, "{line}")?;
        let mut answer = String::new();
        self.from.read_line(&mut answer)?;
        Ok(answer.trim().to_owned())
    }

    fn touch(&mut self, first: u64, count: u64, stride: u64) -> Outcome<()> {
        self.tell(&format!("{first} {count} {stride}")).map(drop)
    }
}

impl Drop for Toucher {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Microseconds of CPU time that `work` takes.
fn cpu_us(work: impl FnOnce() -> Outcome<()>) -> Outcome<f64> {
    let start = thread_cpu_ns();
    work()?;
    Ok((thread_cpu_ns() - start) as f64 / 1e3)
}

/// Median microseconds of `work`, each round after `prepare`.
fn median(mut prepare: impl FnMut() -> Outcome<()>, mut work: impl FnMut() -> Outcome<()>) -> Outcome<f64> {
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        prepare()?;
        times.push(cpu_us(&mut work)?);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[ROUNDS / 2])
}

fn measure(mib: u64, huge: bool) -> Outcome<()> {
    let probe = median(|| Ok(()), || Ok(PageTableReader::ready().map(drop)?))?;
    println!("probe (load, calibrate, self-test)      {probe:9.0} us");
    let toucher = std::cell::RefCell::new(Toucher::start(mib, huge)?);
    let (base, pid) = (toucher.borrow().base, toucher.borrow().child.id());
    let all = mib * 256;
    toucher.borrow_mut().touch(0, all, 1)?;
    let mut source = PageTableSource::new(TargetTracker::new(TargetSpec::Pids { pids: vec![pid], children: false })?)?;
    source.poll_targets()?;
    source.mappings(0, &mut Vec::new())?;
    let source = std::cell::RefCell::new(source);

    println!(
        "{:>6} {:>8} {:>10} {:>10} {:>10} {:>10}   us a window",
        "pages", "windows", "look", "arm cold", "arm hot", "arm first"
    );
    for pages in [1u16, 16, 512] {
        let count = (all / 512).min(1000);
        let stride = all / count;
        let windows = std::cell::RefCell::new(
            (0..count).map(|i| Window::new(base + i * stride / 512 * 512 * PAGE_SIZE, pages)).collect::<Vec<_>>(),
        );
        let touch = || toucher.borrow_mut().touch(0, all, 1);
        let arm = || Ok(source.borrow_mut().arm(0, &mut windows.borrow_mut())?);
        let look = || Ok(source.borrow_mut().look(0, &mut windows.borrow_mut())?);
        touch()?;
        let first = cpu_us(arm)?;
        let per = |us: f64| us / count as f64;
        let looked = median(|| Ok(()), look)?;
        let cold = median(|| Ok(()), arm)?;
        let hot = median(touch, arm)?;
        println!("{pages:6} {count:8} {:10.3} {:10.3} {:10.3} {:10.3}", per(looked), per(cold), per(hot), per(first));
    }

    let range = [AddrRange::new(base, base + (mib << 20))];
    let scan = |clear| {
        source.borrow_mut().scan(0, &range, if clear { Clear::All } else { Clear::Nothing }, &mut |_| {})?;
        Ok(())
    };
    let gib = mib as f64 / 1024.0;
    toucher.borrow_mut().touch(0, all, 1)?;
    println!("scan and clear, first, all accessed     {:9.0} us a GiB", cpu_us(|| scan(true))? / gib);
    println!("scan, no clearing                       {:9.0} us a GiB", median(|| Ok(()), || scan(false))? / gib);
    println!("scan and clear, nothing accessed        {:9.0} us a GiB", median(|| Ok(()), || scan(true))? / gib);
    let all_hot = median(|| toucher.borrow_mut().touch(0, all, 1), || scan(true))?;
    println!("scan and clear, all accessed            {:9.0} us a GiB", all_hot / gib);
    let some = median(|| toucher.borrow_mut().touch(0, all / 64, 64), || scan(true))?;
    println!("scan and clear, every 64th page accessed{:9.0} us a GiB", some / gib);

    // Half of the memory, so that it is page by page: what is all of a process may be cleared at once.
    let range = [AddrRange::new(base, base + (mib << 19))];
    // On a processor each, whatever else runs here.
    for (pid, processor) in [(pid, "1"), (std::process::id(), "0")] {
        Command::new("taskset").args(["-pc", processor, &pid.to_string()]).stdout(Stdio::null()).status()?;
    }
    for stride in [5, 20] {
        scattered(&mut toucher.borrow_mut(), &mut source.borrow_mut(), &range, stride)?;
    }
    Ok(())
}

/// Scans twice a second with every `stride`th page in use.
fn scattered(toucher: &mut Toucher, source: &mut PageTableSource, range: &[AddrRange; 1], stride: u64) -> Outcome<()> {
    let pages = range[0].len() / PAGE_SIZE / stride;
    println!("scattered: every {stride}th page of {} MiB", range[0].len() >> 20);
    println!("  {:<30} {:>9} {:>9}  us a page; rounds a second of the target", "", "monitor", "target");
    for (what, threads, scans) in [
        ("asleep", 0, true),
        ("busy, not scanned", 1, false),
        ("busy on the other processor", 1, true),
        ("two threads busy, not scanned", 2, false),
        ("two threads busy", 2, true),
    ] {
        toucher.touch(0, pages, stride)?;
        source.scan(0, range, Clear::All, &mut |_| {})?;
        toucher.touch(0, pages, stride)?;
        if threads > 0 {
            toucher.tell(&format!("busy {threads}"))?;
        }
        let before = source.cost();
        let mut cpu = 0.0;
        for _ in 0..ROUNDS {
            std::thread::sleep(Duration::from_millis(500));
            if threads == 0 {
                toucher.touch(0, pages, stride)?;
            }
            if scans {
                let clear = Clear::Chosen(&mut |bits| bits.accessed);
                cpu += cpu_us(|| Ok(source.scan(0, range, clear, &mut |_| {})?))?;
            }
        }
        let rounds: f64 = if threads > 0 { toucher.tell("")?.parse()? } else { 0.0 };
        let per = |us: f64| us / (ROUNDS as f64 * pages as f64);
        let target = (source.cost().target_ns - before.target_ns) as f64 / 1e3;
        println!("  {what:<30} {:9.3} {:9.3}  {rounds:.0}", per(cpu), per(target));
    }
    Ok(())
}

/// Walks over many processes, of each of which all pages are in use.
fn many(mib: u64, count: usize) -> Outcome<()> {
    let mut touchers: Vec<Toucher> = (0..count).map(|_| Toucher::start(mib, false)).collect::<Result<_, _>>()?;
    let pids = touchers.iter().map(|t| t.child.id()).collect();
    let mut source = PageTableSource::new(TargetTracker::new(TargetSpec::Pids { pids, children: false })?)?;
    let targets = source.poll_targets()?;
    let mut ranges = Vec::new();
    let maps = cpu_us(|| {
        for target in &targets {
            let mut mappings = Vec::new();
            source.mappings(target.target, &mut mappings)?;
            ranges.push(mappings.iter().map(|m| m.range).collect::<Vec<_>>());
        }
        Ok(())
    })?;
    let gib = (mib * count as u64) as f64 / 1024.0;
    println!("{count} processes of {mib} MiB        us a process   us a GiB");
    println!("  mappings, first time      {:12.1} {:11.0}", maps / count as f64, maps / gib);
    for (what, part, touch, rounds) in [
        ("walk, first, clearing all", 1, true, 1),
        ("walk, nothing chosen", 0, true, ROUNDS),
        ("walk, a tenth chosen", 10, true, ROUNDS),
        ("walk, nothing accessed", 1, false, ROUNDS),
    ] {
        let mut times = Vec::new();
        for _ in 0..rounds {
            if touch {
                touchers.iter_mut().try_for_each(|t| t.touch(0, mib * 256, 1))?;
            }
            // Pages that lie together: a tenth of what is in use.
            let mut choose = |bits: &TableBits| match part {
                0 => NO_PAGES,
                1 => bits.accessed,
                _ => span_mask(0, 512 / part),
            };
            times.push(cpu_us(|| {
                for (target, ranges) in targets.iter().zip(&ranges) {
                    source.scan(target.target, ranges, Clear::Chosen(&mut choose), &mut |_| {})?;
                }
                Ok(())
            })?);
        }
        times.sort_by(f64::total_cmp);
        let us = times[rounds / 2];
        println!("  {what:<25} {:12.1} {:11.0}", us / count as f64, us / gib);
    }
    Ok(())
}
