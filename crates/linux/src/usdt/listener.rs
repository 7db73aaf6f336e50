//! Listens to the probes of running programs, through the kernel's uprobes.

use super::note::{Note, NoteError, notes};
use super::probes::PROVIDER;
use crate::clock::monotonic_ns;
use crate::facts::cpus;
use crate::perf_ring::{EventAttr, PerfRing, Record, Who};
use crate::roots::Roots;
use isotherm_core::trace::{MOST_FIELDS, TraceEvent, Tracepoint};
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The largest program that is looked at.
const MOST_BYTES: u64 = 1 << 30;
/// Room for records of one probe on one CPU: some thousand hits.
const RING_BYTES: usize = 1 << 20;
/// A hit is in its buffer that long after its time, at the latest, ns. Hits on different CPUs are put in order.
const SETTLED_NS: u64 = 5_000_000;

/// Bits `PERF_SAMPLE_*`: thread, time, CPU, registers of user space.
const SAMPLE: u64 = 1 << 1 | 1 << 2 | 1 << 7 | 1 << 12;
/// Bits `PERF_REG_X86_*`: the registers that can hold a field.
const REGISTERS: u64 = 0xff | 0xff << 16;

/// Why nobody can be listened to.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The program's file.
    #[error("cannot read {path}: {error}")]
    File {
        /// Which.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// Its notes.
    #[error("{path}: {error}")]
    Notes {
        /// Which.
        path: PathBuf,
        /// What is wrong with them.
        error: NoteError,
    },
    /// It has none of the probes.
    #[error("{path} has no probe of the name {PROVIDER}:{}; is it an Isotherm of this version?", .name)]
    NoProbe {
        /// Which.
        path: PathBuf,
        /// The missing one.
        name: &'static str,
    },
    /// The kernel was built without them.
    #[error("this kernel has no uprobes for perf (CONFIG_UPROBE_EVENTS): {0}")]
    NoUprobes(io::Error),
    /// The kernel refuses.
    #[error("the kernel does not let us listen: {0}; run as root, or with CAP_PERFMON")]
    Refused(io::Error),
}

/// A hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heard {
    /// When, ns of CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// Whose.
    pub pid: u32,
    /// Which thread's.
    pub tid: u32,
    /// On which CPU.
    pub cpu: u32,
    /// What it tells.
    pub event: TraceEvent,
}

impl Heard {
    /// What the calling thread says now.
    pub fn now(event: TraceEvent) -> Self {
        Self {
            time_ns: monotonic_ns(),
            pid: rustix::process::getpid().as_raw_nonzero().get() as u32,
            tid: rustix::thread::gettid().as_raw_nonzero().get() as u32,
            cpu: rustix::thread::sched_getcpu() as u32,
            event,
        }
    }
}

/// A probe on a CPU.
#[derive(Debug)]
struct Ring {
    ring: PerfRing,
    tracepoint: Tracepoint,
    /// Which of a sample's registers hold the fields.
    fields: Vec<usize>,
}

/// Hears what every process says that runs a certain program, from now on.
#[derive(Debug)]
pub struct Listener {
    rings: Vec<Ring>,
    /// Heard, but others from before may still come.
    waiting: Vec<Heard>,
    lost: u64,
}

impl Listener {
    /// Listens to the processes that run the program at `path`, at all or some of the tracepoints. Nobody else is
    /// disturbed, and nothing is left when this is dropped.
    pub fn new(roots: &Roots, path: &Path, tracepoints: &[Tracepoint]) -> Result<Self, ListenError> {
        let kind = std::fs::read_to_string(roots.path("/sys/bus/event_source/devices/uprobe/type"))
            .and_then(|text| text.trim().parse().map_err(io::Error::other))
            .map_err(ListenError::NoUprobes)?;
        let file = |error| ListenError::File { path: path.to_owned(), error };
        let elf = read_program(path).map_err(file)?;
        let found = notes(&elf).map_err(|error| ListenError::Notes { path: path.to_owned(), error })?;
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|e| file(e.into()))?;
        let mut rings = Vec::new();
        for &tracepoint in tracepoints {
            let missing = || ListenError::NoProbe { path: path.to_owned(), name: tracepoint.name() };
            let note = found.iter().find(|n| n.provider == PROVIDER && n.name == tracepoint.name());
            let note = note.ok_or_else(missing)?;
            let fields = places(note).ok_or_else(missing)?;
            let config = note.semaphore.unwrap_or(0) << 32;
            // SAFETY: `name` lives until the end of this function, and the events are opened in it.
            let attr = unsafe { EventAttr::new(kind, config, SAMPLE).at(&name, note.offset) };
            let attr = attr.with_registers(REGISTERS);
            for cpu in cpus::online(roots).map_err(ListenError::NoUprobes)? {
                let ring = PerfRing::open(&attr, Who::Cpu(cpu), RING_BYTES).map_err(ListenError::Refused)?;
                rings.push(Ring { ring, tracepoint, fields: fields.clone() });
            }
        }
        Ok(Self { rings, waiting: Vec::new(), lost: 0 })
    }

    /// Moves what has been said to `out`, in order of time. To be called often: buffers are small. `last`: nothing is
    /// held back for the sake of the order.
    pub fn collect(&mut self, out: &mut Vec<Heard>, last: bool) {
        let settled_ns = if last { u64::MAX } else { monotonic_ns().saturating_sub(SETTLED_NS) };
        for Ring { ring, tracepoint, fields } in &mut self.rings {
            ring.drain(|record| match record {
                Record::Sample(body) => match parse(body, *tracepoint, fields) {
                    Some(heard) => self.waiting.push(heard),
                    None => self.lost += 1,
                },
                Record::Lost => self.lost += 1,
            });
        }
        // Stable: what one thread says at one time stays in its order.
        self.waiting.sort_by_key(|heard| heard.time_ns);
        let settled = self.waiting.partition_point(|heard| heard.time_ns <= settled_ns);
        out.extend(self.waiting.drain(..settled));
    }

    /// How often something was missed because a buffer was full, or could not be understood.
    pub const fn lost(&self) -> u64 {
        self.lost
    }
}

/// Where a sample's registers hold the fields: `None` where they are not in registers, which our own probes never do.
fn places(note: &Note) -> Option<Vec<usize>> {
    let place = |register: u32| {
        let bit = 1u64.checked_shl(register).filter(|bit| REGISTERS & bit != 0)?;
        Some((REGISTERS & (bit - 1)).count_ones() as usize)
    };
    note.arguments.iter().map(|a| a.register.filter(|_| a.size.unsigned_abs() == 8).and_then(place)).collect()
}

/// Thread, time, CPU, registers.
fn parse(body: &[u8], tracepoint: Tracepoint, fields: &[usize]) -> Option<Heard> {
    let (ids, rest) = body.split_first_chunk::<8>()?;
    let (time, rest) = rest.split_first_chunk::<8>()?;
    let (cpu, rest) = rest.split_first_chunk::<8>()?;
    // What comes first says whether the registers have 32 or 64 bits.
    let registers = rest.get(8..)?.as_chunks::<8>().0;
    let mut values = [0; MOST_FIELDS];
    for (value, &place) in values.iter_mut().zip(fields) {
        *value = u64::from_ne_bytes(*registers.get(place)?);
    }
    let half = |b: &[u8; 8], at: usize| u32::from_ne_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
    Some(Heard {
        time_ns: u64::from_ne_bytes(*time),
        pid: half(ids, 0),
        tid: half(ids, 4),
        cpu: half(cpu, 0),
        event: TraceEvent::from_fields(tracepoint, values.get(..fields.len())?)?,
    })
}

/// The content of a program's file, which somebody else may have made.
fn read_program(path: &Path) -> io::Result<Vec<u8>> {
    let size = std::fs::metadata(path)?.len();
    if size > MOST_BYTES { Err(io::ErrorKind::FileTooLarge.into()) } else { std::fs::read(path) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_tree::tree;
    use crate::usdt::Argument;

    #[test]
    fn fields_are_found_among_the_registers_of_a_sample() {
        let in_register = |register| Argument { size: -8, register };
        let note = |arguments| Note {
            provider: PROVIDER.into(),
            name: "damos_esz".into(),
            offset: 0,
            semaphore: None,
            arguments,
        };
        // rax, r8, rdi: the 1st, the 9th and the 6th of those in a sample.
        let places_of = note(vec![in_register(Some(0)), in_register(Some(16)), in_register(Some(5))]);
        let fields = places(&places_of).unwrap();
        assert_eq!(fields, [0, 8, 5]);
        assert_eq!(places(&note(vec![in_register(None)])), None, "in memory");
        assert_eq!(places(&note(vec![Argument { size: 4, register: Some(0) }])), None, "half a register");
        assert_eq!(places(&note(vec![in_register(Some(8))])), None, "the instruction pointer");

        let mut body = [7u32, 8].map(u32::to_ne_bytes).concat();
        body.extend(99u64.to_ne_bytes());
        body.extend([1u32, 0].map(u32::to_ne_bytes).concat());
        body.extend(2u64.to_ne_bytes());
        body.extend((0..16u64).flat_map(|n| (n % 6).to_ne_bytes()));
        let event = TraceEvent::EffectiveQuota { context: 0, scheme: 2, esz: 5 };
        let heard = Heard { time_ns: 99, pid: 7, tid: 8, cpu: 1, event };
        assert_eq!(parse(&body, Tracepoint::EffectiveQuota, &fields), Some(heard));
        assert_eq!(parse(&body[..body.len() - 64], Tracepoint::EffectiveQuota, &fields), None, "cut off");
        assert_eq!(parse(&[], Tracepoint::EffectiveQuota, &fields), None);
    }

    #[test]
    fn a_kernel_without_uprobes_is_told() {
        let t = tree(&[("sys/devices/system/cpu/online", "0\n")]);
        let error = Listener::new(&t.roots, Path::new("/proc/self/exe"), &Tracepoint::ALL).unwrap_err();
        assert!(matches!(error, ListenError::NoUprobes(_)), "{error}");
    }

    #[test]
    fn a_program_without_probes_is_told() {
        let t = tree(&[("sys/bus/event_source/devices/uprobe/type", "8\n")]);
        let missing = Listener::new(&t.roots, Path::new("/bin/sh"), &Tracepoint::ALL).unwrap_err();
        assert!(missing.to_string().contains("damon_aggregated"), "{missing}");
        let text = Listener::new(&t.roots, Path::new("/etc/passwd"), &Tracepoint::ALL).unwrap_err();
        assert!(matches!(text, ListenError::Notes { .. }), "{text}");
    }
}
