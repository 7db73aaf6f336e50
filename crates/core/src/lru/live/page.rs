//! What is kept of a page.

/// Ageings after which a page is just old.
pub const OLDEST: u8 = 250;
/// Ages that the controller tells apart.
const AGES: usize = 16;
/// Frequencies that the controller tells apart.
const LEVELS: usize = 16;
/// Groups of pages that the controller tells apart.
pub const GROUPS: usize = AGES * LEVELS;
/// A walk counts one part in 2^SHIFT: about so many walks are remembered.
const SHIFT: u32 = 5;

/// How a page was used: when last, and how often.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Page {
    /// Walks since one found it used; the number of generations above its own.
    pub age: u8,
    /// Part of the last walks that found it used, of 65535, younger ones weighing more.
    pub level: u16,
}

impl Page {
    /// A page seen for the first time: it has just been used, and whether that happens often is not known.
    pub const NEW: Self = Self { age: 0, level: 1 << (16 - SHIFT) };

    /// One more walk has looked at it.
    pub fn walked(&mut self, used: bool) {
        let step = if used { (u16::MAX - self.level) >> SHIFT } else { self.level >> SHIFT };
        if used {
            self.age = 0;
            self.level = self.level.saturating_add(step.max(1));
        } else {
            self.age = (self.age + 1).min(OLDEST);
            self.level = self.level.saturating_sub(step.max(1));
        }
    }

    /// It has been found used since the last walk.
    pub fn used(&mut self) {
        self.age = 0;
    }

    /// The group that it belongs to for the controller: by age, and by frequency on a scale of square roots, since
    /// it is the seldom used ones that must be told apart.
    pub fn group(self) -> usize {
        let age = usize::from(self.age).min(AGES - 1);
        age * LEVELS + usize::from(self.level).isqrt() * LEVELS / 256
    }
}

/// The group to which an unused page of `group` belongs after one more walk, as long as it is about as frequent; none after the
/// oldest.
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

    #[test]
    fn levels_follow_how_often_a_page_is_used() {
        for (every, low, high) in [(1, 0.95, 1.0), (2, 0.4, 0.6), (8, 0.06, 0.2), (1000, 0.0, 0.01)] {
            let mut page = Page::NEW;
            (1..500).for_each(|walk| page.walked(walk % every == 0));
            let share = f64::from(page.level) / 65535.0;
            assert!((low..=high).contains(&share), "every {every}: {share}");
        }
    }

    #[test]
    fn groups_tell_age_and_frequency_apart() {
        let mut page = Page::NEW;
        assert!(page.group() < LEVELS);
        for walk in 1..=300_u32 {
            page.walked(false);
            assert_eq!(page.group() / LEVELS, (walk as usize).min(AGES - 1));
        }
        assert_eq!((page.age, page.level), (OLDEST, 0));
        assert!(Page { age: 255, level: u16::MAX }.group() < GROUPS);
        page.walked(true);
        assert_eq!(page.age, 0);
        assert!(page.level > 0);
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
