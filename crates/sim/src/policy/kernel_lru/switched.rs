//! Both LRUs behind the switch that changes from one to the other at run time.

use super::classic::{Classic, ClassicConfig};
use super::flags::Flags;
use super::lruvec::{MAX_GENS, index};
use super::mglru::{MgConfig, MgLru};
use super::{Access, Hit, LruStats, Switches};

#[derive(Debug, Clone)]
pub enum Lru {
    /// Bit 0x1 is set.
    Multi(Box<MgLru>),
    /// It is not.
    Classic(Box<Classic>),
}

/// Both LRUs, one of them in use.
#[derive(Debug, Clone)]
pub struct Switched {
    lru: Lru,
    multi: MgConfig,
    classic: ClassicConfig,
}

impl Switched {
    /// An empty memory; `multi.switches` says which is on.
    pub fn new(multi: MgConfig, classic: ClassicConfig) -> Self {
        let lru = if multi.switches.core {
            Lru::Multi(Box::new(MgLru::new(multi.clone())))
        } else {
            Lru::Classic(Box::new(Classic::new(classic.clone())))
        };
        Self { lru, multi, classic }
    }

    pub fn access(&mut self, page: u32, access: Access) -> Hit {
        match &mut self.lru {
            Lru::Multi(lru) => lru.access(page, access),
            Lru::Classic(lru) => lru.access(page, access),
        }
    }

    /// What was done so far, by either.
    pub const fn stats(&self) -> LruStats {
        match &self.lru {
            Lru::Multi(lru) => lru.stats(),
            Lru::Classic(lru) => lru.stats(),
        }
    }

    pub const fn lru(&self) -> &Lru {
        &self.lru
    }

    /// Throws the switches. Bit 0x1 moves all pages from the lists of one to those of the other.
    pub fn switch(&mut self, switches: Switches) {
        self.multi.switches = switches;
        let next = match (&mut self.lru, switches.core) {
            (Lru::Multi(lru), true) => {
                lru.lruvec.switches = switches;
                return;
            }
            (Lru::Classic(_), false) => return,
            (Lru::Multi(lru), false) => Lru::Classic(Box::new(to_classic(lru, self.classic.clone()))),
            (Lru::Classic(lru), true) => Lru::Multi(Box::new(to_multi(lru, self.multi.clone()))),
        };
        self.lru = next;
    }
}

/// The two youngest generations become active, the others inactive, the oldest last.
fn to_classic(from: &mut MgLru, config: ClassicConfig) -> Classic {
    let mut to = Classic::new(ClassicConfig { pages: 0, ..config });
    let lruvec = &mut from.lruvec;
    let oldest = (lruvec.max_seq() + 1).saturating_sub(MAX_GENS);
    let mut order = Vec::with_capacity(from.resident as usize);
    for seq in oldest..=lruvec.max_seq() {
        for kind in 0..2 {
            while let Some(page) = from.pages.tail(lruvec.list(index(seq), kind)) {
                let label = from.pages.flags(page).generation();
                lruvec.take_off(&mut from.pages, page);
                let active =
                    label.is_some_and(|label| [lruvec.max_seq(), lruvec.max_seq() - 1].map(index).contains(&label));
                order.push((page, active));
            }
        }
    }
    to.stats = lruvec.stats;
    to.resident = from.resident;
    to.tables = std::mem::take(&mut from.tables);
    std::mem::swap(&mut to.pages, &mut from.pages);
    for (page, active) in order {
        if active {
            to.pages.flags_mut(page).set(Flags::ACTIVE);
        }
        to.put(page, true);
    }
    to
}

/// Every page begins where its flags place it, in the order it had.
fn to_multi(from: &mut Classic, config: MgConfig) -> MgLru {
    let mut to = MgLru::new(MgConfig { pages: 0, ..config });
    let mut order = Vec::with_capacity(from.resident as usize);
    for list in 0..super::classic::LISTS {
        while let Some(page) = from.pages.tail(list) {
            from.take_off(page);
            order.push(page);
        }
    }
    to.lruvec.stats = from.stats;
    to.resident = from.resident;
    to.tables = std::mem::take(&mut from.tables);
    std::mem::swap(&mut to.pages, &mut from.pages);
    for page in order {
        to.lruvec.add(&mut to.pages, page, false);
    }
    to
}

#[cfg(test)]
mod tests {
    use super::super::PageKind;
    use super::super::invariants::check;
    use super::*;
    use proptest::prelude::*;

    fn held(switched: &Switched, pages: u32) -> Vec<u32> {
        let holds = |page: &u32| match &switched.lru {
            Lru::Multi(lru) => lru.holds(*page),
            Lru::Classic(lru) => lru.holds(*page),
        };
        (0..pages).filter(holds).collect()
    }

    #[test]
    fn what_was_active_becomes_young_and_the_other_way_round() {
        let mut lru = Switched::new(
            MgConfig { switches: Switches::from_bits(6), ..MgConfig::new(100) },
            ClassicConfig::scaled(100),
        );
        (0..10).for_each(|page| _ = lru.access(page, Access::fd(false)));
        (0..4).for_each(|page| _ = lru.access(page, Access::fd(false)));
        lru.switch(Switches::from_bits(7));
        let Lru::Multi(multi) = lru.lru() else { panic!("it is on") };
        assert_eq!([0, 1, 2, 3].map(|seq| multi.lruvec().size(seq, 1)), [6, 0, 4, 0]);
        lru.switch(Switches::from_bits(0));
        let Lru::Classic(classic) = lru.lru() else { panic!("it is off") };
        assert_eq!(classic.sizes(PageKind::File), (6, 4));
    }

    #[test]
    fn shadows_of_the_one_say_nothing_to_the_other() {
        for bits in [0, 1] {
            let multi = MgConfig { switches: Switches::from_bits(bits), batch: 1, ..MgConfig::new(20) };
            let mut lru = Switched::new(multi, ClassicConfig::scaled(20));
            if bits == 1 {
                // They become active, and so make room for a refault to be near.
                (100..105).for_each(|page| _ = lru.access(page, Access::mapped(PageKind::Anon, true)));
            }
            (0..40).for_each(|page| _ = lru.access(page, Access::fd(false)));
            lru.switch(Switches::from_bits(1 - bits));
            assert_eq!(lru.access(0, Access::fd(false)), Hit::Refault);
            match lru.lru() {
                Lru::Multi(lru) => assert_eq!(lru.detail().recent_refaults, 0),
                Lru::Classic(lru) => assert_eq!(lru.sizes(PageKind::File).1, 0),
            }
        }
    }

    proptest! {
        #[test]
        fn switching_loses_nothing(
            steps in prop::collection::vec((0_u32..300, 0_u8..4, prop::option::weighted(0.02, 0_u32..8)), 1..1500),
            capacity in 1_u32..150,
        ) {
            let mut lru = Switched::new(MgConfig { batch: 4, ..MgConfig::new(capacity) }, ClassicConfig::scaled(capacity));
            for (page, way, switch) in steps {
                let how = match (page % 2, way) {
                    (0, way) => Access::mapped(PageKind::Anon, way == 0),
                    (_, 0) => Access::mapped(PageKind::File, false),
                    _ => Access::fd(way == 1),
                };
                lru.access(page, how);
                if let Some(bits) = switch {
                    let before = held(&lru, 300);
                    lru.switch(Switches::from_bits(bits));
                    prop_assert_eq!(held(&lru, 300), before);
                    if let Lru::Multi(multi) = lru.lru() {
                        let (lruvec, pages) = multi.parts();
                        prop_assert_eq!(check(lruvec, pages)?, u64::from(multi.resident()));
                    }
                }
            }
            let stats = lru.stats();
            prop_assert_eq!(stats.misses - stats.evictions, held(&lru, 300).len() as u64);
        }
    }
}
