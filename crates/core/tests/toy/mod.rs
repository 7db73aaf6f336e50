//! A memory that a test can see through: every page of the hot ranges is accessed all the time, nothing else ever.

use isotherm_core::addr::{AddrRange, PAGE_SIZE, TABLE_SPAN};
use isotherm_core::bits::{TableBits, Window};
use isotherm_core::mapping::Mapping;
use isotherm_core::source::{AccessSource, Clear, Cost, SourceError};
use isotherm_core::target::TargetId;
use isotherm_core::target::TargetInfo;
use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::Rc;

/// What the test changes while the monitor runs.
#[derive(Debug, Default)]
pub struct World {
    pub mappings: Vec<AddrRange>,
    pub hot: Vec<AddrRange>,
    pub blind: Vec<AddrRange>,
    pub gone: bool,
    /// Pages that were paged out; a hot one comes back as soon as anybody looks.
    pub out: HashSet<u64>,
    /// Windows that were asked for outside every mapping.
    pub strays: Vec<Window>,
    pub cost: Cost,
    /// What each observation costs the monitor, ns.
    pub price_ns: u64,
}

#[derive(Debug)]
pub struct Toy {
    pub world: Rc<RefCell<World>>,
    announced: bool,
    /// Cold pages whose bit from being populated was cleared.
    cleared: HashSet<u64>,
}

impl Toy {
    pub fn new(world: &Rc<RefCell<World>>) -> Self {
        Self { world: world.clone(), announced: false, cleared: HashSet::new() }
    }

    fn page(&self, world: &World, addr: u64) -> (bool, bool, bool) {
        let within = |list: &[AddrRange]| list.iter().any(|r| r.contains(addr));
        let present = within(&world.mappings) && !world.out.contains(&addr);
        let blind = within(&world.blind);
        (present, !blind && present && (within(&world.hot) || !self.cleared.contains(&addr)), present && blind)
    }

    fn see(&mut self, windows: &mut [Window], clear: bool) -> Result<(), SourceError> {
        let world = self.world.clone();
        let mut world = world.borrow_mut();
        if world.gone {
            return Err(SourceError::Gone { target: 0, pid: 1 });
        }
        for w in windows {
            w.seen = Default::default();
            w.seen.leaf_shift = 12;
            let range = w.range();
            if w.pages == 0 || !world.mappings.iter().any(|m| m.start <= range.start && range.end <= m.end) {
                world.strays.push(*w);
            }
            for addr in (range.start..range.end).step_by(PAGE_SIZE as usize) {
                if world.hot.iter().any(|r| r.contains(addr)) {
                    world.out.remove(&addr);
                }
                let (present, accessed, blind) = self.page(&world, addr);
                w.seen.present += u16::from(present);
                w.seen.accessed += u16::from(accessed);
                w.seen.blind += u16::from(blind);
                if clear && present {
                    self.cleared.insert(addr);
                }
            }
            world.cost.pages_read += u64::from(w.pages);
            world.cost.monitor_ns += world.price_ns;
        }
        Ok(())
    }
}

impl AccessSource for Toy {
    fn name(&self) -> &'static str {
        "toy"
    }

    fn poll_targets(&mut self) -> Result<Vec<TargetInfo>, SourceError> {
        let first = !std::mem::replace(&mut self.announced, true);
        Ok(first.then(|| TargetInfo { target: 0, pid: Some(1), name: "toy".into() }).into_iter().collect())
    }

    fn mappings(&mut self, _target: TargetId, out: &mut Vec<Mapping>) -> Result<(), SourceError> {
        let world = self.world.borrow();
        if world.gone {
            return Err(SourceError::Gone { target: 0, pid: 1 });
        }
        out.clear();
        out.extend(world.mappings.iter().map(|r| Mapping::anon(r.start, r.end)));
        Ok(())
    }

    fn arm(&mut self, _target: TargetId, windows: &mut [Window]) -> Result<(), SourceError> {
        self.see(windows, true)
    }

    fn look(&mut self, _target: TargetId, windows: &mut [Window]) -> Result<(), SourceError> {
        self.see(windows, false)
    }

    fn scan(
        &mut self,
        _target: TargetId,
        ranges: &[AddrRange],
        mut clear: Clear<'_>,
        sink: &mut dyn FnMut(&TableBits),
    ) -> Result<(), SourceError> {
        let mut bases: Vec<u64> = Vec::new();
        for r in ranges {
            let first = r.start & !(TABLE_SPAN - 1);
            bases.extend((first..r.end).step_by(TABLE_SPAN as usize));
        }
        bases.dedup();
        for base in bases {
            let mut t = TableBits::empty(base);
            for i in 0..512u64 {
                let addr = base + i * PAGE_SIZE;
                if !ranges.iter().any(|r| r.contains(addr)) {
                    continue;
                }
                let mut w = [Window::new(addr, 1)];
                self.see(&mut w, false)?;
                let (word, bit) = ((i / 64) as usize, 1u64 << (i % 64));
                t.present[word] |= if w[0].seen.present > 0 { bit } else { 0 };
                t.accessed[word] |= if w[0].seen.accessed > 0 { bit } else { 0 };
                t.blind[word] |= if w[0].seen.blind > 0 { bit } else { 0 };
            }
            t.cleared = clear.choose(&t);
            for i in isotherm_core::mask::iter(&t.cleared) {
                self.see(&mut [Window::new(base + i as u64 * PAGE_SIZE, 1)], true)?;
            }
            if t.present != [0; 8] {
                sink(&t);
            }
        }
        Ok(())
    }

    fn cost(&self) -> Cost {
        self.world.borrow().cost
    }
}
