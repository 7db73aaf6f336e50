//! The commands through the kernel's own control files.

use super::engine::KernelTarget;
use crate::exit::Usage;
use isotherm_core::addr::PAGE_SIZE;
use isotherm_core::keeper::kernel::KernelMemory;
use isotherm_core::units::format_size;

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
    let mut left = bytes.unwrap_or(u64::MAX).div_ceil(PAGE_SIZE);
    let mut young = 0;
    for memory in &all {
        let Some(most) = memory.evictable_seq() else { continue };
        let seq = min_gen.unwrap_or(most);
        if seq > most {
            young += 1;
            continue;
        }
        if left == 0 {
            break;
        }
        kernel.lru.evict(memory, seq, swappiness, left).map_err(anyhow::Error::msg)?;
        if let Some(bytes) = bytes {
            left = bytes.saturating_sub(before.saturating_sub(resident()?)).div_ceil(PAGE_SIZE);
        }
    }
    let after = resident()?;
    if let (Some(seq), true) = (min_gen, young > 0 && young == all.len()) {
        return Err(Usage(format!(
            "generation {seq} is one of the two youngest, which are never evicted; create one with `isotherm lru age` first"
        ))
        .into());
    }
    say!("about {} evicted by the kernel", format_size(before.saturating_sub(after)));
    Ok(())
}
