//! Sends pages of our own to swap and brings them back: what a fault costs a program here.

use super::scratch::Scratch;
use std::io;
use std::time::Instant;

/// Pages out `pages` pages of our own (each holding some data), touches them again one by one, and returns the time of
/// each touch in ns. Pages that did not go (no swap, no room) are left out.
pub fn round_trip(pages: usize) -> io::Result<Vec<u64>> {
    let scratch = Scratch::new(pages)?;
    (0..pages).for_each(|i| scratch.fill(i));
    scratch.page_out()?;
    let gone = scratch.absent()?;
    let touch = |i: usize| {
        let begin = Instant::now();
        scratch.touch(i);
        begin.elapsed().as_nanos() as u64
    };
    Ok((0..pages).filter(|&i| gone[i]).map(touch).collect())
}
