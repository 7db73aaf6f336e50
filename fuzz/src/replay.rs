//! A target on its corpus and on damaged copies of that: what `make test` runs of the fuzzing. Included by the tests of
//! the crates that have the targets.

use std::path::PathBuf;

/// Damaged copies of each file.
const COPIES: u64 = 1000;

/// Where a target's files are.
pub fn folder(target: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target)
}

/// Runs it. Which file, and which copy of it, breaks a promise is said before it is read.
pub fn corpus(target: &str, run: fn(&[u8])) {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder(target)).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "there is no corpus of {target}");
    for file in files {
        let bytes = std::fs::read(&file).unwrap();
        println!("{}", file.display());
        run(&bytes);
        for seed in 0..COPIES {
            println!("copy {seed}");
            run(&damaged(&bytes, seed));
        }
    }
}

/// Changed at one to four places, in a way that the seed decides.
fn damaged(bytes: &[u8], seed: u64) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut roll = |sides: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as usize % sides.max(1)
    };
    for _ in 0..=roll(4) {
        let at = roll(bytes.len());
        let end = (at + 1 + roll(16)).min(bytes.len());
        match roll(6) {
            _ if bytes.is_empty() => bytes.push(roll(256) as u8),
            0 => bytes[at] ^= 1 << roll(8),
            1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff, b'\n', b'9', b'-'][roll(8)],
            2 => drop(bytes.drain(at..end)),
            3 => {
                let again = bytes[at..end].to_vec();
                bytes.splice(at..at, again);
            }
            4 => bytes.truncate(at),
            _ => bytes[at..end].fill(0xff),
        }
    }
    bytes
}
