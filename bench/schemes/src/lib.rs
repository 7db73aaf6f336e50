//! What the benchmarks' programs share.
//!
//! Each program sets up its memory, prints `ready`, waits for a line on stdin, does a fixed amount of work, checks its
//! own data, and prints `ELAPSED_NS ok`. Wrong data ends it with status 1.
#![forbid(unsafe_code)]

pub mod random;
pub mod redis;
pub mod zipf;

use anyhow::Context;
use std::io::{BufRead, Write};
use std::time::Instant;

/// Prints `ready` and waits until asked to begin.
pub fn wait_for_start() -> anyhow::Result<Instant> {
    println!("ready");
    std::io::stdout().flush()?;
    let read = std::io::stdin().lock().read_line(&mut String::new()).context("waiting for the start")?;
    anyhow::ensure!(read > 0, "asked to end before the start");
    Ok(Instant::now())
}

/// Says how long it took; only to be called when the data was found to be right.
pub fn finish(begin: Instant) -> anyhow::Result<()> {
    println!("{} ok", begin.elapsed().as_nanos());
    std::io::stdout().flush().context("stdout")
}

/// The arguments, all of them whole numbers above 0.
pub fn numbers<const N: usize>(usage: &str) -> anyhow::Result<[u64; N]> {
    let numbers: Option<Vec<u64>> = std::env::args().skip(1).map(|a| a.parse().ok().filter(|&n| n > 0)).collect();
    let numbers = numbers.and_then(|n| <[u64; N]>::try_from(n).ok());
    numbers.with_context(|| format!("usage: {usage}; every argument is a whole number above 0"))
}
