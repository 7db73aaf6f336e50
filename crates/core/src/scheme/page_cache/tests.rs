use super::*;
use proptest::prelude::*;

const S: u64 = 1_000_000_000;
const MIB: u64 = 1 << 20;
const POLICY: CachePolicy = CachePolicy { min_age_ns: 30 * S, stall: Some(0.001) };

/// Files of 1 MiB in a group. Each is read again every so often (s), or never; the kernel drops those first that came
/// first, and re-reading one that is there does not save it: the worst case.
struct Files {
    /// Those in memory, oldest first: number.
    cached: VecDeque<usize>,
    every_s: Vec<Option<u64>>,
    refaulted: u64,
    taken: u64,
    cache: CacheReclaim,
}

impl Files {
    fn new(every_s: Vec<Option<u64>>) -> Self {
        let cached = (0..every_s.len()).collect();
        Self { cached, every_s, refaulted: 0, taken: 0, cache: CacheReclaim::default() }
    }

    /// Goes on until second `end`.
    fn run(&mut self, seconds: std::ops::Range<u64>, policy: &CachePolicy) {
        for now in seconds {
            for (file, every) in self.every_s.iter().enumerate() {
                let is_read = every.is_some_and(|every| now > 0 && (now + file as u64).is_multiple_of(every));
                if is_read && !self.cached.contains(&file) {
                    self.refaulted += MIB;
                    self.cached.push_back(file);
                }
            }
            if now.is_multiple_of(STEP_NS / S) {
                let view =
                    CacheView { idle: self.cached.len() as u64 * MIB, stall_us: Some(0), refaulted: self.refaulted };
                if let Ok(bytes) = self.cache.step(now * S, &view, policy, u64::MAX) {
                    // The kernel takes whole files here.
                    let count = bytes.div_ceil(MIB);
                    self.cached.drain(..self.cached.len().min(count as usize));
                    self.cache.took(now * S, count * MIB);
                    self.taken += count * MIB;
                }
            }
        }
    }
}

#[test]
fn what_is_read_once_goes_after_its_age_and_not_before() {
    let mut files = Files::new(vec![None; 500]);
    files.run(0..30, &POLICY);
    assert_eq!(files.taken, 0, "not watched for long enough");
    files.run(30..120, &POLICY);
    assert!(files.cached.len() < 100 && files.cached.len() > 50, "a tenth each 5 s: {}", files.cached.len());
    files.run(120..600, &POLICY);
    assert_eq!((files.cached.len(), files.refaulted, files.cache.brakes()), (0, 0, 0));
}

#[test]
fn what_comes_has_its_time_too() {
    let mut cache = CacheReclaim::default();
    let mut last = 0;
    for second in (0..300).step_by(5) {
        // A MiB comes each second.
        let view = CacheView { idle: second * MIB, stall_us: Some(0), refaulted: 0 };
        last = cache.step(second * S, &view, &POLICY, u64::MAX).unwrap_or_default();
        assert!(last <= (second.saturating_sub(30) * MIB / 10).max(MIB), "{second}: {last}");
    }
    assert!(last > 20 * MIB);
}

#[test]
fn files_that_are_read_again_stop_it_for_longer_each_time() {
    let mut files = Files::new(vec![Some(40); 500]);
    files.run(0..4 * 3600, &POLICY);
    let brakes = files.cache.brakes();
    // Stops of 1, 2, 4, ... 60 min.
    assert!((4..=12).contains(&brakes), "{brakes}");
    assert!(files.refaulted <= brakes * 500 * MIB, "{} MiB came back", files.refaulted / MIB);
    assert!(files.cached.len() > 400, "{}", files.cached.len());
    assert!(files.taken < 10 * 500 * MIB, "{}", files.taken / MIB);
}

#[test]
fn pressure_slows_it_down_and_ends_it() {
    // Each second so many us of waiting; the goal is 1000.
    let last = |us: u64, policy: &CachePolicy| {
        let mut cache = CacheReclaim::default();
        let step = |second: u64| {
            let view = CacheView { idle: 1000 * MIB, stall_us: Some(second * us), refaulted: 0 };
            cache.step(second * S, &view, policy, u64::MAX)
        };
        (0..60).step_by(5).map(step).last().unwrap()
    };
    assert_eq!(last(0, &POLICY), Ok(100 * MIB));
    assert_eq!(last(500, &POLICY), Ok(50 * MIB));
    assert_eq!(last(1000, &POLICY), Err(CacheIdle::Pressure(0.001, 0.001)));
    let free = CachePolicy { stall: None, ..POLICY };
    assert_eq!(last(1000, &free), Ok(100 * MIB), "no goal");
    let mut cache = CacheReclaim::default();
    let unknown = CacheView { idle: MIB, stall_us: None, refaulted: 0 };
    let step = |second| cache.step(second * S, &unknown, &POLICY, u64::MAX);
    let reported: Vec<_> = (0..60).step_by(5).map(step).collect();
    assert_eq!(reported.last(), Some(&Err(CacheIdle::NoPressure)), "not known is not none");
}

#[test]
fn an_age_that_grows_is_watched_for_anew() {
    let mut cache = CacheReclaim::default();
    let view = CacheView { idle: 100 * MIB, stall_us: Some(0), refaulted: 0 };
    let mut step =
        |second: u64, age_s: u64| cache.step(second * S, &view, &CachePolicy { min_age_ns: age_s * S, ..POLICY }, MIB);
    (0..100).step_by(5).for_each(|second| assert!(step(second, 10).is_ok() || second < 10));
    assert_eq!(step(100, 10), Ok(MIB));
    assert_eq!(step(105, 60), Err(CacheIdle::Watching(15 * S, 60 * S)));
    assert_eq!(step(150, 60), Ok(MIB));
    // One that is longer than anything lives.
    assert!(matches!(step(155, u64::MAX / S), Err(CacheIdle::Watching(..))));
}

proptest! {
    #[test]
    fn no_step_goes_beyond_its_limits(
        seen in prop::collection::vec((0u64..1 << 40, 0u64..20_000, 0u64..1 << 28, 0u64..1 << 30), 1..80),
        age_s in 0u64..120,
        goal in prop::option::of(0.0001f64..0.1),
    ) {
        let policy = CachePolicy { min_age_ns: age_s * S, stall: goal };
        let mut cache = CacheReclaim::default();
        let (mut stall_us, mut refaulted, mut idles) = (0, 0, Vec::<u64>::new());
        let mut stopped_until = 0;
        for (i, (idle, stall, back, room)) in seen.into_iter().enumerate() {
            (stall_us, refaulted) = (stall_us + stall, refaulted + back);
            idles.push(idle);
            let now_s = i as u64 * 5;
            let view = CacheView { idle, stall_us: Some(stall_us), refaulted };
            let rested = *idles.iter().rev().take((age_s / 5) as usize + 1).min().unwrap();
            match cache.step(now_s * S, &view, &policy, room) {
                Ok(bytes) => {
                    prop_assert!(bytes > 0 && bytes.is_multiple_of(PAGE_SIZE) && bytes <= room && bytes <= rested);
                    prop_assert!(bytes <= (rested / 10).max(MIB) && now_s >= age_s && now_s >= stopped_until);
                    cache.took(now_s * S, bytes);
                }
                Err(CacheIdle::Brake(share, left_ns)) => {
                    prop_assert!(share > MOST_BACK);
                    stopped_until = now_s + left_ns / S;
                }
                Err(_) => {}
            }
        }
    }
}
