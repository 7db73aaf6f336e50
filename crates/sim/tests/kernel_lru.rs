//! The LRUs on their own, over generated accesses.

use isotherm_sim::policy::kernel_lru::mglru::{MgConfig, MgLru};
use isotherm_sim::policy::kernel_lru::{Access, Channel, Hit, LruStats, PageKind, Variant};

/// Draws pages by a power law.
struct Zipf {
    cdf: Vec<f64>,
    rng: fastrand::Rng,
    scatter: Vec<u32>,
}

impl Zipf {
    fn new(pages: u32, theta: f64, seed: u64) -> Self {
        let mut sum = 0.0;
        let cdf = (1..=pages)
            .map(|rank| {
                sum += f64::from(rank).powf(-theta);
                sum
            })
            .collect();
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut scatter: Vec<u32> = (0..pages).collect();
        rng.shuffle(&mut scatter);
        Self { cdf, rng, scatter }
    }

    fn draw(&mut self) -> u32 {
        let at = self.rng.f64() * self.cdf[self.cdf.len() - 1];
        let rank = self.cdf.partition_point(|&c| c < at).min(self.scatter.len() - 1);
        self.scatter[rank]
    }
}

fn run(mut access: impl FnMut(u32) -> Hit, pages: u32, requests: usize) -> f64 {
    let mut zipf = Zipf::new(pages, 1.0, 42);
    let misses = (0..requests).filter(|_| access(zipf.draw()) != Hit::Hit).count();
    misses as f64 / requests as f64
}

fn mglru(config: MgConfig, how: Access, pages: u32, requests: usize) -> (f64, LruStats) {
    let mut lru = MgLru::new(config);
    let ratio = run(|page| lru.access(page, how), pages, requests);
    assert_eq!(lru.detail().forced, 0);
    let stats = lru.stats();
    println!("{how:?} {ratio} {stats:?} {:?}", lru.detail());
    (ratio, stats)
}

/// Popular pages are found out on both channels.
#[test]
fn popular_pages_stay() {
    for variant in [Variant::V6_12, Variant::V6_14] {
        for how in [Access::fd(false), Access::mapped(PageKind::Anon, true), Access::mapped(PageKind::File, false)] {
            let config = MgConfig { variant, ..MgConfig::scaled(2000) };
            let (ratio, stats) = mglru(config, how, 20_000, 400_000);
            // What an LRU in the order of the last access comes to is between the two.
            assert!((0.25..0.40).contains(&ratio), "{variant:?} {how:?}: {ratio}");
            assert!(stats.evictions > 0 && stats.list_moves < stats.requests / 2);
            // By file descriptor alone nothing needs to age while the oldest generation refills.
            assert_eq!(stats.agings > 0, how.channel == Channel::Mapped, "{variant:?} {how:?}");
        }
    }
}
