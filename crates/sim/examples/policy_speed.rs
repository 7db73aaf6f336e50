//! Reads a trace (or makes one up) and prints how fast it was read and how fast each policy runs over it, one at a
//! time.
//!
//! `cargo run --release -p isotherm-sim --example policy_speed -- zipf:pages=1M,requests=20M,theta=1 1000 100000`

use isotherm_sim::policy::PolicyName;
use isotherm_sim::replay::{Job, Replay};
use isotherm_sim::trace::{Format, Generator, Selection, generate, read};
use std::path::Path;
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let source = args.next().ok_or("which trace (a file, or a description)?")?;
    let sizes: Vec<u32> = args.map(|a| a.parse()).collect::<Result<_, _>>()?;
    let start = Instant::now();
    let trace = if Path::new(&source).exists() {
        read(Path::new(&source), Format::Auto, Selection::default(), &mut |_| {})?
    } else {
        generate(&Generator::parse(&source)?, Selection::default(), &mut |_| {})?
    };
    let requests = trace.pages().len() as f64;
    println!("{requests} requests, {} pages", trace.footprint());
    println!("read          {:6.1} M/s", requests / start.elapsed().as_secs_f64() / 1e6);
    let replay = Replay::new(trace);
    for policy in PolicyName::ALL {
        for &size in &sizes {
            // The best of three: others use the machine, too.
            let runs = [(); 3].map(|()| replay.run(Job { policy, size }));
            let seconds = runs.iter().map(|f| f.seconds).fold(f64::INFINITY, f64::min);
            println!("{:9} {size:8} {:6.1} M/s  {} misses", policy.name(), requests / seconds / 1e6, runs[0].misses);
        }
    }
    Ok(())
}
