//! Memory of other processes.

use std::io;

/// The most parts that one call reads (`UIO_MAXIOV`).
const MOST_PARTS: usize = 1024;

/// Reads from the memory of `pid` parts of `len` bytes at each of `addresses` into `out`, one after the other; returns how many
/// bytes could be read in front of the first that could not.
///
/// # Errors
/// Those of process_vm_readv(2), but for an address that is not mapped.
pub(crate) fn read_memory(pid: u32, addresses: &[u64], len: usize, out: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    for (addresses, out) in addresses.chunks(MOST_PARTS).zip(out.chunks_mut(MOST_PARTS * len.max(1))) {
        let part = |&at: &u64| libc::iovec { iov_base: at as *mut libc::c_void, iov_len: len };
        let remote: Vec<libc::iovec> = addresses.iter().map(part).collect();
        let local = libc::iovec { iov_base: out.as_mut_ptr().cast(), iov_len: out.len() };
        // SAFETY: one live local buffer of that length, and as many live entries as are passed; the remote addresses are
        // another process's and only named here.
        let n = unsafe {
            libc::process_vm_readv(pid as libc::pid_t, &local, 1, remote.as_ptr(), remote.len() as libc::c_ulong, 0)
        };
        match usize::try_from(n) {
            Ok(n) if n == out.len() => done += n,
            Ok(n) => return Ok(done + n),
            Err(_) => match io::Error::last_os_error() {
                e if e.raw_os_error() == Some(libc::EFAULT) => return Ok(done),
                e => return Err(e),
            },
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mm::mapping::Mapping;

    #[test]
    fn parts_are_read_in_order_up_to_the_first_that_is_not_mapped() {
        let memory = Mapping::private(4096).unwrap();
        memory.write(0, b"abcdef");
        let (start, own) = (memory.range().start, std::process::id());
        let mut out = [0; 6];
        assert_eq!(read_memory(own, &[start + 4, start, start + 2], 2, &mut out).unwrap(), 6);
        assert_eq!(&out, b"efabcd");
        assert_eq!(read_memory(own, &[start, 8, start], 2, &mut out).unwrap(), 2);
        assert_eq!(read_memory(own, &[8], 6, &mut out).unwrap(), 0);
        let many = vec![start; MOST_PARTS + 3];
        assert_eq!(read_memory(own, &many, 1, &mut vec![0; many.len()]).unwrap(), many.len());
        // No process has so large a number.
        assert_eq!(read_memory(i32::MAX as u32, &[start], 6, &mut out).unwrap_err().raw_os_error(), Some(libc::ESRCH));
    }
}
