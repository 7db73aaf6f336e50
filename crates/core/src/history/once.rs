//! From the pages that several targets map to figures in which each page counts once.
//!
//! A sample of frames shows with whom a target shares its pages: each of its pages stands for a part of a page, as much
//! as all that map the frame have in common (like the proportional set size). The targets' own figures, which are exact,
//! are reduced by the mean of these parts. So what the sample has too much or too little of hardly matters: where all
//! pages of a target are shared by nine, each stands for a ninth whichever are in the sample.
//!
//! That fails where a target has only some pages in the sample: of thousands of forks that share twenty frames, one of
//! these frames is in the sample of all of them, or in that of none. Such targets are looked at together: of pages with
//! one mapper, of which the sample has many, their number follows; all others of theirs are shared.

use super::frame::{IdlePages, PageAges};
use super::known::Known;
use super::times::AGES_NS;
use super::usage::Usage;
use std::collections::{BTreeMap, HashMap};

/// Resident and not observable pages, and four figures for each age.
const FIGURES: usize = 2 + 4 * AGES_NS.len();

/// With fewer pages than this in the sample, on average, a target's own say nothing of it, ...
const LEAST_SAMPLED: u64 = 4;
/// ... and with fewer in all those of such targets together these say nothing of any figure either.
const LEAST_TOGETHER: f64 = 32.0;
/// What chance adds to a number of sampled pages is below so many times its root.
const CHANCE: f64 = 3.0;

/// Targets in a fixed order, and a sample of the frames that they map.
#[derive(Debug)]
pub(super) struct Sample {
    /// One in so many frames is in it.
    one_in: u32,
    targets: Vec<PageAges>,
    pages: Vec<SampledPage>,
    /// What is known of pages, each once: of most of a target's it is the same.
    knowns: Vec<Known>,
    index: HashMap<Known, u32>,
}

/// A page in the sample; with thousands of targets there are hundreds of thousands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct SampledPage {
    frame: u64,
    mapper: Mapper,
}

/// Who maps a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Mapper {
    /// Index of the target.
    target: u32,
    /// Index of what is known of the page.
    known: u32,
}

impl Sample {
    /// Of one in `one_in` frames.
    pub fn new(one_in: u32) -> Self {
        Self { one_in, targets: Vec::new(), pages: Vec::new(), knowns: Vec::new(), index: HashMap::new() }
    }

    /// Adds the next target: how old its pages are, each counted.
    pub fn add_target(&mut self, ages: PageAges) {
        self.targets.push(ages);
    }

    /// Adds a page of the last target that was added.
    pub fn add_page(&mut self, frame: u64, known: Known) {
        let next = self.knowns.len() as u32;
        let index = *self.index.entry(known).or_insert(next);
        if index == next {
            self.knowns.push(known);
        }
        let mapper = Mapper { target: self.targets.len() as u32 - 1, known: index };
        self.pages.push(SampledPage { frame, mapper });
    }

    /// Present pages of all targets, each counted for each target that maps it.
    pub fn mapped(&self) -> u64 {
        self.targets.iter().map(|ages| ages.resident).sum()
    }

    /// Of each target how old its pages are, each counted, and of those that are its own: those that no target before it
    /// maps. A page is as old as its last access by any target.
    pub fn own(mut self, now_ns: u64) -> Vec<(PageAges, PageAges)> {
        let shares = Shares::of(&mut self, now_ns);
        let mut own = vec![[0.0; FIGURES]; self.targets.len()];
        for (target, ages) in self.targets.iter().enumerate() {
            let figures = figures_of(ages);
            for (owner, part) in shares.parts(target) {
                for (own, (figure, part)) in own[owner].iter_mut().zip(figures.iter().zip(part)) {
                    *own += figure * part;
                }
            }
        }
        drop(shares);
        let of_target = |(mapped, own): (PageAges, Figures)| {
            let own = ages_of(&own, &mapped);
            (mapped, own)
        };
        self.targets.into_iter().zip(own).map(of_target).collect()
    }
}

/// Sums over pages.
type Figures = [f64; FIGURES];

/// The same over pages in the sample, of which there are fewer than 2^24; there is one for each target, and more.
type Sampled = [f32; FIGURES];

/// What part of a target's pages is whose own.
struct Shares {
    /// By target: its pages in the sample.
    mapped: Vec<Sampled>,
    /// By target and owner: the sum of the parts of a page that the target's pages stand for.
    flows: BTreeMap<(u32, u32), Sampled>,
    /// By target: whether it has too few pages in the sample.
    is_small: Vec<bool>,
    small: Small,
    /// What part of the pages of each such target is its own.
    small_part: Figures,
}

/// The targets with too few pages in the sample, together.
struct Small {
    /// All their pages.
    resident: Figures,
    /// Of those in the sample: with no other mapper, ...
    alone: Figures,
    /// ... with others, and the sum of the parts of a page that these stand for.
    shared: Figures,
    parts: Figures,
}

impl Small {
    /// What part of their pages is their own; `None`: the sample does not tell.
    fn part(&self, one_in: u32) -> Option<Figures> {
        if self.alone[0] + self.shared[0] < LEAST_TOGETHER {
            return None;
        }
        let of = |k: usize| {
            let (one_in, resident) = (f64::from(one_in), self.resident[k]);
            let alone = one_in * self.alone[k];
            let others = (resident - alone).max(0.0);
            let is_chance = others < one_in * CHANCE * self.alone[k].sqrt();
            let own = match self.shared[k] {
                shared if shared > 0.0 => alone + others * self.parts[k] / shared,
                _ if is_chance => resident,
                _ => alone,
            };
            (own / resident.max(1.0)).min(1.0)
        };
        let all = of(0);
        Some(std::array::from_fn(|k| if self.alone[k] + self.shared[k] >= LEAST_TOGETHER { of(k) } else { all }))
    }
}

impl Shares {
    fn of(Sample { one_in, targets, pages, knowns, .. }: &mut Sample, now_ns: u64) -> Self {
        pages.sort_unstable();
        // Most frames have the same mappers and ages as many others.
        let mut alike: HashMap<Vec<Mapper>, f64> = HashMap::new();
        let mut mappers = Vec::new();
        for frame in pages.chunk_by(|a, b| a.frame == b.frame) {
            mappers.clear();
            mappers.extend(frame.iter().map(|page| page.mapper));
            match alike.get_mut(&mappers) {
                Some(frames) => *frames += 1.0,
                None => {
                    alike.insert(mappers.clone(), 1.0);
                }
            }
        }
        *pages = Vec::new();
        let few = LEAST_SAMPLED * u64::from(*one_in);
        let is_small: Vec<bool> = targets.iter().map(|ages| *one_in > 1 && ages.resident < few).collect();
        let none = [0.0; FIGURES];
        let mut small = Small { resident: none, alone: none, shared: none, parts: none };
        let of_small = targets.iter().zip(&is_small).filter(|(_, is_small)| **is_small);
        of_small.for_each(|(ages, _)| add_up(&mut small.resident, &figures_of(ages), 1.0));
        let mapped = vec![[0.0; FIGURES]; targets.len()];
        let mut shares = Self { mapped, flows: BTreeMap::new(), is_small, small, small_part: [1.0; FIGURES] };
        for (mappers, frames) in &alike {
            shares.add(mappers, knowns, *frames, now_ns);
        }
        shares.small_part = shares.small.part(*one_in).unwrap_or_else(|| shares.part_of_all());
        shares
    }

    /// What part of a page each in the sample stands for, all targets together.
    fn part_of_all(&self) -> Figures {
        let own: f64 = self.flows.values().map(|flow| f64::from(flow[0])).sum();
        let mapped: f64 = self.mapped.iter().map(|mapped| f64::from(mapped[0])).sum();
        [if mapped > 0.0 { own / mapped } else { 1.0 }; FIGURES]
    }

    /// Adds frames that have all the same mappers.
    fn add(&mut self, mappers: &[Mapper], knowns: &[Known], frames: f64, now_ns: u64) {
        let Some((first, others)) = mappers.split_first() else { return };
        let known_by = |mapper: &Mapper| knowns[mapper.known as usize];
        let known = others.iter().fold(known_by(first), |known, other| known.or(known_by(other)));
        let (once, mut sum) = (figures_of_page(known, now_ns), [0.0; FIGURES]);
        let figures_by = |mapper: &Mapper| figures_of_page(known_by(mapper), now_ns).map(|figure| figure as f32);
        let each: Vec<Sampled> = mappers.iter().map(figures_by).collect();
        each.iter().for_each(|figures| add_up(&mut sum, &figures.map(f64::from), 1.0));
        for (mapper, figures) in mappers.iter().zip(&each) {
            let target = mapper.target as usize;
            let figures = figures.map(f64::from);
            let part = match others {
                [] => figures,
                _ => std::array::from_fn(|k| if sum[k] > 0.0 { once[k] * figures[k] / sum[k] } else { 0.0 }),
            };
            sample_up(&mut self.mapped[target], &figures, frames);
            let flow = self.flows.entry((mapper.target, first.target)).or_insert([0.0; FIGURES]);
            sample_up(flow, &part, frames);
            match (self.is_small[target], others.is_empty()) {
                (false, _) => {}
                (true, true) => add_up(&mut self.small.alone, &figures, frames),
                (true, false) => {
                    add_up(&mut self.small.shared, &figures, frames);
                    add_up(&mut self.small.parts, &part, frames);
                }
            }
        }
    }

    /// By owner, what part of each figure of `target` is its own. One that has too few pages in the sample is taken to
    /// share as all those do; a figure that no page in the sample stands for, as the target's pages do.
    fn parts(&self, target: usize) -> Vec<(usize, Figures)> {
        if self.is_small[target] {
            return vec![(target, self.small_part)];
        }
        let mapped = self.mapped[target].map(f64::from);
        if mapped[0] == 0.0 {
            return vec![(target, self.part_of_all())];
        }
        let part = |flow: Figures| {
            std::array::from_fn(|k| if mapped[k] > 0.0 { flow[k] / mapped[k] } else { flow[0] / mapped[0] })
        };
        let owners = (target as u32, 0)..(target as u32 + 1, 0);
        self.flows.range(owners).map(|((_, owner), flow)| (*owner as usize, part(flow.map(f64::from)))).collect()
    }
}

fn add_up(sum: &mut Figures, figures: &Figures, times: f64) {
    sum.iter_mut().zip(figures).for_each(|(sum, figure)| *sum += times * figure);
}

fn sample_up(sum: &mut Sampled, figures: &Figures, times: f64) {
    sum.iter_mut().zip(figures).for_each(|(sum, figure)| *sum += (times * figure) as f32);
}

fn figures_of_page(known: Known, now_ns: u64) -> Figures {
    let mut figures = [0.0; FIGURES];
    figures[0] = 1.0;
    figures[1] = if known == Known::Blind { 1.0 } else { 0.0 };
    for (i, age) in AGES_NS.iter().enumerate() {
        let mut idle = IdlePages::default();
        let expected = known.idle(now_ns.saturating_sub(*age), Usage::constant(now_ns), 1, &mut idle);
        put(&mut figures, i, idle.least as f64 + expected, &idle);
    }
    figures
}

fn figures_of(ages: &PageAges) -> Figures {
    let mut figures = [0.0; FIGURES];
    (figures[0], figures[1]) = (ages.resident as f64, ages.unobservable as f64);
    for i in 0..AGES_NS.len() {
        let idle = ages.at(i);
        put(&mut figures, i, idle.pages as f64, &idle);
    }
    figures
}

fn put(figures: &mut Figures, age: usize, pages: f64, idle: &IdlePages) {
    let four = [pages, idle.least as f64, idle.most as f64, idle.unresolved as f64];
    figures[2 + 4 * age..][..4].copy_from_slice(&four);
}

/// The figures of those ages that are known of `all`.
fn ages_of(figures: &Figures, all: &PageAges) -> PageAges {
    let resident = figures[0].round() as u64;
    let idle = |four: &[f64]| {
        let least = (four[1].round() as u64).min(resident);
        let pages = (four[0].round() as u64).clamp(least, resident);
        let unresolved = (four[3].round() as u64).min(resident - pages);
        let most = (four[2].round() as u64).clamp(pages + unresolved, resident);
        IdlePages { pages, least, most, unresolved }
    };
    let unobservable = (figures[1].round() as u64).min(resident);
    let mut known = figures[2..].chunks(4).map(idle);
    let idle = known.by_ref().take(all.idle.len()).collect();
    PageAges { resident, unobservable, idle, longer: known.take(all.longer.len()).collect() }.lowered()
}

#[cfg(test)]
mod tests {
    use super::super::frame;
    use super::super::known::By;
    use super::*;
    use proptest::prelude::*;

    const S: u64 = 1_000_000_000;
    const NOW: u64 = 100 * S;
    const HOT: Known = within(NOW - S / 2, NOW);
    const COLD: Known = within(0, S);

    const fn within(after_ns: u64, by_ns: u64) -> Known {
        Known::In { after_ns, by: By::certain(by_ns) }
    }

    fn ages(resident: u64, idle: u64) -> PageAges {
        let idle = IdlePages { pages: idle, least: idle, most: idle, unresolved: 0 };
        PageAges { resident, idle: vec![idle; 6], ..PageAges::default() }
    }

    fn own(sample: Sample) -> Vec<PageAges> {
        sample.own(NOW).into_iter().map(|(_, own)| own).collect()
    }

    fn total(sample: Sample) -> PageAges {
        frame::sum(own(sample).iter())
    }

    /// Too many of the pages in use are in the sample, and it hardly matters; the pages are all the first one's.
    #[test]
    fn what_all_share_is_right_with_a_sample_that_is_off() {
        let mut sample = Sample::new(1000);
        sample.add_target(ages(1_000_000, 1_000_000));
        (0..1000).for_each(|frame| sample.add_page(frame, COLD));
        for _ in 0..8 {
            sample.add_target(ages(1_000_000, 900_000));
            (0..1000).for_each(|frame| sample.add_page(frame, if frame < 130 { HOT } else { COLD }));
        }
        let own = own(sample);
        assert_eq!(own[0].resident, 1_000_000);
        assert!(own[1..].iter().all(|ages| ages.resident == 0));
        let cold = own[0].idle[3].pages;
        assert!(cold.abs_diff(900_000) < 5_000, "{cold}");
    }

    #[test]
    fn what_nobody_shares_stays_as_it_is() {
        let mut sample = Sample::new(100);
        for target in 0..3u64 {
            sample.add_target(ages(1_000 + target, 900));
            (0..10).for_each(|frame| sample.add_page(target << 32 | frame, if frame < 3 { HOT } else { COLD }));
        }
        assert_eq!(total(sample), ages(3_003, 2_700));
    }

    #[test]
    fn a_target_without_a_page_in_the_sample_shares_as_all_do() {
        let mut sample = Sample::new(100);
        for _ in 0..2 {
            sample.add_target(ages(1_000, 500));
            (0..10).for_each(|frame| sample.add_page(frame, COLD));
        }
        sample.add_target(ages(10, 6));
        assert_eq!(own(sample)[2], ages(5, 3));
        assert_eq!(Sample::new(1).own(NOW), []);
    }

    /// `sampled` of twenty frames that 4000 forks share are in the sample of each of them; of the sixteen pages that each has
    /// alone, one in 16 is. A target with many pages is beside them.
    fn crowd(sampled: u64) -> Vec<PageAges> {
        let mut sample = Sample::new(16);
        sample.add_target(ages(160_000, 80_000));
        (0..10_000).for_each(|frame| sample.add_page(1 << 40 | frame, if frame % 2 == 0 { COLD } else { HOT }));
        for target in 0..4000u64 {
            sample.add_target(ages(36, 8));
            (0..sampled).for_each(|frame| sample.add_page(frame, HOT));
            // None, one, or two: one in the mean.
            (0..target % 3)
                .for_each(|page| sample.add_page(1 << 32 | target << 8 | page, if page == 0 { COLD } else { HOT }));
        }
        own(sample)
    }

    #[test]
    fn what_each_of_thousands_of_forks_has_alone_does_not_depend_on_what_they_share() {
        for sampled in 0..5 {
            let own = crowd(sampled);
            assert_eq!(own[0], ages(160_000, 80_000));
            let each = frame::sum(own[1..].iter());
            assert!(each.resident.abs_diff(4000 * 16) < 4000 * 16 / 20, "{sampled}: {}", each.resident);
        }
    }

    #[test]
    fn thousands_that_share_nothing_are_counted_wholly_whatever_the_sample_has() {
        for all in [1, 2] {
            let mut sample = Sample::new(16);
            for target in 0..4000u64 {
                sample.add_target(ages(20, 5));
                let pages = if target % 4 == 0 { all + 1 } else { 1 };
                (0..pages).for_each(|page| sample.add_page(target << 8 | page, COLD));
            }
            assert_eq!(total(sample), ages(80_000, 20_000), "{all}");
        }
    }

    fn known() -> impl Strategy<Value = Known> {
        let epoch = |(after, length): (u64, u64)| within(after * S, (after + length) * S);
        prop_oneof![
            Just(Known::Blind),
            prop::option::of(0..100u64).prop_map(|after| Known::Open { after_ns: after.map(|s| s * S), by: None }),
            (0..100u64).prop_map(|by| Known::Copied(by * S)),
            (0..100u64).prop_map(|at| Known::Standing(at * S)),
            (0..90u64, 0..10u64).prop_map(epoch),
        ]
    }

    proptest! {
        /// A sample of all pages: each figure is that of the frames, counted one by one.
        #[test]
        fn a_sample_of_all_is_exact(pages in prop::collection::vec((0..20u64, 0..4usize, known()), 0..80)) {
            let mut mappers: BTreeMap<(u64, usize), Known> = BTreeMap::new();
            mappers.extend(pages.into_iter().map(|(frame, target, known)| ((frame, target), known)));
            let mut sample = Sample::new(1);
            let all_ages = PageAges { idle: vec![IdlePages::default(); AGES_NS.len()], ..PageAges::default() };
            for target in 0..4 {
                let mut figures = [0.0; FIGURES];
                for (_, known) in mappers.iter().filter(|((_, t), _)| *t == target) {
                    figures.iter_mut().zip(figures_of_page(*known, NOW)).for_each(|(sum, one)| *sum += one);
                }
                sample.add_target(ages_of(&figures, &all_ages));
                mappers.iter().filter(|((_, t), _)| *t == target).for_each(|((frame, _), known)| sample.add_page(*frame, *known));
            }
            let mut frames: BTreeMap<u64, Known> = BTreeMap::new();
            for ((frame, _), known) in &mappers {
                frames.entry(*frame).and_modify(|k| *k = k.or(*known)).or_insert(*known);
            }
            let own = total(sample);
            prop_assert_eq!(own.resident, frames.len() as u64);
            prop_assert_eq!(own.unobservable, frames.values().filter(|k| **k == Known::Blind).count() as u64);
            for (i, idle) in own.idle.iter().enumerate() {
                let mut exact = IdlePages::default();
                for known in frames.values() {
                    known.idle(NOW.saturating_sub(AGES_NS[i]), Usage::constant(NOW), 1, &mut exact);
                }
                // Each target's figures are rounded to pages.
                prop_assert!(idle.least.abs_diff(exact.least) <= 4, "{idle:?} {exact:?}");
                prop_assert!(idle.unresolved.abs_diff(exact.unresolved) <= 4, "{idle:?} {exact:?}");
            }
        }
    }
}
