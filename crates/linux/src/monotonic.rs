//! The time of day that nobody sets: CLOCK_MONOTONIC.

/// Now, in ns of CLOCK_MONOTONIC.
pub fn now_ns() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is a valid timespec for the kernel to fill; CLOCK_MONOTONIC exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    #[test]
    fn time_does_not_go_back() {
        let (a, b) = (super::now_ns(), super::now_ns());
        assert!(a > 0 && b >= a);
    }
}
