//! `/proc/PID/statm`: how large a process is, read cheaply.

use super::dir::ProcessDir;

/// How large a process is, pages. Of what is in memory up to a few dozen pages a thread may not be counted yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statm {
    /// All its mappings.
    pub size: u64,
    /// In memory: its own anonymous pages, ...
    pub anon: u64,
    /// ... and those of files and of shared memory.
    pub file: u64,
}

impl Statm {
    /// Reads the file; `None` once the process has exited.
    pub fn read(process: &ProcessDir) -> Option<Self> {
        let mut text = Vec::new();
        process.read("statm", &mut text).ok()?;
        Self::parse(std::str::from_utf8(&text).ok()?)
    }

    /// Parses the file's content; `None` if it does not have the documented form.
    fn parse(text: &str) -> Option<Self> {
        let mut fields = text.split_ascii_whitespace().map(str::parse::<u64>);
        let mut next = || fields.next()?.ok();
        let (size, resident, file) = (next()?, next()?, next()?);
        Some(Self { size, anon: resident.saturating_sub(file), file })
    }

    /// All that is in memory, pages.
    pub const fn resident(&self) -> u64 {
        self.anon + self.file
    }

    /// Whether the mappings, or what is in memory, differ by `pages` or more.
    pub const fn differs(&self, other: &Self, pages: u64) -> bool {
        self.size.abs_diff(other.size) >= pages || self.resident().abs_diff(other.resident()) >= pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_three_fields_count() {
        let statm = Statm { size: 900, anon: 100, file: 20 };
        assert_eq!((Statm::parse("900 120 20 3 0 40 0\n"), statm.resident()), (Some(statm), 120));
        assert_eq!(Statm::parse("0 0 0 0 0 0 0"), Some(Statm::default()));
        assert_eq!((Statm::parse(""), Statm::parse("1 2"), Statm::parse("1 x 3")), (None, None, None));
    }

    #[test]
    fn a_mapping_alone_and_pages_alone_make_a_difference() {
        let statm = Statm { size: 900, anon: 100, file: 20 };
        assert!(!statm.differs(&Statm { size: 901, ..statm }, 2) && statm.differs(&Statm { size: 902, ..statm }, 2));
        assert!(
            statm.differs(&Statm { anon: 98, ..statm }, 2) && !statm.differs(&Statm { anon: 98, file: 22, ..statm }, 2)
        );
    }
}
