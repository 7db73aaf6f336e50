//! Policies that are replayed at once, and what comes out for each.

/// How many warm-ups are distinguished.
pub const WARMUPS: usize = 6;

/// Which policies are replayed.
#[derive(Debug, Clone, PartialEq)]
pub struct Grid {
    /// Of what was accessed, what may come back a minute.
    pub rate: f64,
    /// For how long a group is left alone, s, ascending.
    pub warmups_s: [u64; WARMUPS],
    /// 0 to 1.
    pub percentiles: Vec<f64>,
    /// Windows from then on are part 1, s since 1970.
    pub split_s: u64,
}

/// What came out for one percentile, job of a host, part of time, and threshold.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Answer {
    pub k: f64,
    pub host: String,
    pub job: String,
    /// 0: before the split, 1: after it.
    pub part: usize,
    pub window_s: u64,
    /// How many of the grid's warm-ups the group had lived for.
    pub warmup: usize,
    /// Entry of the list of idle times; 16: none; `None`: not known yet.
    pub threshold: Option<usize>,
    pub windows: u64,
    /// Those in which something was taken, and what came back and what was accessed are known.
    pub judged: u64,
    /// Sums over windows, bytes. What is saved is of those windows for which it is known, what is promoted and accessed of those
    /// that are judged.
    pub resident: u64,
    pub possible: u64,
    pub saved: u64,
    pub promoted: u64,
    pub accessed: u64,
    /// Windows in which more came back than allowed.
    pub broken: u64,
}
