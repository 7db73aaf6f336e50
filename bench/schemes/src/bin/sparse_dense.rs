//! Memory that huge pages help and memory that they bloat: `sparse_dense SPARSE_MIB DENSE_MIB ACCESSES`.
//!
//! Of the sparse area, one page in 2 MiB is used, now and then: with huge pages all of it gets memory. The dense area
//! is read and written at random places, each access depending on the one before: with huge pages that is faster. Every
//! write can be recomputed, which is the check.
#![forbid(unsafe_code)]

use isotherm_bench_schemes::random::{Random, mix};
use isotherm_bench_schemes::{finish, numbers, wait_for_start};

const HUGE: usize = 2 << 20;
/// Accesses to the dense area for one to the sparse area.
const DENSE_PER_SPARSE: u64 = 10_000;

fn main() -> anyhow::Result<()> {
    let [sparse_mib, dense_mib, accesses] = numbers("sparse_dense SPARSE_MIB DENSE_MIB ACCESSES")?;
    // Zeros: the allocator takes them fresh from the kernel, so that only what is touched gets memory.
    let mut sparse = vec![0u8; (sparse_mib << 20) as usize];
    let mut dense: Vec<u64> = (0..(dense_mib << 20) / 8).map(mix).collect();
    let steps = sparse.len() / HUGE;
    for i in 0..steps {
        sparse[place(i)] = 1;
    }
    let mut looks = 0u64;
    let mut random = Random::new(5);
    let words = dense.len() as u64;

    let begin = wait_for_start()?;
    let mut state = 1u64;
    let mut sum = 0u64;
    for n in 0..accesses {
        state = mix(state.wrapping_add(n));
        let word = &mut dense[((u128::from(state) * u128::from(words)) >> 64) as usize];
        state ^= *word;
        *word = word.wrapping_add(n);
        sum = sum.wrapping_add(n);
        if n % DENSE_PER_SPARSE == 0 {
            let at = &mut sparse[place(random.below(steps as u64) as usize)];
            *at = at.wrapping_add(1);
            looks += 1;
        }
    }
    finish(begin)?;

    let begun = (0..words).fold(0u64, |sum, i| sum.wrapping_add(mix(i)));
    let now = dense.iter().fold(0u64, |sum, &w| sum.wrapping_add(w));
    anyhow::ensure!(now == begun.wrapping_add(sum), "the dense area is wrong");
    let mut counts = vec![1u8; steps];
    let mut random = Random::new(5);
    for _ in 0..looks {
        let count = &mut counts[random.below(steps as u64) as usize];
        *count = count.wrapping_add(1);
    }
    let right = counts.iter().enumerate().all(|(i, &c)| sparse[place(i)] == c);
    anyhow::ensure!(right, "the sparse area is wrong");
    Ok(())
}

/// Where in the sparse area step `i` lies: one page in each 2 MiB, not always the same.
const fn place(i: usize) -> usize {
    i * HUGE + (i % 512) * 4096
}
