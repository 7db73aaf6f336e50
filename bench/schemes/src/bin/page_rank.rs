//! PageRank on a graph as of web pages: `page_rank VERTICES ROUNDS`.
//!
//! Links are drawn so that few vertices have most of them (R-MAT, Chakrabarti, Zhan and Faloutsos 2004). They are collected in a
//! list that grows, sorted by counting, and followed round by round: reads at random places of the ranks. Nothing is asked of
//! the kernel, and nothing is done before the start: the time is that of the whole program. The check: ranks add up to 1.
#![forbid(unsafe_code)]

use isotherm_bench_schemes::numbers;
use isotherm_bench_schemes::random::Random;

const LINKS_PER_VERTEX: usize = 12;
const DAMPING: f64 = 0.85;

fn main() -> anyhow::Result<()> {
    let [vertices, rounds] = numbers("page_rank VERTICES ROUNDS")?;
    let bits = vertices.next_power_of_two().trailing_zeros();
    let count = 1usize << bits;
    let mut random = Random::new(11);
    let mut links: Vec<(u32, u32)> = Vec::new();
    for _ in 0..count * LINKS_PER_VERTEX {
        links.push(link(&mut random, bits));
    }
    let mut first = vec![0u32; count + 1];
    let mut out = vec![0u32; count];
    for &(from, to) in &links {
        first[to as usize + 1] += 1;
        out[from as usize] += 1;
    }
    for v in 0..count {
        first[v + 1] += first[v];
    }
    let mut next = first.clone();
    let mut sources = vec![0u32; links.len()];
    for &(from, to) in &links {
        let at = &mut next[to as usize];
        sources[*at as usize] = from;
        *at += 1;
    }
    drop(links);

    let mut ranks = vec![1.0 / count as f64; count];
    for _ in 0..rounds {
        let shares: Vec<f64> =
            ranks.iter().zip(&out).map(|(r, &o)| if o > 0 { r / f64::from(o) } else { 0.0 }).collect();
        let lost: f64 = ranks.iter().zip(&out).filter(|(_, o)| **o == 0).map(|(r, _)| r).sum();
        let base = (1.0 - DAMPING + DAMPING * lost) / count as f64;
        for (v, rank) in ranks.iter_mut().enumerate() {
            let of_links = &sources[first[v] as usize..first[v + 1] as usize];
            *rank = base + DAMPING * of_links.iter().map(|&s| shares[s as usize]).sum::<f64>();
        }
    }
    let sum: f64 = ranks.iter().sum();
    anyhow::ensure!((sum - 1.0).abs() < 1e-6, "the ranks add up to {sum}");
    Ok(())
}

/// A link between two vertices of `1 << bits`.
fn link(random: &mut Random, bits: u32) -> (u32, u32) {
    let (mut from, mut to) = (0, 0);
    for _ in 0..bits {
        // Quarters of the adjacency matrix, with the usual shares of 0.57, 0.19, 0.19 and 0.05.
        let (row, column) = match random.below(100) {
            0..57 => (0, 0),
            57..76 => (0, 1),
            76..95 => (1, 0),
            _ => (1, 1),
        };
        (from, to) = (from << 1 | row, to << 1 | column);
    }
    // The vertices' numbers say nothing of their degree.
    let scatter = |v: u32| v.wrapping_mul(0x9e37_79b1) & ((1 << bits) - 1);
    (scatter(from), scatter(to))
}
