//! Finds DAMON's tracepoint `damon_aggregated` and where its fields lie.

use crate::perf_ring::{EventAttr, PerfRing, Who};
use crate::roots::Roots;
use crate::tracefs::{TYPE_TRACEPOINT, read_event};
use std::io;

const EVENT: &str = "events/damon/damon_aggregated";

/// The tracepoint's number for perf_event_open(2) and the layout of its records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Aggregated {
    pub(super) id: u64,
    target: Field,
    nr_regions: Field,
    start: Field,
    end: Field,
    nr_accesses: Field,
    age: Field,
}

/// An unsigned field of a raw record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Field {
    offset: usize,
    size: usize,
}

impl Field {
    fn read(self, raw: &[u8]) -> Option<u64> {
        let bytes = raw.get(self.offset..self.offset + self.size)?;
        match self.size {
            4 => bytes.try_into().ok().map(|b| u32::from_ne_bytes(b).into()),
            8 => bytes.try_into().ok().map(u64::from_ne_bytes),
            _ => None,
        }
    }
}

/// One region as the tracepoint tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Traced {
    /// Index of the target in its context.
    pub(super) target: u64,
    /// Regions of this target, all of which are reported one after the other.
    pub(super) nr_regions: u64,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) nr_accesses: u64,
    pub(super) age: u64,
}

impl Aggregated {
    /// Reads the tracepoint's files, from the mounted tracefs or one that is mounted for us alone and gone when this
    /// returns.
    pub(super) fn find(roots: &Roots) -> io::Result<Self> {
        let (id, format) = (read_event(roots, EVENT, "id")?, read_event(roots, EVENT, "format")?);
        Self::parse(&id, &format).ok_or_else(|| io::Error::other("the tracepoint damon_aggregated has an unknown form"))
    }

    fn parse(id: &str, format: &str) -> Option<Self> {
        let field = |name: &str| {
            format.lines().find_map(|line| {
                // field:unsigned long target_id;	offset:8;	size:8;	signed:0;
                let mut parts = line.trim().split(';').map(str::trim);
                let declared = parts.next()?.strip_prefix("field:")?.rsplit(' ').next()?;
                let offset = parts.next()?.strip_prefix("offset:")?.parse().ok()?;
                let size = parts.next()?.strip_prefix("size:")?.parse().ok()?;
                (declared == name).then_some(Field { offset, size })
            })
        };
        Some(Self {
            id: id.trim().parse().ok()?,
            target: field("target_id")?,
            nr_regions: field("nr_regions")?,
            start: field("start")?,
            end: field("end")?,
            nr_accesses: field("nr_accesses")?,
            age: field("age")?,
        })
    }

    /// The region in a raw record; `None` if the record is too short.
    pub(super) fn region(&self, raw: &[u8]) -> Option<Traced> {
        Some(Traced {
            target: self.target.read(raw)?,
            nr_regions: self.nr_regions.read(raw)?,
            start: self.start.read(raw)?,
            end: self.end.read(raw)?,
            nr_accesses: self.nr_accesses.read(raw)?,
            age: self.age.read(raw)?,
        })
    }
}

/// Follows tracepoint `id` in thread `tid`, with room for `bytes` of records.
pub(super) fn follow(id: u64, tid: u32, bytes: usize) -> io::Result<PerfRing> {
    const SAMPLE_TIME_RAW: u64 = 1 << 2 | 1 << 10;
    PerfRing::open(&EventAttr::new(TYPE_TRACEPOINT, id, SAMPLE_TIME_RAW), Who::Thread(tid), bytes)
}

/// When a hit was, ns of CLOCK_MONOTONIC, and its raw record; `None` if the sample is too short.
pub(super) fn sample(body: &[u8]) -> Option<(u64, &[u8])> {
    let (time, rest) = body.split_first_chunk::<8>()?;
    let (len, rest) = rest.split_first_chunk::<4>()?;
    Some((u64::from_ne_bytes(*time), rest.get(..u32::from_ne_bytes(*len) as usize)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_tree::tree;

    const FORMAT: &str = "name: damon_aggregated\nID: 734\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
        \tfield:unsigned long target_id;\toffset:8;\tsize:8;\tsigned:0;\n\
        \tfield:unsigned int nr_regions;\toffset:16;\tsize:4;\tsigned:0;\n\
        \tfield:unsigned long start;\toffset:24;\tsize:8;\tsigned:0;\n\
        \tfield:unsigned long end;\toffset:32;\tsize:8;\tsigned:0;\n\
        \tfield:unsigned int nr_accesses;\toffset:40;\tsize:4;\tsigned:0;\n\
        \tfield:unsigned int age;\toffset:44;\tsize:4;\tsigned:0;\n";

    pub(crate) fn aggregated() -> Aggregated {
        Aggregated::parse("734\n", FORMAT).unwrap()
    }

    #[test]
    fn fields_are_found_by_name() {
        let folder = format!("sys/kernel/tracing/{EVENT}");
        let t = tree(&[(&format!("{folder}/id"), "734\n"), (&format!("{folder}/format"), FORMAT)]);
        assert_eq!(Aggregated::find(&t.roots).unwrap(), aggregated());
        let mut raw = vec![0u8; 48];
        raw[8] = 1;
        raw[16] = 2;
        raw[25] = 0x10;
        raw[33] = 0x20;
        raw[40] = 5;
        raw[44] = 6;
        let want = Traced { target: 1, nr_regions: 2, start: 0x1000, end: 0x2000, nr_accesses: 5, age: 6 };
        assert_eq!(aggregated().region(&raw), Some(want));
        assert_eq!(aggregated().region(&raw[..47]), None);
    }

    #[test]
    fn a_form_without_age_is_refused() {
        let old = FORMAT.replace("age", "other");
        assert_eq!(Aggregated::parse("1", &old), None);
    }

    #[test]
    fn samples_are_time_and_raw_data() {
        let mut body = 77u64.to_ne_bytes().to_vec();
        body.extend(3u32.to_ne_bytes());
        body.extend([1, 2, 3, 0]);
        assert_eq!(sample(&body), Some((77, &[1, 2, 3][..])));
        assert_eq!(sample(&body[..13]), None);
    }
}

#[cfg(test)]
mod privileged {
    use super::*;
    use crate::clock::monotonic_ns;
    use crate::perf_ring::Record;

    #[test]
    fn root_hits_of_our_own_thread_come_with_their_time() {
        let id = read_event(&Roots::system(), "events/sched/sched_switch", "id").unwrap().trim().parse().unwrap();
        let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let mut begin = monotonic_ns();
        let mut ring = follow(id, tid, 0).unwrap();
        let mut times = Vec::new();
        // More records than the buffer holds at once, so that they wrap around its end. A sleep whose time is over
        // before it begins gives none.
        let deadline = monotonic_ns() + 60_000_000_000;
        while times.len() < 2000 && monotonic_ns() < deadline {
            std::thread::sleep(std::time::Duration::from_micros(10));
            let drained = monotonic_ns();
            ring.drain(|record| match record {
                Record::Sample(body) => {
                    let (time_ns, raw) = sample(body).unwrap();
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
