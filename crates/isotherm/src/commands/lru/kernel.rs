//! The commands through the kernel's own control files.

use super::engine::KernelTarget;
use crate::exit::Usage;
use isotherm_core::addr::PAGE_SIZE;
use isotherm_core::keeper::MIN_GENS;
use isotherm_core::keeper::memory::Generation;
use isotherm_core::units::format_size;
use isotherm_linux::roots::Roots;

/// A memory on a node.
pub struct Place {
    /// The memory's number.
    pub memcg: u32,
    /// The node.
    pub node: u32,
    /// Its generations, the oldest first.
    pub generations: Vec<Generation>,
}

impl Place {
    /// The youngest generation.
    pub fn max_seq(&self) -> u64 {
        self.generations.last().map_or(0, |g| g.seq)
    }

    /// Bytes in all generations.
    pub fn bytes(&self) -> u64 {
        self.generations.iter().map(|g| g.anon_bytes + g.file_bytes).sum()
    }
}

/// Everything below the targets' control groups.
pub fn places(kernel: &KernelTarget) -> anyhow::Result<Vec<Place>> {
    let mut out: Vec<Place> = Vec::new();
    for path in &kernel.paths {
        for memcg in kernel.lru.of_group(path).map_err(anyhow::Error::msg)? {
            if out.iter().any(|p| p.memcg == memcg.id) {
                continue;
            }
            let place = |(node, generations)| Place { memcg: memcg.id, node, generations };
            out.extend(memcg.nodes.into_iter().map(place).filter(|p| !p.generations.is_empty()));
        }
    }
    Ok(out)
}

/// Whether anonymous memory has somewhere to go.
pub fn has_swap() -> bool {
    Roots::system().read("/proc/swaps").is_ok_and(|text| text.lines().count() > 1)
}

/// `lru age`.
pub fn age(kernel: &KernelTarget) -> anyhow::Result<()> {
    for place in places(kernel)? {
        kernel.lru.age(place.memcg, place.node, place.max_seq()).map_err(anyhow::Error::msg)?;
    }
    Ok(())
}

/// `lru evict`.
pub fn evict(kernel: &KernelTarget, min_gen: Option<u64>, bytes: Option<u64>, swappiness: u8) -> anyhow::Result<()> {
    let before: u64 = places(kernel)?.iter().map(Place::bytes).sum();
    let mut left = bytes.unwrap_or(u64::MAX).div_ceil(PAGE_SIZE);
    let all = places(kernel)?;
    let mut young = 0;
    for place in &all {
        let Some(most) = place.max_seq().checked_sub(MIN_GENS) else { continue };
        let seq = min_gen.unwrap_or(most);
        if seq > most {
            young += 1;
            continue;
        }
        if left == 0 {
            break;
        }
        kernel.lru.evict(place.memcg, place.node, seq, swappiness, left).map_err(anyhow::Error::msg)?;
        if bytes.is_some() {
            let now: u64 = places(kernel)?.iter().map(Place::bytes).sum();
            left = (bytes.unwrap_or(0).saturating_sub(before.saturating_sub(now))).div_ceil(PAGE_SIZE);
        }
    }
    let after: u64 = places(kernel)?.iter().map(Place::bytes).sum();
    if let (Some(seq), true) = (min_gen, young > 0 && young == all.len()) {
        return Err(Usage(format!(
            "generation {seq} is one of the two youngest, which are never evicted; create one with `isotherm lru age` first"
        ))
        .into());
    }
    eprintln!("about {} evicted by the kernel", format_size(before.saturating_sub(after)));
    Ok(())
}
