//! Simulated programs, and what the search makes of them compared with the grid and with chance.
//!
//! They are made of groups of pages, each used again after a time of its own, and so have nothing in common with the
//! curves that the search believes in, except that they are monotone.

use super::curves::normal;
use super::{Point, Run, Search, Step, Wish};
use crate::tuning::figures::{Figures, Measured};
use crate::tuning::parameters::Parameters;
use crate::tuning::score;
use fastrand::Rng;

/// Pages that are used again after `reuse` seconds: always exactly, or on average.
#[derive(Debug, Clone, Copy)]
struct Group {
    share: f64,
    reuse: f64,
    exact: bool,
}

#[derive(Debug, Clone)]
struct Program {
    groups: Vec<Group>,
    /// Runtime that is lost with each use of all memory that has gone, seconds of a second.
    price: f64,
    /// What the scheme costs, whatever it does.
    floor: f64,
    /// Of one run.
    noise: Figures,
    /// How much slower the machine gets over ten runs.
    drift: f64,
}

impl Program {
    fn any(rng: &mut Rng) -> Self {
        let log_uniform = |rng: &mut Rng, low: f64, high: f64| low * (high / low).powf(rng.f64());
        let mut groups: Vec<Group> = (0..rng.usize(2..7))
            .map(|_| Group { share: rng.f64(), reuse: log_uniform(rng, 0.05, 300.0), exact: rng.bool() })
            .collect();
        let all: f64 = groups.iter().map(|g| g.share).sum();
        groups.iter_mut().for_each(|g| g.share /= all);
        Self {
            groups,
            price: log_uniform(rng, 0.003, 3.0),
            floor: 0.02 * rng.f64() * rng.f64(),
            noise: Figures { seconds: log_uniform(rng, 0.003, 0.05), memory: log_uniform(rng, 0.001, 0.01) },
            drift: 0.1 * (rng.f64() - 0.5),
        }
    }

    /// True shares of the command alone.
    fn truth(&self, age: f64) -> (f64, f64) {
        let (mut lost, mut memory) = (0.0, 0.0);
        for g in &self.groups {
            let gone = if g.exact { f64::from(g.reuse > age) } else { (-age / g.reuse).exp() };
            let there = if g.exact { (age / g.reuse).min(1.0) } else { 1.0 - gone };
            memory += g.share * there;
            lost += g.share * gone / g.reuse;
        }
        (1.0 + self.floor + self.price * lost, memory)
    }

    /// A run as somebody would measure it.
    fn measure(&self, age: Option<f64>, turn: usize, rng: &mut Rng) -> Figures {
        let (runtime, memory) = age.map_or((1.0, 1.0), |age| self.truth(age));
        let disturbed = if rng.f64() < 0.03 { 1.15 } else { 1.0 };
        let machine = 1.0 + self.drift * turn as f64 / 10.0;
        Figures {
            seconds: 20.0 * runtime * machine * disturbed * (1.0 + self.noise.seconds * normal(rng)),
            memory: 1e9 * memory * (1.0 + self.noise.memory * normal(rng)),
        }
    }

    /// What a choice is worth in truth.
    fn worth(&self, wish: Wish, age: Option<f64>) -> f64 {
        let Some(age) = age else { return 0.0 };
        let (runtime, memory) = self.truth(age);
        wish.kept(runtime) * wish.score(runtime, memory)
    }
}

const WISH: Wish = Wish { max_slowdown: 0.05, runtime_weight: 0.0 };

/// What the grid tries: each age twice, because it has two rates, which pages are not chosen by.
const GRID: [f64; 10] = [1.25, 1.25, 2.5, 2.5, 5.0, 5.0, 10.0, 10.0, 20.0, 20.0];

/// Ages from an eighth of 5 s to eight times of it.
fn ages() -> Vec<f64> {
    (-6..=6).map(|n| 5.0 * 2f64.powf(f64::from(n) / 2.0)).collect()
}

fn search() -> Search {
    let points = ages().iter().map(|age| Point { log_age: age.log2(), rate: 0.0 }).collect();
    Search::new(points, 6, WISH, true)
}

/// All runs of a search.
fn searched(search: &Search, program: &Program, runs: usize, rng: &mut Rng) -> Vec<Run> {
    let mut done = Vec::new();
    loop {
        let point = match search.next(&done, runs, &[]) {
            Step::Alone => None,
            Step::Try(point) => Some(point),
            Step::Done => return done,
        };
        done.push(Run { point, figures: program.measure(point.map(|p| ages()[p]), done.len(), rng) });
    }
}

fn chosen_by_search(search: &Search, program: &Program, runs: usize, rng: &mut Rng) -> Option<f64> {
    let done = searched(search, program, runs, rng);
    search.best(&done, &[]).map(|point| ages()[point])
}

/// The best of rounds, each of which begins with the command alone, as without a search.
fn chosen_by_rounds(program: &Program, ages: &[f64], rounds: usize, rng: &mut Rng) -> Option<f64> {
    let (mut alone, mut with, mut turn) = (Vec::new(), vec![Vec::new(); ages.len()], 0);
    let mut run = |age| {
        turn += 1;
        let f = program.measure(age, turn - 1, rng);
        Measured { seconds: f.seconds, memory: f.memory, applied: Some(1), idle: None }
    };
    for _ in 0..rounds {
        alone.push(run(None));
        with.iter_mut().zip(ages).for_each(|(all, &age)| all.push(run(Some(age))));
    }
    let scored: Vec<_> = (ages.iter().zip(&with).enumerate())
        .filter_map(|(n, (_, with))| {
            score::score(Parameters { min_age_us: n as u64, rate_bp: 0, confirm_us: 0 }, &alone, with)
        })
        .collect();
    score::best(&scored, WISH).map(|s| ages[s.parameters.min_age_us as usize])
}

/// Mean worth over many programs of what the search, the grid and chance choose, and of the best that there is.
fn compared(programs: u64) -> [f64; 4] {
    let search = search();
    let mut sums = [0.0; 4];
    for seed in 0..programs {
        let program = Program::any(&mut Rng::with_seed(seed));
        let rng = &mut Rng::with_seed(1000 + seed);
        let worth = |age| program.worth(WISH, age);
        let mut some = ages();
        rng.shuffle(&mut some);
        sums[0] += worth(chosen_by_search(&search, &program, 10, rng));
        sums[1] += worth(chosen_by_rounds(&program, &GRID, 3, rng));
        sums[2] += worth(chosen_by_rounds(&program, &some[..9], 1, rng));
        sums[3] += ages().into_iter().map(|age| worth(Some(age))).fold(0.0, f64::max);
    }
    sums.map(|sum| sum / programs as f64)
}

#[test]
fn ten_runs_find_what_is_worth_more_than_what_33_of_the_grid_or_ten_by_chance_find() {
    let [search, grid, chance, possible] = compared(200);
    assert!(search > 1.03 * grid, "search {search:.3}, grid {grid:.3}");
    assert!(search > chance, "search {search:.3}, chance {chance:.3}");
    assert!(search > 0.9 * possible, "search {search:.3}, possible {possible:.3}");
}

/// A part of the memory is used all the time, a part every `reuse` seconds, a part seldom; nothing disturbs.
fn plain(reuse: f64, price: f64) -> Program {
    let often = Group { share: 0.3, reuse: 0.01, exact: true };
    let seldom = Group { share: 0.4, reuse: 100.0, exact: false };
    let noise = Figures { seconds: 0.01, memory: 0.002 };
    Program { groups: vec![often, Group { reuse, ..often }, seldom], price, floor: 0.0, noise, drift: 0.0 }
}

/// What is chosen for a program by chances of several kinds.
fn chosen(program: &Program) -> Vec<Option<f64>> {
    let search = search();
    (0..8).map(|seed| chosen_by_search(&search, program, 10, &mut Rng::with_seed(seed))).collect()
}

#[test]
fn what_never_slows_down_gets_the_shortest_age_that_saves_more() {
    for age in chosen(&plain(60.0, 0.0)) {
        // Below 3 s less than 2 % are left to save.
        assert!(age.is_some_and(|age| age < 3.0), "{age:?}");
    }
}

#[test]
fn nothing_is_chosen_for_what_is_always_too_slow() {
    let mut program = plain(1000.0, 0.0);
    program.floor = 0.3;
    assert_eq!(chosen(&program), [None; 8]);
}

#[test]
fn a_cliff_is_found_from_either_side() {
    // Below 4 s the command takes 30 % longer, six times the limit.
    let program = plain(4.0, 4.0);
    let all = chosen(&program);
    let possible = ages().into_iter().map(|age| program.worth(WISH, Some(age))).fold(0.0, f64::max);
    let worth: f64 = all.iter().map(|age| program.worth(WISH, *age)).sum();
    assert!(all.iter().all(|age| age.is_some_and(|age| age >= 4.0)), "{all:?}");
    assert!(worth / 8.0 > 0.95 * possible, "{all:?}");
}

#[test]
fn a_first_run_that_something_disturbed_misleads_nobody() {
    let (search, program) = (search(), plain(4.0, 4.0));
    for seed in 0..8 {
        let mut rng = Rng::with_seed(seed);
        let mut done = Vec::new();
        while let step @ (Step::Alone | Step::Try(_)) = search.next(&done, 10, &[]) {
            let point = if let Step::Try(point) = step { Some(point) } else { None };
            let mut figures = program.measure(point.map(|p| ages()[p]), done.len(), &mut rng);
            figures.seconds *= if done.is_empty() { 1.4 } else { 1.0 };
            done.push(Run { point, figures });
        }
        let age = search.best(&done, &[]).map(|point| ages()[point]);
        assert!(age.is_some_and(|age| age >= 4.0), "{age:?}");
    }
}

#[test]
fn noise_above_the_limit_leaves_more_than_chance_does() {
    let (search, mut program) = (search(), plain(10.0, 4.0));
    program.noise.seconds = 0.1;
    let (mut searched, mut chance) = (0.0, 0.0);
    for seed in 0..40 {
        let rng = &mut Rng::with_seed(seed);
        searched += program.worth(WISH, chosen_by_search(&search, &program, 10, rng));
        chance += program.worth(WISH, chosen_by_rounds(&program, &ages()[..9], 1, rng));
    }
    assert!(searched > 2.0 * chance, "search {searched}, chance {chance}");
}

#[test]
fn earlier_runs_make_few_do() {
    let (program, search) = (plain(4.0, 4.0), search());
    let earlier = [searched(&search, &program, 10, &mut Rng::with_seed(1))];
    let mut done = Vec::new();
    let mut rng = Rng::with_seed(2);
    while let step @ (Step::Alone | Step::Try(_)) = search.next(&done, 3, &earlier) {
        let point = if let Step::Try(point) = step { Some(point) } else { None };
        assert!(point.is_none_or(|p| ages()[p] > 1.0), "what is known to be too short is not tried again");
        done.push(Run { point, figures: program.measure(point.map(|p| ages()[p]), done.len(), &mut rng) });
    }
    assert_eq!(done.len(), 3);
    let best = search.best(&done, &earlier).map(|p| ages()[p]);
    assert!(best.is_some_and(|age| (4.0..8.0).contains(&age)), "{best:?}");
}

#[test]
fn the_score_may_ask_for_runtime_too() {
    // Below 30 s the command takes 10 % longer, and a third of the memory is saved.
    let program = plain(30.0, 8.0);
    let points = || ages().iter().map(|age| Point { log_age: age.log2(), rate: 0.0 }).collect();
    let with = |runtime_weight| {
        let search = Search::new(points(), 6, Wish { max_slowdown: 0.5, runtime_weight }, true);
        chosen_by_search(&search, &program, 10, &mut Rng::with_seed(5))
    };
    assert!(with(0.0).unwrap() < 5.0);
    assert!(with(0.95).unwrap() > 20.0);
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(12))]
    #[test]
    fn whatever_is_measured_the_runs_are_counted_and_the_best_was_tried(
        figures in proptest::collection::vec((1e-6..1e6f64, 1.0..1e15f64), 12),
        runs in 2..12usize,
        max_slowdown in 0.0..3.0f64,
        takes: bool,
    ) {
        let points = (0..6).map(|n| Point { log_age: f64::from(n), rate: f64::from(n % 2) }).collect();
        let search = Search::new(points, 2, Wish { max_slowdown, runtime_weight: 0.5 }, takes);
        let mut done: Vec<Run> = Vec::new();
        loop {
            let step = search.next(&done, runs, &[]);
            proptest::prop_assert_eq!(step, search.next(&done, runs, &[]), "the runs decide, not chance");
            let point = match step {
                Step::Alone => None,
                Step::Try(point) => Some(point),
                Step::Done => break,
            };
            let (seconds, memory) = figures[done.len()];
            done.push(Run { point, figures: Figures { seconds, memory } });
        }
        proptest::prop_assert_eq!(done.len(), runs);
        proptest::prop_assert!(done[0].point.is_none() && done[1].point == Some(2));
        let best = search.best(&done, &[]);
        proptest::prop_assert!(best.is_none() || done.iter().any(|r| r.point == best));
        proptest::prop_assert!(search.beliefs(&done, &[]).iter().all(|b| b.value.is_finite() && b.runtime.is_finite()));
    }
}
