//! `isotherm-fleet tune`: which percentile and warm-up save most and still keep the limit, chosen on the first days and tried
//! on the last ones.

use super::grid::{Grid, WARMUPS};
use super::outcome::Outcome;
use super::replay::replay;
use super::split::split;
use super::{in_percent, percentile, rate, rules, seconds, two_digits};
use crate::engine::Engine;
use crate::input::judge::Inventory;
use crate::input::{self, location::Location};
use crate::options::{Resources, Usage};
use crate::output;
use crate::report::{percent, short_time, size};
use anyhow::bail;
use isotherm_core::units::parse_percent;
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::PathBuf;

/// Find the percentile and warm-up that save most memory and keep the limit
///
/// Replays a grid of policies as `what-if` does one. The best of those that keep the limit in the first part of the time is
/// tried in the rest; the regret is what the best one there would have saved more. Writes rules for `isotherm node -c`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// A folder with the files, or an object store, as for `report`
    #[arg(value_name = "PLACE")]
    place: String,
    /// Percentiles to try
    #[arg(long, value_name = "K,..", value_delimiter = ',', default_value = "50,70,80,90,95,98,99,99.9", value_parser = percentile)]
    percentiles: Vec<f64>,
    /// Warm-ups to try, six at most
    #[arg(long, value_name = "S,..", value_delimiter = ',', default_value = "0s,10m,20m,1h,2h,6h", value_parser = seconds)]
    warmups: Vec<u64>,
    /// Of the working set (accessed within 120 s), how much may come back a minute
    #[arg(long, value_name = "RATE", default_value = "0.2%/min", value_parser = rate)]
    rate: f64,
    /// In how many of the windows more may come back than that
    #[arg(long, value_name = "P", default_value = "2%", value_parser = parse_percent)]
    over: f64,
    /// How much of the windows the choice is tried on: the last days where there are at least two, else the last windows
    #[arg(long, value_name = "P", default_value = "33%", value_parser = parse_percent)]
    test: f64,
    /// Write a file of rules for `isotherm node -c`
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// A line of JSON for the choice and for each policy instead of the table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    resources: Resources,
}

/// A policy, and what it did in the first part of the time and in the rest.
#[derive(Debug, Clone, Copy)]
struct Tried {
    percentile: f64,
    warmup_s: u64,
    train: Outcome,
    test: Outcome,
}

/// What is chosen, and what would have been best afterwards.
#[derive(Debug, Clone, Copy)]
struct Choice {
    best: Tried,
    /// On the rest of the time; `None`: no policy kept the limit there.
    hindsight: Option<Tried>,
}

/// Replays, chooses, prints.
pub fn run(args: &Args) -> anyhow::Result<()> {
    if args.warmups.len() > WARMUPS {
        return Err(
            Usage(format!("{} warm-ups are too many; {WARMUPS} can be tried at once", args.warmups.len())).into()
        );
    }
    if !(args.test > 0.0 && args.test < 1.0) {
        return Err(Usage("--test is a part of the windows, more than 0 and less than 100 %".to_owned()).into());
    }
    if !(0.0..=1.0).contains(&args.over) {
        return Err(Usage("--over is a part of the windows, 100 % at most".to_owned()).into());
    }
    let mut warmups = args.warmups.clone();
    warmups.sort_unstable();
    warmups.dedup();
    let mut percentiles = args.percentiles.clone();
    percentiles.sort_unstable_by(f64::total_cmp);
    percentiles.dedup();
    let filled: [u64; WARMUPS] = std::array::from_fn(|i| warmups.get(i).or(warmups.last()).copied().unwrap_or(0));
    let (tried, inventory, split_s) = args.resources.runtime()?.block_on(async {
        let place = Location::parse(&args.place)?;
        let mut inventory = input::find_some(&place).await?;
        let split_s = split(&inventory.files, args.test)?;
        let grid = Grid { rate: args.rate, warmups_s: filled, percentiles: percentiles.clone(), split_s };
        let engine = Engine::new(place, args.resources.memory, args.resources.threads())?;
        let outcomes = replay(&engine, &mut inventory, &grid).await?;
        let mut tried = Vec::new();
        for (k, of_k) in percentiles.iter().zip(&outcomes.grid) {
            tried.extend(warmups.iter().zip(of_k).map(|(warmup_s, parts)| Tried {
                percentile: *k,
                warmup_s: *warmup_s,
                train: parts[0],
                test: parts[1],
            }));
        }
        anyhow::Ok((tried, inventory, split_s))
    })?;
    let choice = choose(&tried, args.over);
    if args.json {
        output::print_lines(&json_lines(args, &tried, choice.as_ref(), &inventory, split_s))?;
    } else {
        output::print(&text(args, &tried, choice.as_ref(), &inventory))?;
    }
    let Some(choice) = choice else { bail!(nothing_chosen(&tried, args.over)) };
    match &args.rules {
        Some(path) => {
            output::write_file(path, rules::toml(choice.best.percentile, choice.best.warmup_s, args.rate).as_bytes())
        }
        None => Ok(()),
    }
}

/// Why there is no choice, and what to do.
fn nothing_chosen(tried: &[Tried], over: f64) -> String {
    let judged = tried.iter().filter_map(|t| Some((t.train.broken_share()?, t)));
    let Some((_, t)) = judged.min_by(|a, b| a.0.total_cmp(&b.0)) else {
        return "no policy would have acted in the first part of the time: groups were not watched for long enough; \
                give windows of a longer time, or try shorter warm-ups (--warmups) and a shorter test (--test)"
            .to_owned();
    };
    format!(
        "no policy of the grid keeps the limit in {} of the windows; nearest comes percentile {} with a warm-up of {}, over it in {} \
         of {}: allow more (--over, --rate), try larger percentiles, or give windows of a longer time",
        percent(1.0 - over),
        in_percent(t.percentile),
        short_time(t.warmup_s.saturating_mul(1_000_000_000)),
        t.train.broken,
        t.train.windows
    )
}

/// Whether it keeps the limit in all but `over` of the windows; `None`: there is none that can be judged.
fn keeps(outcome: &Outcome, over: f64) -> Option<bool> {
    outcome.broken_share().map(|share| share <= over)
}

/// The policy that saves most in the first part among those that keep the limit there.
fn choose(tried: &[Tried], over: f64) -> Option<Choice> {
    let most = |of: fn(&Tried) -> &Outcome| {
        let kept = tried.iter().filter(move |t| keeps(of(t), over).unwrap_or(false));
        // Of equals the more careful one.
        kept.max_by(|a, b| of(a).saved.total_cmp(&of(b).saved).then(a.percentile.total_cmp(&b.percentile))).copied()
    };
    Some(Choice { best: most(|t| &t.train)?, hindsight: most(|t| &t.test) })
}

impl Choice {
    /// Of what the best policy of the rest of the time would have saved, what this one did not. Below zero where this one saved
    /// more, over the limit.
    fn regret(&self) -> Option<f64> {
        let best = self.hindsight?.test.saved;
        (best > 0.0).then(|| 1.0 - self.best.test.saved / best)
    }
}

fn json_of(outcome: &Outcome) -> Value {
    json!({"resident_bytes": outcome.resident.round(), "saved_bytes": outcome.saved.round(), "saved_share": outcome.saved_share(),
        "promoted_share_per_min": outcome.promoted_share(), "windows": outcome.windows, "windows_over_limit": outcome.broken,
        "over_limit_share": outcome.broken_share()})
}

fn json_lines(
    args: &Args,
    tried: &[Tried],
    choice: Option<&Choice>,
    inventory: &Inventory,
    split_s: u64,
) -> Vec<Value> {
    let line = |kind: &str, t: &Tried| json!({"kind": kind, "percentile": t.percentile, "warmup_s": t.warmup_s, "train": json_of(&t.train), "test": json_of(&t.test)});
    let mut all = Vec::new();
    if let Some(choice) = choice {
        let mut chosen = line("choice", &choice.best);
        chosen["rate_per_min"] = json!(args.rate);
        chosen["allowed_over"] = json!(args.over);
        chosen["split_s"] = json!(split_s);
        chosen["regret"] = json!(choice.regret());
        chosen["keeps_limit_in_test"] = json!(keeps(&choice.best.test, args.over));
        chosen["best_in_test"] =
            json!(choice.hindsight.map(|t| json!({"percentile": t.percentile, "warmup_s": t.warmup_s})));
        chosen["files_left_out"] = json!(inventory.left_out.len());
        all.push(chosen);
    }
    all.extend(tried.iter().map(|t| line("tried", t)));
    all
}

fn text(args: &Args, tried: &[Tried], choice: Option<&Choice>, inventory: &Inventory) -> String {
    let mut out = String::new();
    if !inventory.left_out.is_empty() {
        let _ = writeln!(out, "left out: {} files; `isotherm-fleet report` names them", inventory.left_out.len());
    }
    let _ = writeln!(out, "{:>10} {:>8}   {:^29}   {:^29}", "", "", "chosen on", "tried on");
    let _ = writeln!(
        out,
        "{:>10} {:>8}   {:>10} {:>8} {:>9}   {:>10} {:>8} {:>9}",
        "percentile", "warm-up", "saved", "", "over", "saved", "", "over"
    );
    for t in tried {
        let part = |o: &Outcome| {
            let over = o.broken_share().map_or_else(|| "-".to_owned(), two_digits);
            format!("{:>10} {:>8} {over:>9}", size(o.saved), percent(o.saved_share()))
        };
        let is_best = choice.is_some_and(|c| c.best.percentile == t.percentile && c.best.warmup_s == t.warmup_s);
        let mark = if is_best { " <" } else { "" };
        let warmup = short_time(t.warmup_s.saturating_mul(1_000_000_000));
        let _ = writeln!(
            out,
            "{:>10} {warmup:>8}   {}   {}{mark}",
            in_percent(t.percentile),
            part(&t.train),
            part(&t.test)
        );
    }
    out.push_str(
        "over: of the windows in which it acted, those in which more came back than allowed (-: none can be judged)\n",
    );
    if let Some(choice) = choice {
        let best = &choice.best;
        let _ = write!(
            out,
            "\nchosen: percentile {}, warm-up {}; ",
            in_percent(best.percentile),
            short_time(best.warmup_s.saturating_mul(1_000_000_000))
        );
        match best.test.broken_share() {
            Some(share) => drop(writeln!(
                out,
                "on the rest of the time it saves {} ({}), over the limit in {} of the windows (allowed: {})",
                size(best.test.saved),
                percent(best.test.saved_share()),
                two_digits(share),
                two_digits(args.over)
            )),
            None => out.push_str(
                "on the rest of the time it never acted where that can be judged, so that nothing tells whether it keeps the limit there\n",
            ),
        }
        match choice.regret() {
            Some(regret) => drop(writeln!(
                out,
                "regret: {} of what the best policy of that time would have saved",
                two_digits(regret)
            )),
            None => out.push_str("regret: not known, since no policy acted there and kept the limit\n"),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Tune {
        #[command(flatten)]
        args: Args,
    }

    fn tried(percentile: f64, train: (f64, u64), test: (f64, u64)) -> Tried {
        let outcome = |(saved, broken)| Outcome { resident: 100.0, saved, windows: 100, broken, ..Outcome::default() };
        Tried { percentile, warmup_s: 0, train: outcome(train), test: outcome(test) }
    }

    #[test]
    fn what_saves_most_within_the_limit_is_chosen_and_judged_by_the_rest_of_the_time() {
        let all =
            [tried(0.5, (40.0, 9), (50.0, 1)), tried(0.9, (30.0, 2), (27.0, 3)), tried(0.98, (20.0, 0), (30.0, 2))];
        let choice = choose(&all, 0.02).unwrap();
        assert_eq!((choice.best.percentile, choice.hindsight.unwrap().percentile), (0.9, 0.5));
        assert!((choice.regret().unwrap() - (1.0 - 27.0 / 50.0)).abs() < 1e-12);
        assert!(choose(&all[..1], 0.02).is_none(), "over the limit");
        let why = nothing_chosen(&all[..1], 0.02);
        assert!(why.contains("percentile 50 with a warm-up of 0s, over it in 9 of 100"), "{why}");
        let idle = Tried { train: Outcome::default(), ..all[0] };
        assert!(choose(&[idle], 0.02).is_none() && nothing_chosen(&[idle], 0.02).contains("--warmups"));
        let all = [tried(0.9, (30.0, 2), (27.0, 3))];
        assert_eq!(choose(&all, 0.02).unwrap().regret(), None, "nothing keeps the limit in the rest");
    }

    #[test]
    fn what_was_never_judged_in_the_rest_of_the_time_is_not_said_to_keep_the_limit() {
        let args = Tune::try_parse_from(["tune", "/windows"]).unwrap().args;
        let said = |test: Outcome| {
            let all = [Tried { test, ..tried(0.9, (30.0, 2), (27.0, 3)) }];
            let choice = choose(&all, args.over);
            let line = json_lines(&args, &all, choice.as_ref(), &Inventory::default(), 0).swap_remove(0);
            (line, text(&args, &all, choice.as_ref(), &Inventory::default()))
        };
        let (line, text) = said(Outcome { resident: 100.0, ..Outcome::default() });
        for value in [&line["keeps_limit_in_test"], &line["test"]["over_limit_share"], &line["regret"]] {
            assert_eq!(value, &Value::Null, "{line}");
        }
        assert!(text.contains("it never acted") && !text.contains("0.00 % of the windows"), "{text}");
        let (line, text) = said(Outcome { resident: 100.0, saved: 9.0, windows: 100, ..Outcome::default() });
        assert_eq!((&line["keeps_limit_in_test"], &line["test"]["over_limit_share"]), (&json!(true), &json!(0.0)));
        assert!(text.contains("over the limit in 0.00 % of the windows (allowed: 2.00 %)"), "{text}");
    }
}
