//! `isotherm-fleet what-if`: what one policy would have saved, and what would have come back.

use super::grid::{Grid, WARMUPS};
use super::outcome::{Outcome, Outcomes};
use super::replay::replay;
use super::{in_percent, percentile, rate, seconds, two_digits};
use crate::engine::Engine;
use crate::input::judge::Inventory;
use crate::input::{self, location::Location};
use crate::options::Resources;
use crate::output;
use crate::report::{fit, percent, short_time, size};
use isotherm_core::history::times::IDLE_NS;
use isotherm_core::printable::printable;
use serde_json::{Value, json};
use std::fmt::Write;

/// Tell what paging out cold memory would have saved, and how much would have come back
///
/// Replays the windows of each control group. In each window, the smallest idle time is found at which no more than RATE of
/// the group's working set came back a minute. The threshold in use is the K-th percentile of these over the group's past,
/// or the last one where that was larger; a group that has not been seen for S is left alone.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// A folder with the files, or an object store, as for `report`
    #[arg(value_name = "PLACE")]
    place: String,
    /// Of a group's past best thresholds, which one is used: 50 is bold, 98 careful
    #[arg(long, value_name = "K", default_value = "98", value_parser = percentile)]
    percentile: f64,
    /// For how long a new group is left alone
    #[arg(long, value_name = "S", default_value = "20m", value_parser = seconds)]
    warmup: u64,
    /// Of the working set (accessed within 120 s), how much may come back a minute
    #[arg(long, value_name = "RATE", default_value = "0.2%/min", value_parser = rate)]
    rate: f64,
    /// A line of JSON for the whole and for each job instead of the table
    #[arg(long)]
    json: bool,
    /// How many jobs are listed
    #[arg(long, value_name = "N", default_value_t = 20)]
    top: usize,
    #[command(flatten)]
    resources: Resources,
}

/// Prints what would have been.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let grid =
        Grid { rate: args.rate, warmups_s: [args.warmup; WARMUPS], percentiles: vec![args.percentile], split_s: 0 };
    let (outcomes, inventory) = args.resources.runtime()?.block_on(async {
        let place = Location::parse(&args.place)?;
        let mut inventory = input::find_some(&place).await?;
        let engine = Engine::new(place, args.resources.memory, args.resources.threads())?;
        anyhow::Ok((replay(&engine, &mut inventory, &grid).await?, inventory))
    })?;
    let total = outcomes.grid[0][0][1];
    let mut jobs: Vec<(&str, &Outcome)> = outcomes.jobs.iter().map(|(name, job)| (&**name, job)).collect();
    jobs.sort_by(|a, b| b.1.saved.total_cmp(&a.1.saved).then_with(|| a.0.cmp(b.0)));
    if args.json {
        let mut lines = vec![json_total(args, &total, &outcomes, &inventory)];
        lines.extend(jobs.iter().map(|(name, job)| json_of("job", name, args.rate, job)));
        output::print_lines(&lines)
    } else {
        output::print(&text(args, &total, &outcomes, &inventory, &jobs))
    }
}

/// Whether more came back over the whole time than allowed.
fn is_over(job: &Outcome, rate: f64) -> bool {
    job.promoted_share().is_some_and(|share| share > rate)
}

fn json_of(kind: &str, name: &str, rate: f64, outcome: &Outcome) -> Value {
    json!({"kind": kind, "name": name, "resident_bytes": outcome.resident.round(), "idle_2m_bytes": outcome.possible.round(),
        "saved_bytes": outcome.saved.round(), "saved_share": outcome.saved_share(),
        "promoted_share_per_min": outcome.promoted_share(), "windows": outcome.windows, "windows_over_limit": outcome.broken,
        "over_limit": is_over(outcome, rate)})
}

fn json_total(args: &Args, total: &Outcome, outcomes: &Outcomes, inventory: &Inventory) -> Value {
    let mut line = json_of("total", "", args.rate, total);
    let thresholds: Vec<Value> =
        (7..=16).map(|i| json!({"for_ns": IDLE_NS.get(i), "group_s": outcomes.thresholds_s[i]})).collect();
    line["percentile"] = json!(args.percentile);
    line["warmup_s"] = json!(args.warmup);
    line["rate_per_min"] = json!(args.rate);
    line["hosts"] = json!(outcomes.hosts);
    line["jobs"] = json!(outcomes.jobs.len());
    line["jobs_over_limit"] = json!(outcomes.jobs.values().filter(|job| is_over(job, args.rate)).count());
    line["thresholds"] = json!(thresholds);
    line["not_known_s"] = json!(outcomes.unknown_s);
    line["files_left_out"] = json!(inventory.left_out.len());
    line["rows_clock_set_back"] = json!(outcomes.set_back.values().sum::<u64>());
    line
}

fn text(args: &Args, total: &Outcome, outcomes: &Outcomes, inventory: &Inventory, jobs: &[(&str, &Outcome)]) -> String {
    let mut out = String::new();
    let (k, rate) = (in_percent(args.percentile), in_percent(args.rate));
    let _ = writeln!(
        out,
        "percentile {k}, warm-up {}, at most {rate} % of the working set a minute; {} hosts, {} jobs",
        short_time(args.warmup.saturating_mul(1_000_000_000)),
        outcomes.hosts,
        outcomes.jobs.len()
    );
    if !inventory.left_out.is_empty() {
        let _ = writeln!(out, "left out: {} files; `isotherm-fleet report` names them", inventory.left_out.len());
    }
    let _ = writeln!(
        out,
        "\nresident         {:>10}  on average over the time that each host was watched",
        size(total.resident)
    );
    let _ =
        writeln!(out, "idle for 2m      {:>10}  {:>6}", size(total.possible), percent(total.possible / total.resident));
    let _ = writeln!(out, "saved            {:>10}  {:>6}", size(total.saved), percent(total.saved_share()));
    match total.promoted_share() {
        Some(share) => {
            let _ = writeln!(out, "came back        {:>9.3} %  of the working set a minute", share * 100.0);
        }
        None => out.push_str("came back        never acted: no group was watched for long enough\n"),
    }
    let over = outcomes.jobs.values().filter(|job| is_over(job, args.rate)).count();
    let share = total.broken_share().map_or_else(|| "-".to_owned(), two_digits);
    let _ = writeln!(
        out,
        "over the limit   {share:>11}  of the windows in which it acted ({} of {}); {over} jobs over all their time",
        total.broken, total.windows
    );
    let all_s: u64 = outcomes.thresholds_s.iter().sum::<u64>() + outcomes.unknown_s;
    let share = |s: u64| percent(s as f64 / all_s.max(1) as f64);
    out.push_str("\nthreshold in use, of the time of all groups\n");
    for (i, s) in outcomes.thresholds_s.iter().enumerate().filter(|(_, s)| **s > 0) {
        let name = IDLE_NS.get(i).map_or_else(|| "none".to_owned(), |ns| short_time(*ns));
        let _ = writeln!(out, "{name:>10} {:>8}", share(*s));
    }
    let _ =
        writeln!(out, "{:>10} {:>8}  warm-up, or not watched for long enough", "left alone", share(outcomes.unknown_s));
    let _ = writeln!(out, "\n{:<34} {:>10} {:>10} {:>8} {:>12}", "job", "resident", "saved", "", "back a min");
    for (name, job) in jobs.iter().take(args.top) {
        let back = job.promoted_share().map_or_else(|| "-".to_owned(), |share| format!("{:.3} %", share * 100.0));
        let mark = if is_over(job, args.rate) { " over" } else { "" };
        let (resident, saved) = (size(job.resident), size(job.saved));
        let name = fit(&printable(name));
        let _ =
            writeln!(out, "{name:<34} {resident:>10} {saved:>10} {:>8} {back:>12}{mark}", percent(job.saved_share()));
    }
    if jobs.len() > args.top {
        let _ = writeln!(out, "(and {} more; --top N shows N, --json all)", jobs.len() - args.top);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use isotherm_core::scheme::threshold::ThresholdPolicy;

    #[derive(Debug, Parser)]
    struct WhatIf {
        #[command(flatten)]
        args: Args,
    }

    /// What is asked about without options is what a node does without options.
    #[test]
    fn defaults_are_those_of_a_node() {
        let asked = WhatIf::try_parse_from(["what-if", "/windows"]).unwrap().args;
        let policy = ThresholdPolicy { rate: asked.rate, percentile: asked.percentile, warmup_s: asked.warmup };
        assert_eq!(policy, ThresholdPolicy::default());
    }
}
