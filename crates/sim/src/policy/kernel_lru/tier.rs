//! Tiers: how often a page was reached through file descriptors, on a logarithmic scale.
//!
//! An access flips bits of the page and moves nothing. Eviction looks at the tier and at what the controller says of
//! it.

use super::Variant;
use super::flags::Flags;

pub(crate) const TIERS: usize = 4;

/// One access through a file descriptor.
pub fn touch(variant: Variant, flags: &mut Flags) {
    if flags.has(Flags::UNEVICTABLE) {
        return;
    }
    match variant {
        Variant::V6_12 => {
            if !flags.has(Flags::REFERENCED) {
                flags.set(Flags::REFERENCED);
            } else if !flags.has(Flags::WORKINGSET) {
                flags.set(Flags::WORKINGSET);
            } else {
                flags.set_counter(flags.counter() + 1);
            }
        }
        Variant::V6_14 => {
            if !flags.has(Flags::REFERENCED) {
                flags.set(Flags::REFERENCED);
                flags.set_counter(0);
            } else if flags.counter() == 3 {
                flags.set(Flags::WORKINGSET);
            } else {
                flags.set_counter(flags.counter() + 1);
            }
        }
    }
}

/// The number of accesses as far as it is known, 0 to 4.
pub fn refs(variant: Variant, flags: Flags) -> u32 {
    match variant {
        Variant::V6_12 => flags.counter() + u32::from(flags.has(Flags::WORKINGSET)),
        Variant::V6_14 if flags.has(Flags::REFERENCED) => flags.counter() + 1,
        Variant::V6_14 => 0,
    }
}

/// The tier of that many accesses.
pub(crate) fn tier_of(variant: Variant, refs: u32, workingset: bool) -> usize {
    let ceil_log2 = |n: u32| n.checked_next_power_of_two().map_or(0, |p| p.trailing_zeros() as usize);
    match variant {
        Variant::V6_12 => ceil_log2(refs + 1),
        Variant::V6_14 if workingset => TIERS - 1,
        Variant::V6_14 => ceil_log2(refs),
    }
}

pub fn tier(variant: Variant, flags: Flags) -> usize {
    tier_of(variant, refs(variant, flags), flags.has(Flags::WORKINGSET))
}

/// Whether the page was accessed more often than can be counted. Such a page is protected whatever the controller says.
pub(crate) fn saturated(variant: Variant, flags: Flags) -> bool {
    match variant {
        Variant::V6_12 => refs(variant, flags) == 4,
        Variant::V6_14 => refs(variant, flags) + u32::from(flags.has(Flags::WORKINGSET)) == 5,
    }
}

/// Forgets the accesses, as a page does that moves to a younger generation.
pub fn forget(variant: Variant, flags: &mut Flags) {
    flags.set_counter(0);
    flags.clear(Flags::REFERENCED);
    if variant == Variant::V6_12 {
        flags.clear(Flags::WORKINGSET);
    }
}

/// The rule of the first touch through a page table (6.14 on): the first one is remembered and nothing more. True from
/// the second one on.
pub fn proven(flags: &mut Flags) -> bool {
    flags.set_counter(0);
    if !flags.has(Flags::REFERENCED) && !flags.has(Flags::WORKINGSET) {
        flags.set(Flags::REFERENCED);
        return false;
    }
    flags.clear(Flags::REFERENCED);
    flags.set(Flags::WORKINGSET);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiers_of_so_many_accesses() {
        for variant in [Variant::V6_12, Variant::V6_14] {
            let mut flags = Flags::default();
            let mut seen = vec![tier(variant, flags)];
            for _ in 0..7 {
                touch(variant, &mut flags);
                seen.push(tier(variant, flags));
            }
            assert_eq!(seen, [0, 0, 1, 2, 2, 3, 3, 3], "{variant:?}");
            assert!(saturated(variant, flags));
        }
    }

    #[test]
    fn the_fifth_access_saturates() {
        for variant in [Variant::V6_12, Variant::V6_14] {
            let mut flags = Flags::default();
            for _ in 0..4 {
                touch(variant, &mut flags);
            }
            assert!(!saturated(variant, flags));
            touch(variant, &mut flags);
            assert!(saturated(variant, flags));
        }
    }

    #[test]
    fn from_6_14_on_the_working_set_survives() {
        for (variant, survives) in [(Variant::V6_12, false), (Variant::V6_14, true)] {
            let mut flags = Flags::default();
            (0..5).for_each(|_| touch(variant, &mut flags));
            forget(variant, &mut flags);
            assert_eq!(flags.has(Flags::WORKINGSET), survives);
            assert_eq!(refs(variant, flags), 0);
            assert_eq!(tier(variant, flags), if survives { 3 } else { 0 });
        }
    }

    #[test]
    fn the_second_touch_is_proof() {
        let mut flags = Flags::default();
        assert!(!proven(&mut flags));
        assert!(flags.has(Flags::REFERENCED));
        assert!(proven(&mut flags));
        assert!(flags.has(Flags::WORKINGSET) && !flags.has(Flags::REFERENCED));
    }
}
