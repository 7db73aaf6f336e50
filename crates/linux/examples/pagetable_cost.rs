//! What the page table source costs: time per window armed or looked at, and per GiB scanned.
//!
//! `cargo run --release -p isotherm-linux --example pagetable_cost [MIB [huge]]` (as root). Watches a child of its own that touches
//! exactly what it is told. Prints microseconds of CPU time, medians of several rounds.

use isotherm_core::addr::{AddrRange, PAGE_SIZE};
use isotherm_core::source::{AccessSource, Window};
use isotherm_linux::arena::{Arena, HugePages};
use isotherm_linux::clock::thread_cpu_ns;
use isotherm_linux::source::pagetable::PageTableSource;
use isotherm_linux::target::{TargetSpec, TargetTracker};
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

const ROUNDS: usize = 15;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().collect();
    let mib: u64 = args.get(1).map_or(Ok(1024), |a| a.parse())?;
    let huge = args.get(2).is_some_and(|a| a == "huge");
    if args.get(3).is_some_and(|a| a == "child") { child(mib, huge) } else { measure(mib, huge) }
}

/// Touches pages as told by lines `FIRST COUNT STRIDE` (in pages) on stdin.
fn child(mib: u64, huge: bool) -> Outcome<()> {
    let mut arena = Arena::new(mib << 20, if huge { HugePages::Yes } else { HugePages::No })?;
    println!("{}", arena.range().start);
    for line in std::io::stdin().lines() {
        let n: Vec<u64> = line?.split(' ').map(str::parse).collect::<Result<_, _>>()?;
        let pages: Vec<u64> = (0..n[1]).map(|i| n[0] + i * n[2]).collect();
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

    fn touch(&mut self, first: u64, count: u64, stride: u64) -> Outcome<()> {
        let to = self.child.stdin.as_mut().ok_or("no pipe")?;
        writeln!(to, "{first} {count} {stride}")?;
        self.from.read_line(&mut String::new())?;
        Ok(())
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
    let probe = median(|| Ok(()), || Ok(PageTableSource::probe()?))?;
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
        source.borrow_mut().scan(0, &range, clear, &mut |_| {})?;
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
    Ok(())
}
