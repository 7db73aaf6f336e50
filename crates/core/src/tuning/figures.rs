//! What is measured of a run.

/// Runtime (seconds) and memory (bytes, mean over the run) of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figures {
    /// Runtime, s.
    pub seconds: f64,
    /// Memory, bytes.
    pub memory: f64,
}

/// What is known of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// Its runtime.
    pub seconds: f64,
    /// Resident memory of the command and of what it forked, mean over the run, bytes.
    pub memory: f64,
    /// Bytes that the scheme was applied to; `None` of the command alone.
    pub applied: Option<u64>,
    /// Why the scheme did nothing the last time that it could have.
    pub idle: Option<String>,
}

impl Measured {
    /// Its figures alone.
    pub fn figures(&self) -> Figures {
        Figures { seconds: self.seconds, memory: self.memory }
    }
}

/// The middle value; of an even number the mean of the two in the middle. `None` of none.
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let mid = values.len() / 2;
    match values.len() {
        0 => None,
        n if n % 2 == 1 => Some(values[mid]),
        _ => Some(f64::midpoint(values[mid - 1], values[mid])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median([]), None);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median([4.0, 1.0, 2.0]), Some(2.0));
    }
}
