//! The commands through the kernel's own control files.

use super::engine::KernelTarget;
use crate::exit::Usage;
use isotherm_core::addr::PAGE_SIZE;
use isotherm_core::keeper::kernel::KernelMemory;
use isotherm_core::units::format_size;
use std::cmp::Reverse;

/// `lru age`.
pub fn age(kernel: &KernelTarget) -> anyhow::Result<()> {
    for memory in kernel.memories()? {
        kernel.lru.age(&memory).map_err(anyhow::Error::msg)?;
    }
    Ok(())
}

/// `lru evict`.
pub fn evict(kernel: &KernelTarget, min_gen: Option<u64>, bytes: Option<u64>, swappiness: u8) -> anyhow::Result<()> {
    let resident = || Ok::<u64, anyhow::Error>(kernel.memories()?.iter().map(KernelMemory::bytes).sum());
    let all = kernel.memories()?;
    let before: u64 = all.iter().map(KernelMemory::bytes).sum();
    let is_young = |memory: &KernelMemory| min_gen > memory.evictable_seq();
    if let (Some(seq), true) = (min_gen, !all.is_empty() && all.iter().all(is_young)) {
        return Err(Usage(format!(
            "generation {seq} is one of the two youngest, which are never evicted; create one with `isotherm lru age` first"
        ))
        .into());
    }
    let steps = oldest_first(&all, min_gen.unwrap_or(u64::MAX));
    let mut left = bytes.unwrap_or(u64::MAX).div_ceil(PAGE_SIZE);
    for (memory, seq) in steps {
        if left == 0 {
            break;
        }
        kernel.lru.evict(memory, seq, swappiness, left).map_err(anyhow::Error::msg)?;
        if let Some(bytes) = bytes {
            left = bytes.saturating_sub(before.saturating_sub(resident()?)).div_ceil(PAGE_SIZE);
        }
    }
    say!("about {} evicted by the kernel", format_size(before.saturating_sub(resident()?)));
    Ok(())
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
    use isotherm_core::keeper::memory::Generation;

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
}
