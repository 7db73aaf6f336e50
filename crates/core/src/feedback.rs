//! The feedback function that quota goals and interval tuning share.

/// A score that means "on target".
pub(crate) const GOAL: u64 = 10_000;
const MIN_INPUT: u64 = 10_000;

/// The next input of a loop whose last input gave `score` (10 000 means on target): proportional, at most doubled below
/// the goal, never below 10 000.
///
/// Source of the formula: DAMON's feedback loop (kernel `mm/damon/core.c`); see docs/algorithm.md.
pub(crate) fn next_input(last: u64, score: u64) -> u64 {
    if score == GOAL {
        return last;
    }
    if score >= 2 * GOAL {
        return MIN_INPUT;
    }
    let compensation = (u128::from(last) * u128::from(score.abs_diff(GOAL)) / u128::from(GOAL)) as u64;
    if score < GOAL { last.saturating_add(compensation) } else { last.saturating_sub(compensation).max(MIN_INPUT) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_the_published_vectors() {
        assert_eq!(next_input(1_000_000, GOAL), 1_000_000);
        assert_eq!(next_input(1_000_000, 0), 2_000_000);
        assert_eq!(next_input(1_000_000, 5_000), 1_500_000);
        assert_eq!(next_input(1_000_000, 15_000), 500_000);
        assert_eq!(next_input(1_000_000, 20_000), 10_000);
        assert_eq!(next_input(10_000, 19_999), 10_000);
    }
}
