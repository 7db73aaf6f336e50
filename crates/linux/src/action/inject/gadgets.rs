//! Instructions of the target's own that injection needs.

use super::error::InjectError;
use super::refusal::Refusal;
use crate::proc::ProcessDir;
use crate::proc::maps::MapsLine;
use isotherm_core::addr::AddrRange;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// `syscall; ret`: in the C library at every call without arguments.
pub(super) const SYSCALL_RET: [u8; 3] = [0x0f, 0x05, 0xc3];
/// `mov $15,%eax; syscall`, in two encodings: returns from a signal handler; in every program that can have one.
const RESTORE_LONG: [u8; 9] = [0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05];
const RESTORE_SHORT: [u8; 7] = [0xb8, 15, 0, 0, 0, 0x0f, 0x05];
/// Read at a time.
const CHUNK: usize = 256 << 10;
/// Code that is looked through at most.
const MOST: u64 = 256 << 20;

/// Where they are, and where the main thread's stack is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gadgets {
    pub syscall_ret: u64,
    pub restore: u64,
    pub stack: AddrRange,
}

impl Gadgets {
    /// Looks for them in the executable mappings.
    pub fn find(pid: u32) -> Result<Self, InjectError> {
        let dir = ProcessDir::live(pid);
        let mut text = Vec::new();
        dir.read("maps", &mut text)?;
        let mut stack = None;
        let mut code = Vec::new();
        for line in text.split(|&b| b == b'\n').filter_map(MapsLine::parse) {
            if line.name == b"[stack]" {
                stack = Some(line.range);
            }
            // Code that is written while it runs (JIT) may change at any time; the emulated vsyscall page holds none.
            if line.perms == *b"r-xp" && line.name != b"[vsyscall]" && !line.name.is_empty() {
                code.push((!is_c_library(line.name), line.range));
            }
        }
        // The C library has both; other libraries may be a hundred times as large.
        code.sort_by_key(|(other, range)| (*other, range.len()));
        let code: Vec<AddrRange> = code.into_iter().map(|(_, range)| range).collect();
        let stack = stack.ok_or(InjectError::LeftAlone(pid, Refusal::NotOnStack))?;
        let (mut syscall_ret, mut restore) = (None, None);
        scan(&dir, &code, |addr, window| {
            if syscall_ret.is_none() && window.starts_with(&SYSCALL_RET) {
                syscall_ret = Some(addr);
            }
            if restore.is_none() && is_restore(window) {
                restore = Some(addr);
            }
            syscall_ret.is_some() && restore.is_some()
        })
        .map_err(|e| InjectError::Code(pid, e))?;
        match (syscall_ret, restore) {
            (Some(syscall_ret), Some(restore)) => Ok(Self { syscall_ret, restore, stack }),
            _ => Err(InjectError::NoGadgets(pid)),
        }
    }
}

/// Whether a file's path is that of glibc or musl, as far as its name tells.
fn is_c_library(path: &[u8]) -> bool {
    let name = path.rsplit(|&b| b == b'/').next().unwrap_or_default();
    [&b"libc.so"[..], b"libc-", b"libc.musl", b"ld-musl"].iter().any(|known| name.starts_with(known))
}

/// Whether code begins with the instructions that return from a signal.
pub(super) fn is_restore(code: &[u8]) -> bool {
    code.starts_with(&RESTORE_LONG) || code.starts_with(&RESTORE_SHORT)
}

/// Calls `found` with every address (and the bytes from there) that might be of interest, until it says that it has
/// all.
fn scan(dir: &ProcessDir, code: &[AddrRange], mut found: impl FnMut(u64, &[u8]) -> bool) -> std::io::Result<()> {
    let mem = File::open(dir.file("mem"))?;
    let mut buf = vec![0; CHUNK + RESTORE_LONG.len()];
    let mut total = 0;
    for range in code {
        let mut at = range.start;
        while at < range.end && total < MOST {
            // Chunks overlap, so that nothing is missed between two.
            let want = (range.end - at).min(buf.len() as u64) as usize;
            let got = match mem.read_at(&mut buf[..want], at) {
                Ok(got) if got > 0 => got,
                // A part that cannot be read: look elsewhere.
                _ => break,
            };
            total += got as u64;
            for i in 0..got {
                if matches!(buf[i], 0x0f | 0x48 | 0xb8) && found(at + i as u64, &buf[i..got]) {
                    return Ok(());
                }
            }
            at += got.min(CHUNK) as u64;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_has_them() {
        let g = Gadgets::find(std::process::id()).unwrap();
        // SAFETY: both were found in executable mappings of this process, which are readable.
        let code = |addr: u64, len: usize| unsafe { std::slice::from_raw_parts(addr as *const u8, len) };
        assert_eq!(code(g.syscall_ret, 3), SYSCALL_RET);
        assert!(is_restore(code(g.restore, 9)));
        assert!(!g.stack.is_empty());
    }
}
