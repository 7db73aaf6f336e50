//! Records of a perf event, through its ring buffer.
//!
//! Nothing in the system is changed by this: the event belongs to our descriptor and ends with it, even after SIGKILL.

use crate::mm::mapping::Mapping;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::Ordering;

const PAGE: usize = 4096;
// Offsets in the first page of the mapping (struct perf_event_mmap_page in include/uapi/linux/perf_event.h).
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;

const RECORD_LOST: u32 = 2;
const RECORD_SAMPLE: u32 = 9;

/// `struct perf_event_attr` as of PERF_ATTR_SIZE_VER5, in words of 8 bytes: of a descriptor whose samples are every hit,
/// timed by CLOCK_MONOTONIC.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EventAttr([u64; 14]);

impl EventAttr {
    /// An event of a kind (`PERF_TYPE_*`, or what a driver's `type` file says) whose samples hold what the bits
    /// `PERF_SAMPLE_*` say.
    pub(crate) fn new(kind: u32, config: u64, sample: u64) -> Self {
        const USE_CLOCKID: u64 = 1 << 25;
        let mut attr = [0u64; 14];
        attr[0] = u64::from(kind) | (size_of_val(&attr) as u64) << 32;
        attr[1] = config;
        // Every hit.
        attr[2] = 1;
        attr[3] = sample;
        attr[5] = USE_CLOCKID;
        attr[11] = (libc::CLOCK_MONOTONIC as u64) << 32;
        Self(attr)
    }

    /// The same at `offset` of the file that `path` names.
    ///
    /// # Safety
    ///
    /// `path` must live until the event is open: the kernel reads it then.
    pub(crate) unsafe fn at(mut self, path: &CStr, offset: u64) -> Self {
        (self.0[7], self.0[8]) = (path.as_ptr() as u64, offset);
        self
    }

    /// The same, waking whoever waits for the buffer at every hit.
    pub(crate) fn waking(mut self) -> Self {
        self.0[6] = 1;
        self
    }

    /// The same, with these registers of user space (bits `PERF_REG_*`) in every sample.
    pub(crate) fn with_registers(mut self, registers: u64) -> Self {
        self.0[10] = registers;
        self
    }
}

/// Whose hits count.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Who {
    /// A thread's, on any CPU.
    Thread(u32),
    /// Everybody's on this CPU.
    Cpu(u32),
}

/// What comes out of the buffer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Record<'a> {
    /// A hit: what the attributes ask for.
    Sample(&'a [u8]),
    /// The buffer was full for a while.
    Lost,
}

/// The event and its buffer.
#[derive(Debug)]
pub(crate) struct PerfRing {
    event: OwnedFd,
    /// A page of counters and the data behind it, whose length is a power of two.
    map: Mapping,
    record: Vec<u8>,
}

impl PerfRing {
    /// Opens an event with room for `bytes` of records.
    pub(crate) fn open(attr: &EventAttr, who: Who, bytes: usize) -> io::Result<Self> {
        const FD_CLOEXEC: libc::c_ulong = 8;
        let (thread, cpu) = match who {
            Who::Thread(tid) => (tid as libc::pid_t, -1),
            Who::Cpu(cpu) => (-1, cpu as libc::c_int),
        };
        // SAFETY: the attributes have the size they state, and who made them says that what they point to lives; no
        // group.
        let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, attr.0.as_ptr(), thread, cpu, -1, FD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just returned this descriptor; nobody else owns it.
        let event = unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) };
        let size = bytes.clamp(16 * PAGE, 4096 * PAGE).next_power_of_two();
        let map = Mapping::of_file(&event, PAGE + size)?;
        Ok(Self { event, map, record: Vec::new() })
    }

    /// Leaves hits of a tracepoint out of which this is not true (`length >= 4096`; see filter.rst in the kernel's documentation).
    pub(crate) fn filter(&self, condition: &CStr) -> io::Result<()> {
        /// `PERF_EVENT_IOC_SET_FILTER`.
        const SET_FILTER: libc::c_ulong = 0x4008_2406;
        // SAFETY: the text lives until the call returns; the kernel copies it.
        let done = unsafe { libc::ioctl(self.event.as_raw_fd(), SET_FILTER, condition.as_ptr()) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Hands out all records that have come since the last call.
    pub(crate) fn drain(&mut self, mut sink: impl FnMut(Record<'_>)) {
        let head = self.map.load(DATA_HEAD, Ordering::Acquire);
        let mut tail = self.map.load(DATA_TAIL, Ordering::Relaxed);
        while tail < head {
            let mut header = [0u8; 8];
            self.copy(tail, &mut header);
            let [k0, k1, k2, k3, _, _, l0, l1] = header;
            let len = usize::from(u16::from_ne_bytes([l0, l1]));
            if len < header.len() || len as u64 > head - tail {
                // Cannot be: give up what is there rather than loop.
                tail = head;
                break;
            }
            let mut record = std::mem::take(&mut self.record);
            record.resize(len - header.len(), 0);
            self.copy(tail + header.len() as u64, &mut record);
            if let Some(parsed) = parse(u32::from_ne_bytes([k0, k1, k2, k3]), &record) {
                sink(parsed);
            }
            self.record = record;
            tail += len as u64;
        }
        // The kernel may write over what lies before this.
        self.map.store(DATA_TAIL, tail, Ordering::Release);
    }

    /// Copies bytes from position `at` of the endless stream that the ring holds the end of. The kernel does not write
    /// between tail and head, where `at` lies.
    fn copy(&self, at: u64, out: &mut [u8]) {
        let size = self.map.range().len() as usize - PAGE;
        let place = at as usize & (size - 1);
        let (before_end, rest) = out.split_at_mut(out.len().min(size - place));
        self.map.read(PAGE + place, before_end);
        self.map.read(PAGE, rest);
    }
}

impl AsFd for PerfRing {
    /// What becomes readable at a hit of an event that [wakes](EventAttr::waking).
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

fn parse(kind: u32, body: &[u8]) -> Option<Record<'_>> {
    match kind {
        RECORD_LOST => Some(Record::Lost),
        RECORD_SAMPLE => Some(Record::Sample(body)),
        _ => None,
    }
}
