//! The patterns that have a name.

use super::members::Members;
use super::{Area, Order, Stage, Workload, WorkloadError};
use isotherm_core::addr::{AddrRange, PAGE_SIZE};
use isotherm_core::units::{format_size, format_time};

/// What all named patterns take; each uses what concerns it.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameters {
    /// Bytes of the arena, rounded down to whole pages.
    pub size: u64,
    /// Hot share of the arena, above 0 and at most 1. `None`: 0.1, for `alternate` 0.5 (two areas fill the arena), for
    /// `random` and `every` 0.02.
    pub hot: Option<f64>,
    /// Share of the touches that go to the cold rest, 0 to below 1 (`hotspot`), or to all memory (`random`, `every`).
    pub background: f64,
    /// Zipf exponent, 0 to 10.
    pub theta: f64,
    /// Whether `zipf`'s popular pages are spread over the arena.
    pub scattered: bool,
    /// Time between changes, ns: steps of `stairs` (`None`: 5 s), turns of `alternate` (`None`: 2 s).
    pub period_ns: Option<u64>,
    /// Seed of positions and draws.
    pub seed: u64,
}

impl Parameters {
    /// Defaults for an arena of `size` bytes.
    pub const fn new(size: u64) -> Self {
        Self { size, hot: None, background: 0.0, theta: 0.99, scattered: false, period_ns: None, seed: 0 }
    }

    fn check(&self) -> Result<(), WorkloadError> {
        let bad = |what, why: String| Err(WorkloadError::BadParameter { what, why });
        if self.size < PAGE_SIZE {
            return Err(WorkloadError::NoPages);
        }
        if self.size > MAX_SIZE {
            return bad(
                "--size",
                format!(
                    "{} is more than an address space; give at most {}",
                    format_size(self.size),
                    format_size(MAX_SIZE)
                ),
            );
        }
        if let Some(hot) = self.hot
            && !(hot > 0.0 && hot <= 1.0)
        {
            return bad("--hot", format!("{hot} is no part of the arena; give more than 0 and at most 1 (100%)"));
        }
        if !(0.0..1.0).contains(&self.background) {
            return bad("--background", format!("{} must be at least 0 and below 1 (100%)", self.background));
        }
        if !(0.0..=10.0).contains(&self.theta) {
            return bad("--theta", format!("{} must lie between 0 and 10", self.theta));
        }
        if let Some(period) = self.period_ns
            && !(1_000_000..=FOREVER_NS).contains(&period)
        {
            return bad(
                "--period",
                format!("{} must lie between 1ms and {}", format_time(period), format_time(FOREVER_NS)),
            );
        }
        Ok(())
    }

    fn hot_bytes(&self, default: f64) -> u64 {
        let pages = self.size / PAGE_SIZE;
        let hot = (pages as f64 * self.hot.unwrap_or(default)).round() as u64;
        hot.clamp(1, pages) * PAGE_SIZE
    }

    fn arena(&self) -> u64 {
        self.size - self.size % PAGE_SIZE
    }
}

/// Largest arena: half of a 4-level address space, 64 TiB.
pub(crate) const MAX_SIZE: u64 = 64 << 40;
/// Stages that never end last this long: 100 years.
const FOREVER_NS: u64 = 100 * 365 * 86_400 * 1_000_000_000;

/// A pattern with a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// One hot area somewhere in the middle, the rest cold.
    Hotspot,
    /// The hot area walks through the arena, by its own size each period, and starts over at the end.
    Stairs,
    /// Two areas of equal size in turn.
    Alternate,
    /// Zipf-distributed pages.
    Zipf,
    /// The whole arena in address order, over and over.
    Scan,
    /// Single pages, one at a random place in each of as many runs of memory, always the same.
    Random,
    Every,
    Idle,
}

impl Pattern {
    pub const ALL: [Self; 8] =
        [Self::Hotspot, Self::Stairs, Self::Alternate, Self::Zipf, Self::Scan, Self::Random, Self::Every, Self::Idle];

    /// The name that the command line takes.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hotspot => "hotspot",
            Self::Stairs => "stairs",
            Self::Alternate => "alternate",
            Self::Zipf => "zipf",
            Self::Scan => "scan",
            Self::Random => "random",
            Self::Every => "every",
            Self::Idle => "idle",
        }
    }

    /// The workload of this pattern with `parameters`.
    pub fn build(self, parameters: &Parameters) -> Result<Workload, WorkloadError> {
        parameters.check()?;
        let stages = match self {
            Self::Hotspot => vec![hotspot(parameters)],
            Self::Stairs => stairs(parameters)?,
            Self::Alternate => alternate(parameters)?,
            Self::Zipf => {
                let order = Order::Zipf { theta: parameters.theta, scattered: parameters.scattered };
                vec![forever("zipf", vec![Area::new(AddrRange::new(0, parameters.arena()), 1.0, order)])]
            }
            Self::Scan => {
                vec![forever("scan", vec![Area::new(AddrRange::new(0, parameters.arena()), 1.0, Order::Sequential)])]
            }
            Self::Random => {
                let count = parameters.hot_bytes(0.02) / PAGE_SIZE;
                vec![scattered("random", parameters, Members::Random { count, seed: parameters.seed })]
            }
            Self::Every => {
                let nth = (1.0 / parameters.hot.unwrap_or(0.02)).round().max(1.0) as u64;
                vec![scattered("every", parameters, Members::Every { nth })]
            }
            Self::Idle => vec![forever("idle", Vec::new())],
        };
        Workload::new(self.name(), parameters.size, parameters.seed, stages)
    }
}

fn forever(name: &str, areas: Vec<Area>) -> Stage {
    Stage { name: name.into(), duration_ns: FOREVER_NS, areas }
}

fn scattered(name: &str, p: &Parameters, members: Members) -> Stage {
    let arena = AddrRange::new(0, p.arena());
    let mut areas = vec![Area::sparse(arena, 1.0 - p.background, Order::Scattered, members)];
    if p.background > 0.0 {
        areas.push(Area::new(arena, p.background, Order::Scattered));
    }
    forever(name, areas)
}

fn hotspot(p: &Parameters) -> Stage {
    let (arena, hot) = (p.arena(), p.hot_bytes(0.1));
    let mut rng = fastrand::Rng::with_seed(p.seed ^ 0x686f_7473_706f_7400);
    // The middle three quarters, as far as the hot area leaves room: at the very edge a monitor would find one border
    // for free.
    let room = (arena - hot) / PAGE_SIZE;
    let (low, high) = (room / 8, room - room / 8);
    let start = rng.u64(low..=high) * PAGE_SIZE;
    let hot = AddrRange::new(start, start + hot);
    let mut areas = vec![Area::new(hot, 1.0 - p.background, Order::Scattered)];
    if p.background > 0.0 {
        let rest = [AddrRange::new(0, hot.start), AddrRange::new(hot.end, arena)];
        let cold = (arena - hot.len()).max(1) as f64;
        areas.extend(
            rest.into_iter()
                .filter(|r| !r.is_empty())
                .map(|r| Area::new(r, p.background * r.len() as f64 / cold, Order::Scattered)),
        );
    }
    forever("hotspot", areas)
}

fn stairs(p: &Parameters) -> Result<Vec<Stage>, WorkloadError> {
    let (arena, hot) = (p.arena(), p.hot_bytes(0.1));
    let steps = arena.div_ceil(hot);
    if steps > 1_000_000 {
        return Err(WorkloadError::BadParameter {
            what: "--hot",
            why: format!("{} steps of {} are too many; give a larger share", steps, format_size(hot)),
        });
    }
    let duration_ns = p.period_ns.unwrap_or(5_000_000_000);
    Ok((0..steps)
        .map(|i| {
            let range = AddrRange::new(i * hot, ((i + 1) * hot).min(arena));
            Stage { name: format!("step {i}"), duration_ns, areas: vec![Area::new(range, 1.0, Order::Scattered)] }
        })
        .collect())
}

fn alternate(p: &Parameters) -> Result<Vec<Stage>, WorkloadError> {
    let (arena, hot) = (p.arena(), p.hot_bytes(0.5));
    // Half a page more than half is what rounding may ask for.
    if hot > arena / 2 + PAGE_SIZE {
        return Err(WorkloadError::BadParameter {
            what: "--hot",
            why: "two areas of more than half of the arena do not fit; give at most 0.5 (50%)".into(),
        });
    }
    let hot = hot.min(arena / 2 / PAGE_SIZE * PAGE_SIZE);
    if hot == 0 {
        return Err(WorkloadError::BadParameter { what: "--size", why: "two areas need at least 8K".into() });
    }
    let duration_ns = p.period_ns.unwrap_or(2_000_000_000);
    Ok([("first", AddrRange::new(0, hot)), ("second", AddrRange::new(arena - hot, arena))]
        .map(|(name, range)| Stage {
            name: name.into(),
            duration_ns,
            areas: vec![Area::new(range, 1.0, Order::Scattered)],
        })
        .into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_pattern_fits_its_arena(size in PAGE_SIZE * 2..(1u64 << 43), hot in 0.001f64..0.5, seed: u64, background in 0.0f64..0.9) {
            for pattern in Pattern::ALL {
                let p = Parameters { hot: Some(hot), seed, background, ..Parameters::new(size) };
                let w = pattern.build(&p).unwrap();
                prop_assert_eq!(w.size(), size / PAGE_SIZE * PAGE_SIZE);
                prop_assert_eq!(&w, &pattern.build(&p).unwrap());
            }
        }
    }

    #[test]
    fn the_hot_spot_moves_with_the_seed_and_keeps_its_size() {
        let spots: Vec<AddrRange> = (0..20)
            .map(|seed| {
                let p = Parameters { hot: Some(0.1), seed, ..Parameters::new(1 << 30) };
                Pattern::Hotspot.build(&p).unwrap().stages()[0].areas[0].range()
            })
            .collect();
        assert!(spots.iter().all(|r| r.len() == 26214 * PAGE_SIZE && r.start > 0 && r.end < 1 << 30));
        assert!(spots.iter().any(|r| r.start != spots[0].start));
    }

    #[test]
    fn stairs_cover_the_arena_without_overlap() {
        let p = Parameters { hot: Some(0.3), ..Parameters::new(100 * PAGE_SIZE) };
        let w = Pattern::Stairs.build(&p).unwrap();
        let ranges: Vec<_> = w.stages().iter().map(|s| s.areas[0].range()).collect();
        assert_eq!(isotherm_core::addr::total_len(&ranges), 100 * PAGE_SIZE);
        assert!(isotherm_core::addr::is_sorted_disjoint(&ranges));
    }

    #[test]
    fn absurd_parameters_are_named() {
        let ok = Parameters::new(1 << 20);
        for (bad, what) in [
            (Parameters { hot: Some(0.0), ..ok.clone() }, "--hot"),
            (Parameters { hot: Some(1.5), ..ok.clone() }, "--hot"),
            (Parameters { hot: Some(f64::NAN), ..ok.clone() }, "--hot"),
            (Parameters { background: 1.0, ..ok.clone() }, "--background"),
            (Parameters { theta: -1.0, ..ok.clone() }, "--theta"),
            (Parameters { period_ns: Some(0), ..ok.clone() }, "--period"),
            (Parameters { size: u64::MAX, ..ok.clone() }, "--size"),
        ] {
            match Pattern::Hotspot.build(&bad) {
                Err(WorkloadError::BadParameter { what: named, .. }) => assert_eq!(named, what),
                other => panic!("{what}: {other:?}"),
            }
        }
        let all_hot = Parameters { hot: Some(0.9), ..ok };
        assert!(Pattern::Alternate.build(&all_hot).is_err());
    }
}
