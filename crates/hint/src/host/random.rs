//! Numbers that nobody guesses.

use std::fs::File;
use std::io::{self, Read};

/// One from the kernel.
pub fn number() -> io::Result<u64> {
    let mut bytes = [0; 8];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}
