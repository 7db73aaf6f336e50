//! Files that may be opened: Landlock.

use super::{ConfineError, Files};
use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus,
    path_beneath_rules,
};

/// The newest interface that was tried; older kernels get what they know of it.
const NEWEST: ABI = ABI::V7;

/// What Landlock does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Landlock {
    /// The kernel enforces all that was asked for.
    Full,
    /// An older kernel enforces what it knows.
    Partial,
    /// The kernel has no Landlock, or it is switched off.
    Absent,
    /// It is not used, for this reason.
    NotUsed(&'static str),
}

/// Restricts the calling thread, and those that it starts later. It sets `no_new_privs` as well.
pub(super) fn restrict(files: &Files) -> Result<Landlock, ConfineError> {
    let (read, write, own) = match files {
        Files::Any(why) => return Ok(Landlock::NotUsed(why)),
        Files::Only { read, write, own } => (read, write, own),
    };
    let reading = AccessFs::ReadFile | AccessFs::ReadDir;
    let writing = reading | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev;
    let owning = writing | AccessFs::MakeReg | AccessFs::RemoveFile | AccessFs::RemoveDir;
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))?
        .create()?
        // What is not there is passed over: it cannot be named.
        .add_rules(path_beneath_rules(read, reading))?
        .add_rules(path_beneath_rules(write, writing))?
        .add_rules(path_beneath_rules(own, owning))?
        .restrict_self()?;
    Ok(match status.ruleset {
        RulesetStatus::FullyEnforced => Landlock::Full,
        RulesetStatus::PartiallyEnforced => Landlock::Partial,
        RulesetStatus::NotEnforced => Landlock::Absent,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::ErrorKind;

    #[test]
    fn only_what_was_declared_can_be_opened() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["read", "write", "own", "neither"] {
            fs::create_dir(at(name)).unwrap();
            fs::write(at(name).join("file"), "x").unwrap();
        }
        let open = fs::File::open(at("neither/file")).unwrap();
        let files =
            Files::Only { read: vec![at("read"), at("missing")], write: vec![at("write")], own: vec![at("own")] };
        // Of a thread: this test's.
        let landlock = restrict(&files).unwrap();
        if landlock == Landlock::Absent {
            eprintln!("skipped: this kernel has no Landlock");
            return;
        }
        assert_eq!(fs::read(at("read/file")).unwrap(), b"x");
        fs::write(at("write/file"), "y").unwrap();
        fs::write(at("own/new"), "y").unwrap();
        fs::rename(at("own/new"), at("own/file")).unwrap();
        fs::remove_file(at("own/file")).unwrap();
        let denied = |result: std::io::Result<()>| result.is_err_and(|e| e.kind() == ErrorKind::PermissionDenied);
        assert!(denied(fs::write(at("read/file"), "z")));
        assert!(denied(fs::File::open(at("neither/file")).map(drop)));
        assert!(denied(fs::write(at("write/new"), "z")) && denied(fs::remove_file(at("write/file"))));
        assert_eq!(std::io::read_to_string(open).unwrap(), "x", "what is open stays so");
    }

    #[test]
    fn who_may_open_all_is_told_why() {
        assert_eq!(restrict(&Files::Any("reason")).unwrap(), Landlock::NotUsed("reason"));
    }
}
