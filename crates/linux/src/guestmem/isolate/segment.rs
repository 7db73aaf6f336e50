//! System V shared memory segments of huge pages. They outlive their maker, which no mapping of memory does.

use super::HUGE_PAGE;
use super::pool::Pool;
use crate::guestmem::ledger::{Ledger, Leftover};
use crate::roots::Roots;
use isotherm_core::hinter::IsolateError;
use std::io;

/// Keys of our segments: this one and those that follow.
const KEYS: libc::key_t = 0x4973_6800;
/// How many keys are ours; the kernel allows 4096 segments.
const MOST: i32 = 2048;

/// A segment. It stays when this is dropped, unless it is removed.
#[derive(Debug)]
pub(super) struct Segment {
    id: i32,
    pages: u64,
}

impl Segment {
    /// Makes one of `pages` huge pages, which are reserved, and neither allocated to it nor touched. Fails with ENOMEM
    /// if that many cannot be had; then nothing has changed.
    pub(super) fn create(pages: u64) -> io::Result<Self> {
        let too_large = || io::Error::from(io::ErrorKind::InvalidInput);
        let bytes = usize::try_from(pages.checked_mul(HUGE_PAGE).ok_or_else(too_large)?).map_err(|_| too_large())?;
        // Bits 26 and up hold the page size's logarithm.
        let huge_2m = (HUGE_PAGE.trailing_zeros() as i32) << 26;
        let flags = libc::IPC_CREAT | libc::IPC_EXCL | libc::SHM_HUGETLB | huge_2m | 0o600;
        for i in 0..MOST {
            // SAFETY: shmget takes three numbers and touches none of our memory.
            let id = unsafe { libc::shmget(KEYS + i, bytes, flags) };
            if id >= 0 {
                return Ok(Self { id, pages });
            }
            let error = io::Error::last_os_error();
            if error.raw_os_error() != Some(libc::EEXIST) {
                return Err(error);
            }
        }
        Err(io::Error::new(io::ErrorKind::StorageFull, "too many shared memory segments"))
    }

    /// Its huge pages.
    pub(super) const fn pages(&self) -> u64 {
        self.pages
    }

    pub(super) const fn id(&self) -> i32 {
        self.id
    }

    pub(super) fn attach(&self) -> io::Result<Attached> {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let at = unsafe { libc::shmat(self.id, std::ptr::null(), 0) };
        if at as isize == -1 {
            return Err(io::Error::last_os_error());
        }
        Ok(Attached { at: at.cast(), pages: self.pages })
    }

    /// Gives its pages back to the kernel; at once, or as soon as nobody has it attached any more.
    pub(super) fn remove(self) -> io::Result<()> {
        remove(self.id)
    }
}

/// A segment mapped into this process; dropping it unmaps it, and the pages stay.
#[derive(Debug)]
pub(super) struct Attached {
    at: *mut u8,
    pages: u64,
}

impl Attached {
    /// Writes to each huge page, so that it is allocated to the segment.
    pub(super) fn touch(&mut self) {
        for i in 0..self.pages {
            // SAFETY: inside the mapping, which is writable and reached through `&mut self` only. A page was reserved
            // for each address, so that the access cannot fail for want of memory.
            unsafe { self.at.add((i * HUGE_PAGE) as usize).write_volatile(1) };
        }
    }

    /// Virtual addresses of its huge pages.
    pub(super) fn addresses(&self) -> impl Iterator<Item = u64> {
        let start = self.at as u64;
        (0..self.pages).map(move |i| start + i * HUGE_PAGE)
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // SAFETY: unmaps what `attach` mapped; no pointer into it outlives `self`.
        unsafe { libc::shmdt(self.at.cast()) };
    }
}

/// Removes whatever segments are left, also one that was made and is in no list, and sets the pool as the ledger has
/// it.
pub(in crate::guestmem) fn put_back(ledger: &mut Ledger, roots: &Roots) -> Result<(), IsolateError> {
    if !ledger.taken().segments && ledger.taken().overcommit.is_none() {
        return Ok(());
    }
    remove_all().map_err(IsolateError::io("remove shared memory segments of huge pages"))?;
    if let Some(before) = ledger.taken().overcommit {
        let failed = IsolateError::io(format!("set nr_overcommit_hugepages to {before} again"));
        Pool::new(roots).set_overcommit(before).map_err(failed)?;
    }
    let note = IsolateError::io("write down that no huge pages are held");
    let nothing = |l: &mut Leftover| {
        l.segments = false;
        l.overcommit = None;
    };
    ledger.change(nothing).map_err(note)
}

/// Removes every segment of ours, also those of a dead predecessor.
fn remove_all() -> io::Result<()> {
    for i in 0..MOST {
        // SAFETY: shmget with size 0 and no flags only looks up a key.
        let id = unsafe { libc::shmget(KEYS + i, 0, 0) };
        if id >= 0 && made_by_us(id)? {
            remove(id)?;
        }
    }
    Ok(())
}

/// Whether our user made it: anybody may make a segment with any key, and take from us the right to look at it. One that
/// has gone in the meantime is nobody's.
fn made_by_us(id: i32) -> io::Result<bool> {
    let mut stat = std::mem::MaybeUninit::<libc::shmid_ds>::uninit();
    // SAFETY: IPC_STAT writes a shmid_ds to `stat`, which has room for it, if it returns 0.
    let stat = unsafe {
        if libc::shmctl(id, libc::IPC_STAT, stat.as_mut_ptr()) != 0 {
            let error = io::Error::last_os_error();
            // Ours can be read by our user (mode 0600).
            let not_ours = error.raw_os_error() == Some(libc::EACCES) || has_gone(&error);
            return if not_ours { Ok(false) } else { Err(error) };
        }
        stat.assume_init()
    };
    Ok(stat.shm_perm.cuid == rustix::process::geteuid().as_raw())
}

/// Whether there is no segment of that number any more.
fn has_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EIDRM))
}

/// Removes it; one that has gone already is no error.
fn remove(id: i32) -> io::Result<()> {
    // SAFETY: IPC_RMID takes no buffer.
    if unsafe { libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut()) } != 0 {
        let error = io::Error::last_os_error();
        return if has_gone(&error) { Ok(()) } else { Err(error) };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

    /// A segment of one page with no key and these rights.
    fn segment(mode: i32) -> i32 {
        // SAFETY: shmget takes three numbers and touches none of our memory.
        let id = unsafe { libc::shmget(libc::IPC_PRIVATE, 4096, libc::IPC_CREAT | mode) };
        assert!(id >= 0, "{}", io::Error::last_os_error());
        id
    }

    #[test]
    fn segments_that_others_hide_or_remove_stop_nothing() {
        // Capabilities are those of a thread.
        let looked_at = std::thread::spawn(|| {
            let (ours, hidden, gone) = (segment(0o600), segment(0), segment(0o600));
            // The second time there is nothing left of it.
            [gone, gone].into_iter().for_each(|id| remove(id).unwrap());
            let all = capabilities(None).unwrap();
            // As the agent has none for segments of others.
            let effective = all.effective.difference(CapabilitySet::IPC_OWNER);
            set_capabilities(None, CapabilitySets { effective, ..all }).unwrap();
            let found = [ours, hidden, gone].map(|id| made_by_us(id).map_err(|e| e.to_string()));
            [ours, hidden].into_iter().for_each(|id| remove(id).unwrap());
            found
        });
        assert_eq!(looked_at.join().unwrap(), [Ok(true), Ok(false), Ok(false)]);
    }
}
