//! A stencil kernel: `stencil SIDE TABLE_MIB STEPS`.
//!
//! Two grids of SIDE x SIDE 64-bit cells (a torus) are computed from each other in turn: a cell becomes the sum of its
//! four neighbours, modulo 2^64. A large table, filled at the start, is asked for a few values every 100 steps.
//! Whatever the cells are, the sum over the grid is multiplied by four in each step, and the values taken from the
//! table add to it: that is the check, together with the table's own sum.
#![forbid(unsafe_code)]

use isotherm_bench_schemes::random::{Random, mix};
use isotherm_bench_schemes::{finish, numbers, wait_for_start};

/// Steps between two looks into the table.
const LOOK_EVERY: u64 = 100;
/// Values taken at each look.
const VALUES: u64 = 16;

fn main() -> anyhow::Result<()> {
    let [side, table_mib, steps] = numbers("stencil SIDE TABLE_MIB STEPS")?;
    anyhow::ensure!(side >= 3, "SIDE must be 3 or more");
    let side = side as usize;
    let table: Vec<u64> = (0..(table_mib << 20) / 8).map(value).collect();
    let mut grid: Vec<u64> = (0..(side * side) as u64).map(|i| mix(i) >> 32).collect();
    let mut next = grid.clone();
    let mut expected = sum(&grid);
    let mut random = Random::new(3);

    let begin = wait_for_start()?;
    for step in 0..steps {
        advance(&grid, &mut next, side);
        std::mem::swap(&mut grid, &mut next);
        expected = expected.wrapping_mul(4);
        if step % LOOK_EVERY == 0 {
            for _ in 0..VALUES {
                let place = random.below(table.len() as u64);
                let cell = random.below(grid.len() as u64) as usize;
                grid[cell] = grid[cell].wrapping_add(table[place as usize]);
                expected = expected.wrapping_add(value(place));
            }
        }
    }
    anyhow::ensure!(sum(&grid) == expected, "the grid is wrong");
    finish(begin)?;
    // After the time is taken: reading all of the table is no part of the work.
    let right = table.iter().enumerate().all(|(i, &v)| v == value(i as u64));
    anyhow::ensure!(right, "the table is not what it was");
    Ok(())
}

/// Value number `i` of the table.
const fn value(i: u64) -> u64 {
    mix(i) >> 32
}

fn sum(grid: &[u64]) -> u64 {
    grid.iter().fold(0, |a, &b| a.wrapping_add(b))
}

fn advance(from: &[u64], to: &mut [u64], side: usize) {
    let row = |y: usize| &from[y * side..(y + 1) * side];
    for (y, out) in to.chunks_mut(side).enumerate() {
        let (above, here, below) = (row((y + side - 1) % side), row(y), row((y + 1) % side));
        let cell = |x: usize, left: usize, right: usize| {
            above[x].wrapping_add(below[x]).wrapping_add(here[left]).wrapping_add(here[right])
        };
        out[0] = cell(0, side - 1, 1);
        out[side - 1] = cell(side - 1, side - 2, 0);
        let inner = out[1..side - 1].iter_mut().zip(&above[1..]).zip(&below[1..]).zip(here.windows(3));
        for (((cell, above), below), here) in inner {
            *cell = above.wrapping_add(*below).wrapping_add(here[0]).wrapping_add(here[2]);
        }
    }
}
