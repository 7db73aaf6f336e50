//! Which targets rest: none of their threads has run for some time.
//!
//! Only a thread that runs sets accessed bits in its process's page tables. So what a walk has seen holds for as long as the
//! CPU time of the process stays the same, and asking for that costs next to nothing beside another walk; nor has any of its
//! pages been accessed since, whatever their bits say.

use crate::clock::Clock;
use crate::source::AccessSource;
use crate::target::TargetId;
use std::collections::HashMap;

/// For each target, the CPU time that it was last seen to have spent, and since when; `None`: all are taken to run.
#[derive(Debug, Default)]
pub(super) struct Rests(Option<HashMap<TargetId, Rest>>);

#[derive(Debug, Clone, Copy)]
struct Rest {
    cpu_ns: u64,
    since_ns: u64,
}

impl Rests {
    /// Targets are looked at from now on.
    pub fn begin(&mut self) {
        self.0 = Some(HashMap::new());
    }

    /// Since when a target has certainly not run, ns, as `source` tells now; `None` where it may have since the last call.
    pub fn look<S: AccessSource>(&mut self, source: &mut S, target: TargetId, clock: &dyn Clock) -> Option<u64> {
        self.0.as_ref()?;
        let cpu_ns = source.cpu_ns(target);
        // Read afterwards: what it ran before this moment is in `cpu_ns`.
        self.note(target, cpu_ns, clock.now_ns())
    }

    /// The same of a target that had spent `cpu_ns` shortly before `now_ns`; `None`: nobody knows.
    pub fn note(&mut self, target: TargetId, cpu_ns: Option<u64>, now_ns: u64) -> Option<u64> {
        let known = self.0.as_mut()?;
        let Some(cpu_ns) = cpu_ns else {
            known.remove(&target);
            return None;
        };
        match known.get(&target) {
            Some(rest) if rest.cpu_ns == cpu_ns => Some(rest.since_ns),
            _ => {
                known.insert(target, Rest { cpu_ns, since_ns: now_ns });
                None
            }
        }
    }

    /// Forgets a target.
    pub fn forget(&mut self, target: TargetId) {
        if let Some(known) = &mut self.0 {
            known.remove(&target);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_spent_nothing_since_rests() {
        let mut rests = Rests::default();
        assert_eq!((rests.note(1, Some(7), 1), rests.note(1, Some(7), 2)), (None, None), "nobody looks");
        rests.begin();
        assert_eq!(rests.note(1, Some(7), 10), None, "never asked before");
        assert_eq!(rests.note(1, Some(7), 20), Some(10));
        assert_eq!(rests.note(2, Some(7), 20), None, "another one");
        assert_eq!(rests.note(1, Some(8), 30), None, "it has run");
        assert_eq!(rests.note(1, Some(8), 40), Some(30));
        assert_eq!(rests.note(1, None, 50), None);
        assert_eq!(rests.note(1, Some(8), 60), None, "nobody knows what was in between");
        rests.forget(1);
        assert_eq!(rests.note(1, Some(8), 70), None);
    }
}
