//! `sql/what_if.sql`, which engines of others run, against the replay in memory.

use super::grid::{Answer, Grid};
use super::replay::read;
use crate::engine::columns::{count, floats, ints, text, texts};
use crate::engine::{Engine, queries, rows_of};
use crate::input::{find_some, location::Location};
use clap::Parser;
use datafusion::arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
use datafusion::error::Result;
use datafusion::prelude::SessionContext;
use isotherm_record::parquet::files::HourFiles;
use isotherm_record::parquet::window::{GroupWindow, Origin};
use std::path::Path;
use std::sync::Arc;

#[derive(Parser)]
struct Simulate {
    #[command(flatten)]
    args: crate::simulate::Args,
}

#[test]
fn the_query_answers_what_the_replay_does() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("fleet");
    let words = "simulate --hosts 3 --hours 12 --seed 7 --groups 8 --out".split(' ');
    let made = Simulate::try_parse_from(words.chain([out.to_str().unwrap()])).unwrap();
    crate::simulate::run(&made.args).unwrap();
    let grid = Grid {
        rate: 0.002,
        warmups_s: [0, 300, 600, 1200, 3600, 14400],
        percentiles: vec![0.0, 0.5, 0.9, 0.98, 1.0],
        split_s: BEGIN_S as u64 + 8 * 3600,
    };
    let ours = same_answers(&out, &grid);
    assert!(ours.len() > 200 && ours.iter().any(|answer| answer.broken > 0 && answer.saved > 0), "{}", ours.len());
}

/// Windows of which it is not known how much was accessed tell nothing of the limit.
#[test]
fn a_window_whose_working_set_is_not_known_is_not_judged() {
    let folder = tempfile::tempdir().unwrap();
    let origin = Origin { host: "h".into(), boot_id: "b".into(), source: "refs".into(), ..Origin::default() };
    let mut files = HourFiles::new(folder.path(), origin).unwrap();
    // 10 bytes of 1000 may come back in 5 min.
    for (number, accessed, back) in [(0, Some(1000), 10), (1, Some(1000), 10), (2, None, 11), (3, Some(1000), 11)] {
        let window_start_us = (BEGIN_S + number * 300) * 1_000_000;
        files
            .write(
                window_start_us,
                vec![GroupWindow {
                    window_start_us,
                    window_s: 300,
                    cgroup: "/x".to_owned(),
                    resident_bytes: Some(4000),
                    unobservable_bytes: Some(0),
                    accessed_bytes: accessed,
                    cold_bytes: [Some(3000); 16],
                    promoted_bytes: [Some(back); 16],
                    ..GroupWindow::default()
                }],
            )
            .unwrap();
    }
    files.finish().unwrap();
    let grid = Grid { rate: 0.002, warmups_s: [0; 6], percentiles: vec![0.5], split_s: 0 };
    let answers = same_answers(folder.path(), &grid);
    let acted: Vec<_> = answers.iter().filter(|answer| answer.threshold.is_some()).collect();
    let [answer] = acted[..] else { panic!("{answers:?}") };
    assert_eq!((answer.threshold, answer.windows, answer.saved), (Some(7), 3, 9000));
    assert_eq!((answer.judged, answer.promoted, answer.accessed, answer.broken), (2, 21, 2000, 1));
}

/// 2026-01-05 00:00 UTC.
const BEGIN_S: i64 = 1_767_571_200;

/// What the replay answers about the windows of a place, which is what the query does.
fn same_answers(place: &Path, grid: &Grid) -> Vec<Answer> {
    let (mut ours, mut theirs) = tokio::runtime::Runtime::new().unwrap().block_on(async {
        let place = Location::parse(place.to_str().unwrap()).unwrap();
        let inventory = find_some(&place).await.unwrap();
        let paths: Vec<_> = inventory.files.iter().map(|file| file.path.clone()).collect();
        let session = Engine::new(place, 1 << 30, 2).unwrap().open(&paths).await.unwrap();
        let ours = read(&session).await.unwrap().replay(grid);
        register(&session, grid).unwrap();
        let mut theirs = Vec::new();
        for batch in rows_of(&session, queries::WHAT_IF).await.unwrap() {
            theirs.extend(answers_of(&batch).unwrap());
        }
        (ours, theirs)
    });
    for answers in [&mut ours, &mut theirs] {
        answers.sort_by(|a, b| {
            let key = |a: &Answer| (a.host.clone(), a.job.clone(), a.part, a.window_s, a.warmup, a.threshold);
            a.k.total_cmp(&b.k).then_with(|| key(a).cmp(&key(b)))
        });
    }
    assert_eq!(ours.len(), theirs.len());
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(ours, theirs);
    }
    ours
}

/// The tables `policy` and `percentiles`.
fn register(session: &SessionContext, grid: &Grid) -> Result<()> {
    let int = |n: u64| -> ArrayRef { Arc::new(Int64Array::from(vec![i64::try_from(n).unwrap_or(i64::MAX)])) };
    let rate: ArrayRef = Arc::new(Float64Array::from(vec![grid.rate]));
    let mut policy = vec![("rate".to_owned(), rate), ("split_s".to_owned(), int(grid.split_s))];
    policy.extend(grid.warmups_s.iter().enumerate().map(|(i, s)| (format!("warmup_{}", i + 1), int(*s))));
    session.register_batch("policy", RecordBatch::try_from_iter(policy)?)?;
    let k: ArrayRef = Arc::new(Float64Array::from(grid.percentiles.clone()));
    session.register_batch("percentiles", RecordBatch::try_from_iter([("k", k)])?)?;
    Ok(())
}

fn answers_of(batch: &RecordBatch) -> Result<Vec<Answer>> {
    let (k, host, job) = (floats(batch, "k")?, texts(batch, "host")?, texts(batch, "job")?);
    let names = ["part", "window_s", "warmup", "threshold", "windows", "resident_bytes", "possible_bytes"];
    let names = names.into_iter().chain(["saved_bytes", "promoted_bytes", "accessed_bytes", "broken", "judged"]);
    let numbers = names.map(|name| ints(batch, name)).collect::<Result<Vec<_>>>()?;
    let answer = |i: usize| {
        let known = |column: usize| count(&numbers[column], i);
        let number = |column: usize| known(column).unwrap_or(0);
        Answer {
            k: k.value(i),
            host: text(&host, i).unwrap_or_default().to_owned(),
            job: text(&job, i).unwrap_or_default().to_owned(),
            part: number(0) as usize,
            window_s: number(1),
            warmup: number(2) as usize,
            threshold: known(3).map(|threshold| threshold as usize),
            windows: number(4),
            resident: number(5),
            possible: number(6),
            saved: number(7),
            promoted: number(8),
            accessed: number(9),
            broken: number(10),
            judged: number(11),
        }
    };
    Ok((0..batch.num_rows()).map(answer).collect())
}
