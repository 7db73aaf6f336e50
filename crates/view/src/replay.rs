//! Where reports get their events from.

use crate::error::ViewError;
use crate::keyed::Keyed;
use isotherm_core::event::Event;
use isotherm_core::snapshot::Snapshot;

/// Takes one event; an error ends the replay and is handed to the caller.
pub type Sink<'a> = dyn FnMut(&Event) -> Result<(), ViewError> + 'a;

/// Events that can be read from the beginning any number of times: a record file, or a slice.
pub trait Replay {
    /// Hands every event to `sink`, in the order it happened.
    fn replay(&self, sink: &mut Sink) -> Result<(), ViewError>;
}

impl Replay for [Event] {
    fn replay(&self, sink: &mut Sink) -> Result<(), ViewError> {
        self.iter().try_for_each(sink)
    }
}

impl Replay for Vec<Event> {
    fn replay(&self, sink: &mut Sink) -> Result<(), ViewError> {
        self.as_slice().replay(sink)
    }
}

/// Hands every snapshot of `target` (or of all targets) to `sink`. That there is none is an error.
pub(crate) fn for_each_snapshot(
    events: &dyn Replay,
    target: Option<u32>,
    sink: &mut dyn FnMut(&Snapshot) -> Result<(), ViewError>,
) -> Result<(), ViewError> {
    check_targets(events, target, &mut |event| match event {
        Event::Snapshot(s) if target.is_none_or(|t| t == s.target) => sink(s),
        _ => Ok(()),
    })
}

/// Hands every event to `sink`. That there is no snapshot of `target` (or of any target) is an error.
pub(crate) fn check_targets(events: &dyn Replay, target: Option<u32>, sink: &mut Sink) -> Result<(), ViewError> {
    let mut have = Keyed::new();
    events.replay(&mut |event| {
        if let Event::Snapshot(s) = event {
            have.entry(s.target, || s.target);
        }
        sink(event)
    })?;
    let have = have.into_items();
    match target {
        _ if have.is_empty() => Err(ViewError::NoSnapshot),
        Some(target) if !have.contains(&target) => Err(ViewError::NoTarget { target, have }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdata::snapshot;

    #[test]
    fn targets_are_named_in_the_order_in_which_they_came() {
        let events: Vec<Event> =
            [7, 2, 7, 5, 2].into_iter().zip(0..).map(|(t, i)| Event::Snapshot(snapshot(t, i, Vec::new()))).collect();
        let mut seen = 0;
        let result = check_targets(&events, Some(3), &mut |_| {
            seen += 1;
            Ok(())
        });
        assert!(matches!(result, Err(ViewError::NoTarget { target: 3, have }) if have == [7, 2, 5]));
        assert_eq!(seen, 5);
        assert!(check_targets(&events, Some(5), &mut |_| Ok(())).is_ok());
        assert!(matches!(check_targets(&Vec::<Event>::new(), None, &mut |_| Ok(())), Err(ViewError::NoSnapshot)));
    }
}
