//! The commands through the kernel's own control files.

use super::engine::KernelTarget;
use crate::exit::Usage;
use isotherm_core::addr::PAGE_SIZE;
use isotherm_core::keeper::kernel::KernelMemory;
use isotherm_core::keeper::lru_gen::KernelMemcg;
use isotherm_core::keeper::memory::Generation;
use isotherm_core::units::format_size;
use isotherm_linux::lru::error::KernelLruError;
use isotherm_linux::lru::kernel::KernelLru;
use std::cmp::Reverse;
use std::io;

/// What the commands ask of the kernel.
trait Control {
    /// The memories of all groups as they are now.
    fn look(&self) -> Result<Vec<KernelMemory>, KernelLruError>;
    /// Creates a generation.
    fn age(&self, memory: &KernelMemory) -> Result<(), KernelLruError>;
    /// Evicts generations up to `seq`, at most `pages` pages.
    fn evict(&self, memory: &KernelMemory, seq: u64, swappiness: u8, pages: u64) -> Result<(), KernelLruError>;
}

impl Control for KernelLru {
    fn look(&self) -> Result<Vec<KernelMemory>, KernelLruError> {
        Ok(self.read()?.into_iter().flat_map(KernelMemcg::into_memories).collect())
    }

    fn age(&self, memory: &KernelMemory) -> Result<(), KernelLruError> {
        Self::age(self, memory)
    }

    fn evict(&self, memory: &KernelMemory, seq: u64, swappiness: u8, pages: u64) -> Result<(), KernelLruError> {
        Self::evict(self, memory, seq, swappiness, pages)
    }
}

/// The first failure of commands to many groups: one that fails does not keep the others from being given.
#[derive(Debug, Default)]
struct Failures(Option<KernelLruError>);

impl Failures {
    /// Keeps why a command to `memory` failed, unless what it was for is so anyway.
    fn note(&mut self, control: &impl Control, memory: &KernelMemory, result: Result<(), KernelLruError>) {
        let Err(error) = result else { return };
        let kind = match &error {
            KernelLruError::Refused { source, .. } => source.kind(),
            _ => io::ErrorKind::Other,
        };
        let harmless = match kind {
            // The kernel created the generation meanwhile.
            io::ErrorKind::AlreadyExists => true,
            // Groups come and go; of one that has gone there is nothing left to do.
            io::ErrorKind::InvalidInput => control.look().is_ok_and(|now| find(&now, memory).is_none()),
            _ => false,
        };
        if !harmless {
            self.keep(error);
        }
    }

    fn keep(&mut self, error: KernelLruError) {
        self.0.get_or_insert(error);
    }

    fn finish(self) -> anyhow::Result<()> {
        self.0.map_or(Ok(()), |error| Err(anyhow::Error::msg(error)))
    }
}

/// `memory` among those that there are now. Numbers of groups are given again, so the path must be the same, too.
fn find<'a>(now: &'a [KernelMemory], memory: &KernelMemory) -> Option<&'a KernelMemory> {
    now.iter().find(|m| (m.id, m.node, &m.path) == (memory.id, memory.node, &memory.path))
}

/// `lru age`.
pub fn age(kernel: &KernelTarget) -> anyhow::Result<()> {
    age_all(&kernel.lru, &kernel.memories()?).finish()
}

fn age_all(control: &impl Control, all: &[KernelMemory]) -> Failures {
    let mut failures = Failures::default();
    all.iter().for_each(|memory| failures.note(control, memory, control.age(memory)));
    failures
}

/// `lru evict`.
pub fn evict(kernel: &KernelTarget, min_gen: Option<u64>, bytes: Option<u64>, swappiness: u8) -> anyhow::Result<()> {
    let all = kernel.memories()?;
    let is_young = |memory: &KernelMemory| min_gen > memory.evictable_seq();
    if let (Some(seq), true) = (min_gen, !all.is_empty() && all.iter().all(is_young)) {
        return Err(Usage(format!(
            "generation {seq} is one of the two youngest, which are never evicted; create one with `isotherm lru age` first"
        ))
        .into());
    }
    let mut failures = evict_oldest(&kernel.lru, &all, min_gen.unwrap_or(u64::MAX), bytes, swappiness);
    match kernel.lru.look() {
        Ok(now) => {
            let gone = |m: &KernelMemory| find(&now, m).map_or(0, |now| m.bytes().saturating_sub(now.bytes()));
            say!("about {} evicted by the kernel", format_size(all.iter().map(gone).sum()));
        }
        Err(error) => failures.keep(error),
    }
    failures.finish()
}

/// Evicts the generations up to `seq` of `all`, at most `bytes`.
fn evict_oldest(
    control: &impl Control,
    all: &[KernelMemory],
    seq: u64,
    bytes: Option<u64>,
    swappiness: u8,
) -> Failures {
    let mut failures = Failures::default();
    let mut left = bytes.unwrap_or(u64::MAX);
    let mut before = all.to_vec();
    for (memory, seq) in oldest_first(all, seq) {
        if left == 0 {
            break;
        }
        failures.note(control, memory, control.evict(memory, seq, swappiness, left.div_ceil(PAGE_SIZE)));
        if bytes.is_none() {
            continue;
        }
        let now = match control.look() {
            Ok(now) => now,
            // How much more may go cannot be known any longer.
            Err(error) => {
                failures.keep(error);
                break;
            }
        };
        // By these generations alone: they only shrink, while others grow meanwhile. What the kernel found in use and
        // made young counts as well, so it is never more than was asked for.
        if let (Some(before), Some(now)) = (find(&before, memory), find(&now, memory)) {
            left = left.saturating_sub(up_to(before, seq).saturating_sub(up_to(now, seq)));
        }
        before = now;
    }
    failures
}

/// Bytes in the generations up to `seq`.
fn up_to(memory: &KernelMemory, seq: u64) -> u64 {
    memory.generations.iter().filter(|g| g.seq <= seq).map(Generation::bytes).sum()
}

/// The generations up to `seq` that may be evicted, those first that were created first, whosever they are.
fn oldest_first(memories: &[KernelMemory], seq: u64) -> Vec<(&KernelMemory, u64)> {
    let mut found: Vec<(u64, &KernelMemory, u64)> = Vec::new();
    for memory in memories {
        let Some(most) = memory.evictable_seq() else { continue };
        let old = memory.generations.iter().filter(|g| g.seq <= most.min(seq));
        found.extend(old.map(|g| (g.age_ms, memory, g.seq)));
    }
    // Those of one memory stay in their order where they are equally old.
    found.sort_by_key(|&(age_ms, ..)| Reverse(age_ms));
    found.into_iter().map(|(_, memory, seq)| (memory, seq)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    const EIO: i32 = 5;
    const EEXIST: i32 = 17;
    const EINVAL: i32 = 22;

    fn memory(id: u32, ages: &[u64]) -> KernelMemory {
        let one = |(seq, &age_ms): (u64, &u64)| Generation { seq, age_ms, anon_bytes: 4096, file_bytes: 0 };
        KernelMemory { id, path: format!("/{id}"), node: 0, generations: (0..).zip(ages).map(one).collect() }
    }

    #[test]
    fn the_oldest_of_all_groups_go_first_and_the_two_youngest_of_each_stay() {
        let all = [memory(1, &[500, 400, 2, 1]), memory(2, &[9000, 450, 300, 0]), memory(3, &[7000, 6000])];
        let of = |seq| -> Vec<_> { oldest_first(&all, seq).iter().map(|(memory, seq)| (memory.id, *seq)).collect() };
        assert_eq!(of(u64::MAX), [(2, 0), (1, 0), (2, 1), (1, 1)]);
        assert_eq!(of(0), [(2, 0), (1, 0)]);
    }

    /// A kernel of which some groups refuse commands.
    struct Kernel {
        memories: RefCell<Vec<KernelMemory>>,
        refusals: Vec<(u32, i32)>,
        /// Pages by which the youngest generation of each grows with each command.
        growth: u64,
        commands: RefCell<Vec<u32>>,
        evicted: RefCell<u64>,
    }

    impl Kernel {
        fn new(memories: &[KernelMemory], refusals: &[(u32, i32)]) -> Self {
            Self {
                memories: RefCell::new(memories.to_vec()),
                refusals: refusals.to_vec(),
                growth: 0,
                commands: RefCell::default(),
                evicted: RefCell::default(),
            }
        }

        fn command(&self, id: u32) -> Result<(), KernelLruError> {
            self.commands.borrow_mut().push(id);
            match self.refusals.iter().find(|(refusing, _)| *refusing == id) {
                Some(&(id, errno)) => {
                    let source = io::Error::from_raw_os_error(errno);
                    Err(KernelLruError::Refused { command: format!("to {id}"), source })
                }
                None => Ok(()),
            }
        }
    }

    impl Control for Kernel {
        fn look(&self) -> Result<Vec<KernelMemory>, KernelLruError> {
            Ok(self.memories.borrow().clone())
        }

        fn age(&self, memory: &KernelMemory) -> Result<(), KernelLruError> {
            self.command(memory.id)
        }

        fn evict(&self, memory: &KernelMemory, seq: u64, _: u8, pages: u64) -> Result<(), KernelLruError> {
            self.command(memory.id)?;
            let (mut left, mut all) = (pages.saturating_mul(PAGE_SIZE), self.memories.borrow_mut());
            for group in all.iter_mut() {
                for generation in group.generations.iter_mut().filter(|g| group.id == memory.id && g.seq <= seq) {
                    let goes = generation.anon_bytes.min(left);
                    generation.anon_bytes -= goes;
                    left -= goes;
                    *self.evicted.borrow_mut() += goes;
                }
                group.generations.last_mut().unwrap().anon_bytes += self.growth * PAGE_SIZE;
            }
            Ok(())
        }
    }

    #[test]
    fn a_group_that_fails_does_not_keep_the_others_from_their_turn() {
        let all: Vec<KernelMemory> = (1..6).map(|id| memory(id, &[500, 400, 2, 1])).collect();
        let refusals = [(2, EIO), (1, EEXIST), (3, EINVAL), (4, EINVAL)];
        let without = |gone: u32| all.iter().filter(|m| m.id != gone).cloned().collect::<Vec<_>>();
        let kernel = Kernel::new(&without(3), &refusals);
        let why = |failures: Failures| failures.0.unwrap().to_string();
        assert!(why(age_all(&kernel, &all)).contains("to 2"), "the first that means something");
        assert_eq!(*kernel.commands.borrow(), [1, 2, 3, 4, 5]);
        let kernel = Kernel::new(&without(3), &refusals[1..]);
        assert!(why(evict_oldest(&kernel, &all, 0, None, 100)).contains("to 4"), "which is still there");
        assert_eq!((&**kernel.commands.borrow(), *kernel.evicted.borrow()), (&[1, 2, 3, 4, 5][..], 2 * PAGE_SIZE));
        let kernel = Kernel::new(&without(3), &refusals[1..3]);
        assert!(age_all(&kernel, &all).finish().is_ok(), "made by the kernel, and gone");
    }

    #[test]
    fn no_more_goes_than_was_asked_for_while_memory_grows() {
        let all: Vec<KernelMemory> = (1..6).map(|id| memory(id, &[500, 400, 2, 1])).collect();
        let kernel = Kernel { growth: 100, ..Kernel::new(&all, &[]) };
        assert!(evict_oldest(&kernel, &all, u64::MAX, Some(3 * PAGE_SIZE), 100).finish().is_ok());
        assert_eq!(*kernel.evicted.borrow(), 3 * PAGE_SIZE);
    }
}
