//! The lengths of time that memory is counted by.

/// Ages at which idle memory is counted, ns: the windows of working sets and the thresholds of cold memory.
pub const AGES_NS: [u64; 16] = {
    const S: u64 = 1_000_000_000;
    [
        S,
        2 * S,
        5 * S,
        10 * S,
        30 * S,
        60 * S,
        120 * S,
        240 * S,
        300 * S,
        480 * S,
        900 * S,
        1800 * S,
        3600 * S,
        7200 * S,
        14_400 * S,
        28_800 * S,
    ]
};

/// Idle times that are distinguished, ns: none, and each of [`AGES_NS`] but five minutes, as Parquet files have them.
pub const IDLE_NS: [u64; AGES_NS.len()] = {
    const LEFT_OUT_NS: u64 = 300_000_000_000;
    let mut times = [0; AGES_NS.len()];
    let (mut age, mut time) = (0, 1);
    while age < AGES_NS.len() {
        if AGES_NS[age] != LEFT_OUT_NS {
            times[time] = AGES_NS[age];
            time += 1;
        }
        age += 1;
    }
    assert!(time == times.len(), "one of the ages is left out");
    times
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parquet_files_keep_their_idle_times() {
        let seconds = [0, 1, 2, 5, 10, 30, 60, 120, 240, 480, 900, 1800, 3600, 7200, 14_400, 28_800];
        assert_eq!(IDLE_NS.map(|ns| ns / 1_000_000_000), seconds);
    }
}
