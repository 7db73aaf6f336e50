//! `/proc/PID/statm`: how much of a process is in memory, read cheaply.

use super::dir::ProcessDir;

/// What of a process is in memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Resident {
    /// Pages of its own anonymous memory.
    pub anon: u64,
    /// Pages of files and of shared memory.
    pub file: u64,
}

impl Resident {
    /// Reads the file; `None` once the process has exited. Up to a few dozen pages a thread may not be counted yet.
    pub fn read(process: &ProcessDir) -> Option<Self> {
        let mut text = Vec::new();
        process.read("statm", &mut text).ok()?;
        Self::parse(std::str::from_utf8(&text).ok()?)
    }

    /// Parses the file's content; `None` if it does not have the documented form.
    fn parse(text: &str) -> Option<Self> {
        let mut fields = text.split_ascii_whitespace().skip(1).map(str::parse::<u64>);
        let (all, shared) = (fields.next()?.ok()?, fields.next()?.ok()?);
        Some(Self { anon: all.saturating_sub(shared), file: shared })
    }
}

/// How large a process is, pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Extent {
    /// All its mappings.
    pub size: u64,
    /// What is in memory of them, with the same reservation as [`Resident`].
    pub resident: u64,
}

impl Extent {
    /// Reads the file; `None` once the process has exited.
    pub fn read(process: &ProcessDir) -> Option<Self> {
        let mut text = Vec::new();
        process.read("statm", &mut text).ok()?;
        let mut fields = std::str::from_utf8(&text).ok()?.split_ascii_whitespace().map(str::parse::<u64>);
        Some(Self { size: fields.next()?.ok()?, resident: fields.next()?.ok()? })
    }

    /// Whether one of the two differs by `pages` or more.
    pub const fn differs(&self, other: &Self, pages: u64) -> bool {
        self.size.abs_diff(other.size) >= pages || self.resident.abs_diff(other.resident) >= pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_and_third_fields_count() {
        assert_eq!(Resident::parse("900 120 20 3 0 40 0\n"), Some(Resident { anon: 100, file: 20 }));
        assert_eq!(Resident::parse("0 0 0 0 0 0 0"), Some(Resident::default()));
        assert_eq!((Resident::parse(""), Resident::parse("1 2"), Resident::parse("1 x 3")), (None, None, None));
    }
}
