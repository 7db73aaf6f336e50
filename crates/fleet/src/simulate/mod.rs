//! `isotherm-fleet simulate`: the files of a made-up fleet, written by the node's own writer, so that every answer about
//! them has a truth to be compared with (`truth.json`).
//!
//! * [`class`]: classes of jobs; [`instance`]: what an instance's windows hold; [`host`]: what runs where; [`truth`]: sums.

mod class;
mod host;
mod instance;
mod truth;

use crate::options::Usage;
use crate::output;
use crate::progress::Progress;
use anyhow::{Context, bail};
use host::Host;
use isotherm_core::units::{UnitError, parse_time_ns};
use isotherm_record::parquet::files::HourFiles;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fs, io, thread};
use truth::Truth;

/// 2026-01-05 (a Monday) 00:00 UTC, s since 1970.
const BEGIN_S: i64 = 1_767_571_200;
/// In the folder while a fleet is written to it.
const PART: &str = "truth.json.part";
/// Sums of bytes must fit into 64 bits.
const MOST_ROWS: u64 = 4_000_000_000;

/// Write the Parquet files of a made-up fleet, and what they add up to
///
/// Jobs of four classes (web, batch, cache, idle) run in the groups of each host, with daily waves, starts, ends and
/// scans. The same seed makes the same rows. DIR/truth.json holds their sums.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Machines
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    hosts: u64,
    /// Hours that each was watched
    #[arg(long, value_name = "H", value_parser = clap::value_parser!(u64).range(1..=8784))]
    hours: u64,
    /// For all that is random
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Control groups of each machine
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    groups: u64,
    /// Length of a window: a part of an hour in whole seconds
    #[arg(long, value_name = "T", default_value = "5m", value_parser = window_s)]
    window: u64,
    /// New or empty folder
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

/// Why a time is no window's length.
#[derive(Debug, thiserror::Error)]
enum WindowError {
    #[error(transparent)]
    Time(#[from] UnitError),
    #[error("an hour must hold a whole number of windows of whole seconds, as of 1m or 5m")]
    Parts,
}

fn window_s(text: &str) -> Result<u64, WindowError> {
    let ns = parse_time_ns(text)?;
    let s = ns / 1_000_000_000;
    if ns % 1_000_000_000 != 0 || s == 0 || 3600 % s != 0 {
        return Err(WindowError::Parts);
    }
    Ok(s)
}

/// Writes the files.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let most = args.hosts * args.groups * args.hours * (3600 / args.window);
    if most > MOST_ROWS {
        let why = format!(
            "this makes {most} rows, more than the {MOST_ROWS} that sums are exact for; take fewer hosts or hours"
        );
        return Err(Usage(why).into());
    }
    make_empty(&args.out)?;
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let (next, progress) = (AtomicU64::new(0), Progress::new("hosts written", args.hosts));
    let mut truth = Truth::default();
    thread::scope(|scope| -> anyhow::Result<()> {
        let work = || -> anyhow::Result<Truth> {
            let mut truth = Truth::default();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= args.hosts {
                    return Ok(truth);
                }
                write_host(args, number, &mut truth)?;
                progress.add(1);
            }
        };
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            match worker.join() {
                Ok(part) => truth.add(&part?),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(())
    })?;
    progress.end();
    let path = args.out.join("truth.json");
    let text = serde_json::to_string_pretty(&truth)? + "\n";
    // It is there whole or not at all; without it the fleet is not complete.
    let part = args.out.join(PART);
    let written = fs::write(&part, text).and_then(|()| fs::rename(&part, &path));
    written.with_context(|| format!("cannot write {}", path.display()))?;
    output::tell(&format!("{} rows of {} hosts in {}", truth.rows, truth.hosts, args.out.display()));
    Ok(())
}

fn make_empty(folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
    let mut entries = fs::read_dir(folder).with_context(|| format!("cannot read the folder {}", folder.display()))?;
    if entries.next().is_some() {
        bail!("{} is not empty; give a new folder, so that no two fleets are mixed", folder.display());
    }
    // Two that have found it empty at the same time: one of them takes it.
    let taken = fs::File::create_new(folder.join(PART));
    if taken.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::AlreadyExists) {
        bail!(
            "another fleet is just being written into {}; give a new folder, so that no two are mixed",
            folder.display()
        );
    }
    taken.map(drop).with_context(|| format!("cannot write into the folder {}", folder.display()))
}

fn write_host(args: &Args, number: u64, truth: &mut Truth) -> anyhow::Result<()> {
    let mut host = Host::new(args.seed, number, args.groups);
    let folder = args.out.join(&host.origin.host);
    let mut files = HourFiles::new(&folder, host.origin.clone())?;
    for window in 0..args.hours * 3600 / args.window {
        let start_s = window * args.window;
        let start_us = (BEGIN_S + i64::try_from(start_s)?) * 1_000_000;
        let mut rows = host.rows(start_s as f64, args.window as f64);
        for row in &mut rows {
            row.window_start_us = start_us;
            truth.add_row(row);
        }
        truth.files += u64::from(files.write(start_us, rows)?.is_some());
    }
    truth.files += u64::from(files.finish()?.is_some());
    truth.hosts += 1;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_those_who_take_a_folder_at_once_one_gets_it() {
        let folder = tempfile::tempdir().unwrap();
        for n in 0..50 {
            let out = folder.path().join(n.to_string());
            let taken: Vec<bool> = thread::scope(|scope| {
                let all: Vec<_> = (0..2).map(|_| scope.spawn(|| make_empty(&out).is_ok())).collect();
                all.into_iter().map(|one| one.join().unwrap()).collect()
            });
            assert_eq!(taken.iter().filter(|taken| **taken).count(), 1);
        }
    }
}
