//! What a dead predecessor left isolated, until it is put back; and the host's welcome, which waits for that.

/// How long to wait after an attempt to put it back that failed, ns.
const RETRY_NS: u64 = 1_000_000_000;

/// A welcome that nothing was begun with yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Greeting {
    /// Ranges that the host takes in a report.
    pub(super) ranges: usize,
    /// Whether it is another host than the one that was worked with before, or the first.
    pub(super) new_host: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// A host may still act upon a report of it.
    Reported,
    /// Nobody will act upon that any more: it can be put back.
    Settled {
        /// Not to be tried before (CLOCK_MONOTONIC, ns).
        retry_ns: u64,
    },
    Nothing,
}

/// What is left, and who waits for it.
#[derive(Debug)]
pub(super) struct Leftover {
    state: State,
    greeting: Option<Greeting>,
}

impl Leftover {
    /// `there`: something is left, and a report of it may be on its way.
    pub(super) const fn new(there: bool) -> Self {
        Self { state: if there { State::Reported } else { State::Nothing }, greeting: None }
    }

    /// Whether something is left.
    pub(super) fn is_there(&self) -> bool {
        self.state != State::Nothing
    }

    /// Whether something is left that a host may still drop.
    pub(super) fn may_be_dropped(&self) -> bool {
        self.state == State::Reported
    }

    /// Nobody will act any more upon what a predecessor reported. That stays so: of what is left nothing is reported again.
    pub(super) fn settled(&mut self) {
        if self.state == State::Reported {
            self.state = State::Settled { retry_ns: 0 };
        }
    }

    /// When to try to put it back (CLOCK_MONOTONIC, ns); `None` if that is not to be tried.
    pub(super) const fn due_ns(&self) -> Option<u64> {
        match self.state {
            State::Settled { retry_ns } => Some(retry_ns),
            State::Reported | State::Nothing => None,
        }
    }

    /// Tries it by `put_back` if it is due, and if that fails again later. `None` if it was not due.
    pub(super) fn put_back<E>(
        &mut self,
        now_ns: u64,
        put_back: impl FnOnce() -> Result<(), E>,
    ) -> Option<Result<(), E>> {
        if self.due_ns().is_none_or(|due| now_ns < due) {
            return None;
        }
        let result = put_back();
        self.state = match result {
            Ok(()) => State::Nothing,
            Err(_) => State::Settled { retry_ns: now_ns.saturating_add(RETRY_NS) },
        };
        Some(result)
    }

    /// A host has welcomed us.
    pub(super) fn welcomed(&mut self, greeting: Greeting) {
        // A host that went before anything was begun with it is still new when it comes again.
        let new_host = greeting.new_host || self.greeting.is_some_and(|old| old.new_host);
        self.greeting = Some(Greeting { new_host, ..greeting });
    }

    /// The welcome to begin with, once; not while something is left: what cannot be put back is not mixed with what is taken
    /// anew.
    pub(super) fn begin(&mut self) -> Option<Greeting> {
        if self.is_there() { None } else { self.greeting.take() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Greeting = Greeting { ranges: 64, new_host: true };

    #[test]
    fn it_is_put_back_once_nobody_can_drop_it_and_tried_each_second() {
        let mut left = Leftover::new(true);
        left.welcomed(FIRST);
        assert_eq!(left.put_back(5, || Err("not yet")), None, "a report may be on its way");
        assert!(left.may_be_dropped());
        left.settled();
        assert_eq!(left.put_back(5, || Err("busy")), Some(Err("busy")));
        // A port that stays closed says it again and again.
        left.settled();
        assert!(left.is_there() && !left.may_be_dropped(), "that is known from now on");
        assert_eq!((left.due_ns(), left.begin()), (Some(RETRY_NS + 5), None));
        assert_eq!(left.put_back(RETRY_NS, || Ok::<(), ()>(())), None, "too soon");
        assert_eq!(left.put_back(RETRY_NS + 5, || Ok::<(), ()>(())), Some(Ok(())));
        assert_eq!((left.is_there(), left.due_ns()), (false, None));
        assert_eq!((left.begin(), left.begin()), (Some(FIRST), None), "the host has waited for it");
        left.settled();
        assert!(!left.is_there());
    }

    #[test]
    fn a_host_that_comes_again_is_new_until_something_is_begun() {
        let again = Greeting { ranges: 8, new_host: false };
        let mut left = Leftover::new(true);
        left.welcomed(FIRST);
        left.welcomed(again);
        left.settled();
        left.put_back(0, || Ok::<(), ()>(()));
        assert_eq!(left.begin(), Some(Greeting { ranges: 8, new_host: true }));
        left.welcomed(again);
        assert_eq!(left.begin(), Some(again));
    }
}
