//! Settings of the kernel that are changed for a while.

use crate::guard::Guard;
use std::io;
use std::path::PathBuf;

/// A setting that we have changed. Put back when this is dropped, and by the [guard](crate::guard) if we are killed.
#[derive(Debug)]
pub struct Knob {
    path: PathBuf,
    before: String,
    guard: Guard,
}

impl Knob {
    /// Writes `value` to a file that holds one word; the guard knows first what was in it.
    pub fn set(path: PathBuf, value: &str, mut guard: Guard) -> io::Result<Self> {
        let before = std::fs::read_to_string(&path)?.trim().to_owned();
        guard.changes(&path, &before)?;
        // Where this fails, the guard writes what is there.
        std::fs::write(&path, value)?;
        Ok(Self { path, before, guard })
    }
}

impl Drop for Knob {
    fn drop(&mut self) {
        match std::fs::write(&self.path, &self.before) {
            // Without a guard there is nobody to know.
            Ok(()) => drop(self.guard.leaves(&self.path)),
            Err(e) => tracing::warn!("cannot put {} back to {}: {e}", self.path.display(), self.before),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::serve;
    use crate::test_tree::tree;
    use std::io::Write;
    use std::process::Command;

    /// A guard that writes down what it is given.
    fn scribe(log: &std::path::Path) -> Guard {
        Guard::run(Command::new("sh").args(["-c", "echo; exec cat >\"$0\""]).arg(log)).unwrap()
    }

    #[test]
    fn a_setting_is_put_back_whatever_happens() {
        let t = tree(&[("knob", "7\n"), ("log", "")]);
        let (path, log) = (t.roots.path("/knob"), t.roots.path("/log"));
        let now = || std::fs::read_to_string(&path).unwrap();
        let knob = Knob::set(path.clone(), "1000", scribe(&log)).unwrap();
        assert_eq!(now(), "1000");
        drop(knob);
        assert_eq!(now(), "7");
        let reported = std::fs::read_to_string(&log).unwrap();
        let lines: Vec<&str> = reported.lines().collect();
        assert_eq!(lines.len(), 2, "{reported}");
        // The end of whoever has changed it, before and after it was put back.
        for (lines, left) in [(&lines[..1], "7"), (&lines[..], "5")] {
            std::fs::write(&path, "5").unwrap();
            let (input, mut writer) = io::pipe().unwrap();
            writeln!(writer, "{}", lines.join("\n")).unwrap();
            drop(writer);
            serve(input, io::sink()).unwrap();
            assert_eq!(now(), left);
        }
    }

    #[test]
    fn what_cannot_be_guarded_is_not_changed() {
        let t = tree(&[("knob", "7\n"), ("log", ""), ("two words", "1\n")]);
        let log = t.roots.path("/log");
        assert!(Knob::set(t.roots.path("/none"), "1", scribe(&log)).is_err());
        assert!(Knob::set(t.roots.path("/two words"), "2", scribe(&log)).is_err());
        assert_eq!(t.roots.line("/two words").as_deref(), Some("1"));
    }
}
