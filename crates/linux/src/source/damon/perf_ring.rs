//! Records of a tracepoint that a kernel thread hits, through a perf ring buffer.
//!
//! Nothing in the system is changed by this: the event belongs to our descriptor and ends with it, even after SIGKILL.

use crate::mm::mapping::Mapping;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::Ordering;

const PAGE: usize = 4096;
// Offsets in the first page of the mapping (struct perf_event_mmap_page in include/uapi/linux/perf_event.h).
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;

const RECORD_LOST: u32 = 2;
const RECORD_SAMPLE: u32 = 9;

/// What comes out of the buffer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Record<'a> {
    /// The tracepoint was hit.
    Sample {
        /// When, ns of CLOCK_MONOTONIC.
        time_ns: u64,
        raw: &'a [u8],
    },
    /// The buffer was full for a while.
    Lost,
}

/// The event and its buffer.
#[derive(Debug)]
pub(super) struct PerfRing {
    _event: OwnedFd,
    /// A page of counters and the data behind it, whose length is a power of two.
    map: Mapping,
    record: Vec<u8>,
}

impl PerfRing {
    /// Follows tracepoint `id` in thread `tid`, with room for `bytes` of records.
    pub(super) fn open(id: u64, tid: u32, bytes: usize) -> io::Result<Self> {
        const TYPE_TRACEPOINT: u64 = 2;
        const SAMPLE_TIME_RAW: u64 = 1 << 2 | 1 << 10;
        const USE_CLOCKID: u64 = 1 << 25;
        const FD_CLOEXEC: libc::c_ulong = 8;
        // struct perf_event_attr as of PERF_ATTR_SIZE_VER5, in words of 8 bytes.
        let mut attr = [0u64; 14];
        attr[0] = TYPE_TRACEPOINT | (size_of_val(&attr) as u64) << 32;
        attr[1] = id;
        // Every hit.
        attr[2] = 1;
        attr[3] = SAMPLE_TIME_RAW;
        attr[5] = USE_CLOCKID;
        attr[11] = (libc::CLOCK_MONOTONIC as u64) << 32;
        // SAFETY: the attributes have the size they state; thread, any CPU, no group.
        let fd =
            unsafe { libc::syscall(libc::SYS_perf_event_open, attr.as_ptr(), tid as libc::pid_t, -1, -1, FD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just returned this descriptor; nobody else owns it.
        let event = unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) };
        let size = bytes.clamp(16 * PAGE, 4096 * PAGE).next_power_of_two();
        let map = Mapping::of_file(&event, PAGE + size)?;
        Ok(Self { _event: event, map, record: Vec::new() })
    }

    /// Hands out all records that have come since the last call.
    pub(super) fn drain(&mut self, mut sink: impl FnMut(Record<'_>)) {
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

fn parse(kind: u32, body: &[u8]) -> Option<Record<'_>> {
    match kind {
        RECORD_LOST => Some(Record::Lost),
        RECORD_SAMPLE => {
            let (time, rest) = body.split_first_chunk::<8>()?;
            let (len, rest) = rest.split_first_chunk::<4>()?;
            let raw = rest.get(..u32::from_ne_bytes(*len) as usize)?;
            Some(Record::Sample { time_ns: u64::from_ne_bytes(*time), raw })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_time_and_raw_data() {
        let mut body = 77u64.to_ne_bytes().to_vec();
        body.extend(3u32.to_ne_bytes());
        body.extend([1, 2, 3, 0]);
        assert_eq!(parse(RECORD_SAMPLE, &body), Some(Record::Sample { time_ns: 77, raw: &[1, 2, 3] }));
        assert_eq!(parse(RECORD_SAMPLE, &body[..13]), None);
        assert_eq!(parse(RECORD_LOST, &[]), Some(Record::Lost));
        assert_eq!(parse(1, &body), None);
    }
}

#[cfg(test)]
mod privileged {
    use super::super::tracepoint;
    use super::*;
    use crate::clock::monotonic_ns;
    use crate::roots::Roots;

    #[test]
    fn root_hits_of_our_own_thread_come_with_their_time() {
        let id = tracepoint::read_event(&Roots::system(), "events/sched/sched_switch", "id")
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let mut begin = monotonic_ns();
        let mut ring = PerfRing::open(id, tid, 0).unwrap();
        let mut times = Vec::new();
        // More records than the buffer holds at once, so that they wrap around its end. A sleep whose time is over
        // before it begins gives none.
        let deadline = monotonic_ns() + 60_000_000_000;
        while times.len() < 2000 && monotonic_ns() < deadline {
            std::thread::sleep(std::time::Duration::from_micros(10));
            let drained = monotonic_ns();
            ring.drain(|record| match record {
                Record::Sample { time_ns, raw } => {
                    assert!(raw.len() >= 56, "{}", raw.len());
                    assert!(begin <= time_ns && time_ns <= monotonic_ns());
                    times.push(time_ns);
                }
                Record::Lost => panic!("lost"),
            });
            begin = drained;
        }
        assert!(times.is_sorted());
        assert!(times.len() >= 2000, "{}", times.len());
    }
}
