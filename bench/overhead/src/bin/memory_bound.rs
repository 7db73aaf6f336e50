//! A target for the overhead benchmark: a fixed amount of memory-bound work that times itself.
//!
//! `memory_bound SIZE_MIB HOT_MIB HOT_PERCENT ACCESSES`: fills an arena, prints `ready`, waits for a line on stdin,
//! does ACCESSES random read-modify-writes of 8 bytes (HOT_PERCENT of them in the first HOT_MIB, the rest all over the
//! arena), each depending on the one before, so that memory latency is all that counts; then prints `ELAPSED_NS
//! MAJOR_FAULTS`.
#![forbid(unsafe_code)]

use anyhow::{Context, bail};
use std::hint::black_box;
use std::io::{BufRead, Write};
use std::time::Instant;

const WORDS_PER_MIB: u64 = (1 << 20) / 8;

fn main() -> anyhow::Result<()> {
    let args = std::env::args().skip(1).map(|a| a.parse::<u64>()).collect::<Result<Vec<_>, _>>();
    let args = args.context("every argument is a whole number")?;
    let [size_mib, hot_mib, hot_percent, accesses] = args[..] else {
        bail!("usage: memory_bound SIZE_MIB HOT_MIB HOT_PERCENT ACCESSES");
    };
    if hot_mib == 0 || hot_mib > size_mib || hot_percent > 100 {
        bail!("HOT_MIB must be between 1 and SIZE_MIB, HOT_PERCENT between 0 and 100");
    }
    // Ones, not zeros: zeros would be left to the kernel's zero page.
    let mut arena = black_box(vec![1u64; (size_mib * WORDS_PER_MIB) as usize]);

    println!("ready");
    std::io::stdout().flush()?;
    std::io::stdin().lock().read_line(&mut String::new())?;

    let faults = major_faults()?;
    let begin = Instant::now();
    work(&mut arena, hot_mib * WORDS_PER_MIB, hot_percent, accesses);
    let elapsed = begin.elapsed().as_nanos();
    black_box(&arena);
    println!("{elapsed} {}", major_faults()? - faults);
    Ok(())
}

fn work(arena: &mut [u64], hot_words: u64, hot_percent: u64, accesses: u64) {
    let words = arena.len() as u64;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..accesses {
        // xorshift64 (Marsaglia 2003). Low bits choose the area and high bits the word, so that one does not tell the
        // other.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let bound = if (state >> 8 & 0xffff) % 100 < hot_percent { hot_words } else { words };
        let index = (u128::from(state) * u128::from(bound)) >> 64;
        let word = &mut arena[index as usize];
        *word = word.wrapping_add(1);
        state ^= *word;
        state |= 1;
    }
}

/// Page faults of this process that had to read from storage or swap: field 12 of /proc/self/stat.
fn major_faults() -> anyhow::Result<u64> {
    let stat = std::fs::read_to_string("/proc/self/stat").context("/proc/self/stat")?;
    let after_name = stat.rsplit_once(") ").context("/proc/self/stat has no name")?.1;
    after_name.split(' ').nth(9).context("/proc/self/stat is too short")?.parse().context("major faults")
}
