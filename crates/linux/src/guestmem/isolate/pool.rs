//! The kernel's pool of huge pages of 2 MiB, as its files tell.

use crate::roots::Roots;
use std::io;

const FOLDER: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";
const OVERCOMMIT: &str = "nr_overcommit_hugepages";

/// Numbers of huge pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counts {
    /// Not used by anybody, promised or not.
    pub(super) free: u64,
    /// Promised to mappings or segments and not used yet.
    pub(super) reserved: u64,
    /// Beyond what the administrator asked for: allocated on demand.
    pub(super) surplus: u64,
    /// Beyond it, at most.
    pub(super) overcommit: u64,
}

#[derive(Debug, Clone)]
pub(super) struct Pool {
    roots: Roots,
}

impl Pool {
    /// That below `roots`.
    pub(super) fn new(roots: &Roots) -> Self {
        Self { roots: roots.clone() }
    }

    /// Its numbers. They are read one after the other.
    pub(super) fn counts(&self) -> io::Result<Counts> {
        Ok(Counts {
            free: self.number("free_hugepages")?,
            reserved: self.number("resv_hugepages")?,
            surplus: self.number("surplus_hugepages")?,
            overcommit: self.number(OVERCOMMIT)?,
        })
    }

    /// Allows as many huge pages on demand.
    pub(super) fn set_overcommit(&self, pages: u64) -> io::Result<()> {
        std::fs::write(self.roots.path(format!("{FOLDER}/{OVERCOMMIT}")), format!("{pages}\n"))
    }

    fn number(&self, name: &str) -> io::Result<u64> {
        let path = format!("{FOLDER}/{name}");
        let text = self.roots.read(&path).map_err(|e| io::Error::new(e.kind(), format!("{path}: {e}")))?;
        text.trim().parse().map_err(|_| io::Error::new(io::ErrorKind::InvalidData, format!("{path} is no number")))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::test_tree::{Tree, tree};

    pub(in crate::guestmem::isolate) fn pool(numbers: [u64; 4]) -> Tree {
        let names = ["free_hugepages", "resv_hugepages", "surplus_hugepages", OVERCOMMIT];
        let files: Vec<(String, String)> = names
            .iter()
            .zip(numbers)
            .map(|(name, n)| (format!("{FOLDER}/{name}")[1..].to_owned(), format!("{n}\n")))
            .collect();
        tree(&files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect::<Vec<_>>())
    }

    #[test]
    fn numbers_are_read_and_written() {
        let t = pool([4, 3, 2, 1]);
        let pool = Pool::new(&t.roots);
        let counts = pool.counts().unwrap();
        assert_eq!(counts, Counts { free: 4, reserved: 3, surplus: 2, overcommit: 1 });
        pool.set_overcommit(9).unwrap();
        assert_eq!(pool.counts().unwrap().overcommit, 9);
        assert_eq!(Pool::new(&tree(&[]).roots).counts().unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
