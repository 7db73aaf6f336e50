//! Numbers that nobody guesses, from the kernel.

use rustix::rand::{GetRandomFlags, getrandom};
use std::io;

/// That many bytes. Waits until the kernel has gathered enough to begin with, early after boot.
pub fn bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut at = 0;
    while at < N {
        match getrandom(&mut bytes[at..], GetRandomFlags::empty()) {
            Ok(n) => at += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(bytes)
}

/// A number.
pub fn number() -> io::Result<u64> {
    Ok(u64::from_le_bytes(bytes()?))
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_two_are_the_same() {
        assert_ne!(super::bytes::<300>().unwrap(), [0; 300]);
        assert_ne!(super::bytes::<16>().unwrap(), super::bytes().unwrap());
    }
}
