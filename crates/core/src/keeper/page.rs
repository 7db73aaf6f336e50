//! How lately and how often a page was used, as the controller sees it.

/// Generations after which a page is just old.
pub(crate) const OLDEST: u8 = 250;
/// Ages that the controller tells apart.
const AGES: usize = 16;
/// Frequencies that the controller tells apart.
const LEVELS: usize = 16;
/// Groups of pages that the controller tells apart.
pub(crate) const GROUPS: usize = AGES * LEVELS;
/// A walk counts one part in so many: about so many walks are remembered.
const MEMORY: u32 = 32;
/// The level of a page that every walk finds used.
const MOST: u32 = u8::MAX as u32;

/// The level of a page seen for the first time: it has just been used once, and whether that happens often is not
/// known.
pub(crate) const NEW: u8 = (MOST * MOST / MEMORY).isqrt() as u8;

/// What a level becomes with a walk that found the page unused, or used: one of two neighbouring levels, the upper one
/// with this chance, of 65536.
///
/// A level is the square root of the share of walks that found the page used, younger walks weighing more, of 255: it
/// is the seldom used pages that must be distinguished. Steps smaller than a level are taken at random, so that the
/// share is right on average; cut off, it would never fall below some level, or never rise to the top.
static NEXT: [[(u8, u32); 256]; 2] = [next_levels(false), next_levels(true)];

const fn next_levels(used: bool) -> [(u8, u32); 256] {
    let mut out = [(0, 0); 256];
    let mut level = 0;
    while level <= MOST {
        // The new share, as a multiple of 1/(MOST^2 MEMORY).
        let share = level * level * (MEMORY - 1) + if used { MOST * MOST } else { 0 };
        let lower = (share / MEMORY).isqrt();
        let over = share - lower * lower * MEMORY;
        let step = (2 * lower + 1) * MEMORY;
        out[level as usize] = (lower as u8, (((over as u64) << 16) / step as u64) as u32);
        level += 1;
    }
    out
}

/// The level of a page after a walk. `random`: different for each page and walk.
pub(crate) fn next_level(level: u8, used: bool, random: u16) -> u8 {
    let (lower, chance) = NEXT[usize::from(used)][usize::from(level)];
    lower.saturating_add(u8::from(u32::from(random) < chance))
}

/// A number that is different for each page and walk, and looks like chance.
pub const fn random(page: u64, walk: u64) -> u16 {
    // Both multipliers are odd and have no pattern (SplitMix64's); the upper bits depend on all that was put in.
    let mixed = (page ^ walk.wrapping_mul(0xBF58_476D_1CE4_E5B9)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 48) as u16
}

/// The group to which a page belongs for the controller, by its age (the number of generations above its own) and its
/// level.
pub fn group(age: u8, level: u8) -> usize {
    usize::from(age).min(AGES - 1) * LEVELS + usize::from(level) * LEVELS / 256
}

/// The group to which an unused page of `group` belongs after one more walk, as long as it is about as frequent; none
/// after the oldest.
pub const fn older(group: usize) -> Option<usize> {
    if group / LEVELS + 1 < AGES { Some(group + LEVELS) } else { None }
}

/// What is expected of a group before anything was learnt: how likely one of its pages is used until the next walk.
pub fn expected(group: usize) -> f64 {
    let (age, level) = (group / LEVELS, group % LEVELS);
    let often = ((level as f64 + 0.5) / LEVELS as f64).powi(2);
    let lately = 1.0 / (age as f64 + 2.0);
    (often + lately) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(level: u8) -> f64 {
        (f64::from(level) / 255.0).powi(2)
    }

    #[test]
    fn levels_follow_how_often_a_page_is_used() {
        for (every, low, high) in [(1, 0.95, 1.0), (2, 0.4, 0.6), (8, 0.06, 0.2), (1000, 0.0, 0.01)] {
            for page in 0..100 {
                let level = (1..500).fold(NEW, |level, walk| next_level(level, walk % every == 0, random(page, walk)));
                assert!((low..=high).contains(&share(level)), "every {every}: {}", share(level));
            }
        }
    }

    #[test]
    fn on_average_over_pages_the_share_is_what_an_exact_average_would_be() {
        for every in [2, 5, 20, 100] {
            let (mut exact, mut levels) = (1.0 / 32.0, vec![NEW; 4000]);
            for walk in 1..=300u64 {
                let used = walk % every == 0;
                exact += (f64::from(u8::from(used)) - exact) / 32.0;
                for (page, level) in (0..).zip(&mut levels) {
                    *level = next_level(*level, used, random(page, walk));
                }
                let mean = levels.iter().map(|&l| share(l)).sum::<f64>() / levels.len() as f64;
                assert!((mean - exact).abs() < 0.001 + exact * 0.03, "every {every}, walk {walk}: {mean}, {exact}");
            }
        }
    }

    #[test]
    fn groups_tell_age_and_frequency_apart() {
        let mut level = NEW;
        assert!(group(0, level) < LEVELS);
        for walk in 1..=300u64 {
            level = next_level(level, false, random(7, walk));
            let age = walk.min(OLDEST.into()) as u8;
            assert_eq!(group(age, level) / LEVELS, (walk as usize).min(AGES - 1));
        }
        assert_eq!(level, 0);
        assert!(group(255, u8::MAX) < GROUPS);
        assert!(next_level(level, true, 0) > 0);
    }

    #[test]
    fn what_is_expected_falls_with_age_and_grows_with_frequency() {
        for group in 0..GROUPS {
            assert!((0.0..1.0).contains(&expected(group)));
            if group % LEVELS > 0 {
                assert!(expected(group) > expected(group - 1));
            }
            if group >= LEVELS {
                assert!(expected(group) < expected(group - LEVELS));
            }
        }
    }
}
