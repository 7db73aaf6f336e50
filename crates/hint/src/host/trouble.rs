//! What is wrong with connections that belong to no guest.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long it is shown. Within that time nothing of the same weight takes its place: whoever causes it again and again
/// does not fill the log.
const TOLD_FOR: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Weight {
    /// One connection was closed.
    Closed,
    /// Others may not get through.
    Full,
}

/// The last of it.
#[derive(Debug, Default)]
pub(super) struct Trouble(Mutex<Option<(Instant, Weight, String)>>);

impl Trouble {
    pub(super) fn note(&self, weight: Weight, what: String) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if last.as_ref().is_none_or(|(at, known, _)| at.elapsed() >= TOLD_FOR || *known < weight) {
            *last = Some((Instant::now(), weight, what));
        }
    }

    pub(super) fn latest(&self) -> Option<String> {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().filter(|(at, _, _)| at.elapsed() < TOLD_FOR).map(|(_, _, what)| what.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_weighs_more_is_told() {
        let trouble = Trouble::default();
        assert_eq!(trouble.latest(), None);
        for (weight, what, reported) in [
            (Weight::Closed, "a", "a"),
            (Weight::Closed, "b", "a"),
            (Weight::Full, "c", "c"),
            (Weight::Closed, "d", "c"),
        ] {
            trouble.note(weight, what.into());
            assert_eq!(trouble.latest().as_deref(), Some(reported));
        }
    }
}
