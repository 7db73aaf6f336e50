//! Settings that were changed, in the order in which they were.

use std::fs::OpenOptions;
use std::io::{self, Write};

/// How often a setting is written again that the kernel is too busy to take.
const RETRIES: u32 = 500;

/// Files and the word that each held before.
#[derive(Debug, Default)]
pub(super) struct Changes {
    held: Vec<(String, String)>,
}

impl Changes {
    /// `path` is changed now. What it held when it was first changed stays what counts.
    pub(super) fn add(&mut self, path: &str, before: &str) {
        if !self.held.iter().any(|(known, _)| known == path) {
            self.held.push((path.to_owned(), before.to_owned()));
        }
    }

    /// `path` is no longer changed.
    pub(super) fn forget(&mut self, path: &str) {
        self.held.retain(|(known, _)| known != path);
    }

    /// Writes everything back by `write`, the last changed first: what was set up last may hold what was before. While
    /// the kernel is busy (EBUSY) it is tried again after `pause`, [`RETRIES`] times at most for all files together, so
    /// that the guard ends. Other failures leave a file as it is: what was to be put back may be gone.
    pub(super) fn put_back(self, mut write: impl FnMut(&str, &str) -> io::Result<()>, mut pause: impl FnMut()) {
        let mut retries = RETRIES;
        for (path, before) in self.held.into_iter().rev() {
            while let Err(e) = write(&path, &before)
                && e.kind() == io::ErrorKind::ResourceBusy
                && retries > 0
            {
                retries -= 1;
                pause();
            }
        }
    }
}

/// Writes a setting that is there; a file that is not is not made.
pub(super) fn write(path: &str, value: &str) -> io::Result<()> {
    OpenOptions::new().write(true).truncate(true).open(path)?.write_all(value.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn damon() -> Changes {
        let mut changes = Changes::default();
        changes.add("nr_kdamonds", "0");
        changes.add("0/state", "off");
        // Set up again: what was there before us stays.
        changes.add("nr_kdamonds", "1");
        changes
    }

    #[test]
    fn the_last_changed_is_put_back_first() {
        let mut written = Vec::new();
        let write = |path: &str, value: &str| {
            written.push(format!("{path}={value}"));
            // As where the kernel's thread has ended by itself.
            if path == "0/state" { Err(io::ErrorKind::InvalidInput.into()) } else { Ok(()) }
        };
        damon().put_back(write, || panic!("nobody is busy"));
        assert_eq!(written, ["0/state=off", "nr_kdamonds=0"]);
    }

    #[test]
    fn a_busy_kernel_is_asked_again_but_not_for_ever() {
        let (mut busy, mut pauses, mut left) = (3, 0, Vec::new());
        let write = |path: &str, _: &str| match path {
            "nr_kdamonds" if busy > 0 => {
                busy -= 1;
                Err(io::ErrorKind::ResourceBusy.into())
            }
            _ => {
                left.push(path.to_owned());
                Ok(())
            }
        };
        damon().put_back(write, || pauses += 1);
        assert_eq!((pauses, left), (3, vec!["0/state".to_owned(), "nr_kdamonds".to_owned()]));
        let mut pauses = 0;
        damon().put_back(|_, _| Err(io::ErrorKind::ResourceBusy.into()), || pauses += 1);
        assert_eq!(pauses, RETRIES);
    }

    #[test]
    fn what_was_left_is_not_touched() {
        let mut changes = damon();
        changes.forget("0/state");
        changes.forget("nr_kdamonds");
        changes.put_back(|path, _| panic!("{path}"), || ());
        assert!(write("/no/such/setting", "1").is_err());
    }
}
