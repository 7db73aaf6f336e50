//! The kernel's own files, passed through.

use super::{Control, File};
use crate::errno::Errno;
use isotherm_linux::roots::Roots;
use rustix::fs::{Mode, OFlags, open};
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};

/// The files as they are in the kernel, held by descriptors: whatever is mounted over them later, ours included, is
/// passed by.
#[derive(Debug)]
pub(super) struct Passed {
    enabled: OwnedFd,
    min_ttl: OwnedFd,
    generations: Option<OwnedFd>,
    full: Option<OwnedFd>,
}

impl Passed {
    /// Finds them; `None` where the kernel has no multi-generational LRU.
    pub(super) fn open(roots: &Roots) -> Option<Self> {
        let find = |path: &str| open(roots.path(path), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok();
        let passed = Self {
            enabled: find("/sys/kernel/mm/lru_gen/enabled")?,
            min_ttl: find("/sys/kernel/mm/lru_gen/min_ttl_ms")?,
            generations: find("/sys/kernel/debug/lru_gen"),
            full: find("/sys/kernel/debug/lru_gen_full"),
        };
        if passed.generations.is_none() {
            tracing::warn!(
                "the kernel's /sys/kernel/debug/lru_gen is not there to be passed through; mount it before with \
                 `mount -t debugfs none /sys/kernel/debug`"
            );
        }
        Some(passed)
    }

    fn file(&self, file: File) -> Option<&OwnedFd> {
        match file {
            File::Enabled => Some(&self.enabled),
            File::MinTtl => Some(&self.min_ttl),
            File::Generations => self.generations.as_ref(),
            File::Full => self.full.as_ref(),
        }
    }

    fn open_as(&self, file: File, how: &OpenOptions) -> Result<std::fs::File, Errno> {
        let fd = self.file(file).ok_or(Errno::NoEntry)?;
        how.open(format!("/proc/self/fd/{}", fd.as_raw_fd())).map_err(|e| as_it_is(&e))
    }
}

impl Control for Passed {
    fn has(&self, file: File) -> bool {
        self.file(file).is_some()
    }

    fn read(&self, file: File) -> Result<Vec<u8>, Errno> {
        let mut text = Vec::new();
        let mut from = self.open_as(file, OpenOptions::new().read(true))?;
        from.read_to_end(&mut text).map_err(|e| as_it_is(&e))?;
        Ok(text)
    }

    fn write(&self, file: File, data: &[u8]) -> Result<(), Errno> {
        // One write as it came: each is a text of its own to the kernel, which takes all of it or none.
        let mut to = self.open_as(file, OpenOptions::new().write(true))?;
        to.write(data).map(drop).map_err(|e| as_it_is(&e))
    }

    fn stop(&self) {}
}

fn as_it_is(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::Invalid, Errno::Other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lru_gen::LruGen;

    const FILES: [&str; 4] = ["mm/lru_gen/enabled", "mm/lru_gen/min_ttl_ms", "debug/lru_gen", "debug/lru_gen_full"];

    fn tree(files: &[&str]) -> (tempfile::TempDir, Roots) {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let path = folder.path().join("sys/kernel").join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, format!("{file}\n")).unwrap();
        }
        let roots = Roots::captured(folder.path());
        (folder, roots)
    }

    #[test]
    fn reads_and_writes_go_to_the_file_itself() {
        let (folder, roots) = tree(&FILES);
        let passed = Passed::open(&roots).unwrap();
        for (file, path) in [File::Enabled, File::MinTtl, File::Generations, File::Full].into_iter().zip(FILES) {
            assert_eq!(passed.read(file).unwrap(), format!("{path}\n").into_bytes());
        }
        let path = folder.path().join("sys/kernel/debug/lru_gen");
        // Another file that comes to stand there is not meant.
        std::fs::rename(&path, path.with_extension("moved")).unwrap();
        std::fs::write(&path, "another").unwrap();
        passed.write(File::Generations, b"+ 1 0 3").unwrap();
        assert!(std::fs::read_to_string(path.with_extension("moved")).unwrap().starts_with("+ 1 0 3"));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "another");
    }

    #[test]
    fn what_the_kernel_does_not_have_is_not_served_for_it() {
        let (_folder, roots) = tree(&FILES[..2]);
        let passed = Passed::open(&roots).unwrap();
        assert_eq!(passed.read(File::Generations), Err(Errno::NoEntry));
        let places = LruGen::here(&roots).places();
        assert_eq!(places.iter().map(|(path, _)| *path).collect::<Vec<_>>(), ["/sys/kernel/mm/lru_gen"]);
        let (_folder, roots) = tree(&[]);
        assert!(Passed::open(&roots).is_none());
        assert_eq!(LruGen::here(&roots).places().len(), 3, "then they are ours");
    }
}
