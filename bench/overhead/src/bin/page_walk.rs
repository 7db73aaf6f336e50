//! The straightforward monitor that the overhead benchmark compares with: `page_walk PID INTERVAL_MS`.
//!
//! Each interval it lets the kernel clear the accessed bit of every page (`clear_refs`), waits, and lets the kernel
//! walk every page again to count the accessed ones (`Referenced` in `smaps`), until the process ends or it is stopped.
#![forbid(unsafe_code)]

use anyhow::{Context, bail};
use std::fs;
use std::thread::sleep;
use std::time::Duration;

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [pid, interval_ms] = &args[..] else { bail!("usage: page_walk PID INTERVAL_MS") };
    let pid: u32 = pid.parse().context("PID")?;
    let interval = Duration::from_millis(interval_ms.parse().context("INTERVAL_MS")?);
    loop {
        if fs::write(format!("/proc/{pid}/clear_refs"), "1").is_err() {
            return Ok(());
        }
        sleep(interval);
        let Ok(smaps) = fs::read_to_string(format!("/proc/{pid}/smaps")) else { return Ok(()) };
        let kib: u64 = smaps
            .lines()
            .filter_map(|line| line.strip_prefix("Referenced:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok())
            .sum();
        println!("{kib}");
    }
}
