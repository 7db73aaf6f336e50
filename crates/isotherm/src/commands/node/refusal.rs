//! A node that may look into nobody: it would run on as if the machine were empty.

use crate::exit::Unsupported;
use isotherm_core::source::Refused;

/// Why there is no point in going on after the first look for processes; `None`: there is. `has_found`: some are watched.
/// `lacks_right`: this process has no CAP_SYS_PTRACE. Who has it may be let into processes that come later.
pub fn nobody_may_be_watched(has_found: bool, refused: Refused, lacks_right: bool) -> Option<Unsupported> {
    let is_shut_out = !has_found && lacks_right && refused.not_permitted > 0;
    is_shut_out.then(|| {
        Unsupported(format!(
            "of {} processes none may be looked into: CAP_SYS_PTRACE is missing; grant it (in a unit: CapabilityBoundingSet=, in a \
             container: capabilities.add), or run as a root who has it",
            refused.processes
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_let_into_nobody_is_told_what_is_missing() {
        let none = Refused::default();
        let all = Refused { processes: 40, not_permitted: 39 };
        let text = nobody_may_be_watched(false, all, true).unwrap().to_string();
        assert!(text.contains("40 processes") && text.contains("CAP_SYS_PTRACE is missing"), "{text}");
        assert!(nobody_may_be_watched(true, all, true).is_none(), "some are watched");
        assert!(nobody_may_be_watched(false, none, true).is_none(), "the machine has none");
        assert!(nobody_may_be_watched(false, all, false).is_none(), "others may come");
        let no_room = Refused { processes: 3, not_permitted: 0 };
        assert!(nobody_may_be_watched(false, no_room, true).is_none(), "no right would help");
    }
}
