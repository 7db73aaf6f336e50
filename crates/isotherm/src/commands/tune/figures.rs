//! What is measured of a run.

/// Runtime (seconds) and memory (bytes, mean over the run) of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figures {
    pub seconds: f64,
    pub memory: f64,
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
