//! A live process whose memory can be watched.

use super::dir::ProcessDir;
use super::error::ProcessError;
use super::filesystems::Filesystems;
use super::lines::{for_each_line, with_buffer};
use super::maps::{MappingList, MapsLine};
use super::pidfd::PidFd;
use super::smaps::{self, Figures};
use super::stat::Stat;
use super::status::Status;
use super::vm_flags::VmFlags;
use isotherm_core::addr::AddrRange;
use isotherm_core::mapping::{Mapping, MappingKind};
use isotherm_core::printable::printable;
use isotherm_core::target::{Footprint, Start, TargetId};
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::time::Duration;

/// Longest name made from a command line, in characters.
const NAME_LIMIT: usize = 200;

/// A process, held by a pidfd: a pid that is given to another process later is never mistaken for it.
///
/// Two descriptors stay open: the pidfd, and `/proc/PID/maps`. The latter is bound to the address space it was opened
/// for and reads as empty once that is gone, which tells an exec reliably and for free.
#[derive(Debug)]
pub struct Process {
    dir: ProcessDir,
    pidfd: PidFd,
    maps: File,
    /// Changes at exec; needed where `maps` is not enough because another process keeps the old address space alive
    /// (vfork).
    image: (u64, u64),
    start: Start,
    filesystems: Filesystems,
    vm_flags: VmFlags,
    runs_guests: bool,
}

/// The lines of maps.
#[derive(Debug, Default)]
struct MapsRecords {
    list: Vec<MapsRecord>,
    /// All names, one after the other.
    names: Vec<u8>,
}

/// A line of maps, its name in a common buffer.
#[derive(Debug, Clone, Copy)]
struct MapsRecord {
    range: AddrRange,
    kind: MappingKind,
    shared: bool,
    name: (usize, usize),
}

impl Process {
    /// Opens process `pid`, which must have memory of its own and be readable by this user.
    pub fn open(pid: u32) -> Result<Self, ProcessError> {
        let dir = ProcessDir::live(pid);
        let pidfd = open_pidfd(&dir)?;
        let stat = Stat::read(&dir).map_err(|e| match e {
            // The process lives but its folder does not show: proc is mounted with hidepid.
            ProcessError::NoSuchProcess { pid } if !pidfd.has_exited() => {
                ProcessError::Permission { pid, path: dir.file("stat") }
            }
            e => e,
        })?;
        if stat.kernel_thread {
            return Err(ProcessError::KernelThread { pid, name: stat.comm });
        }
        if stat.is_zombie() {
            let name = stat.comm;
            // This is the state of the thread that leads it; others may live on.
            return Err(if pidfd.is_ending() {
                ProcessError::Zombie { pid, name }
            } else {
                ProcessError::Leaderless { pid, name }
            });
        }
        let (maps, image) = open_maps(&dir, stat.image)?;
        if pidfd.has_exited() {
            return Err(ProcessError::NoSuchProcess { pid });
        }
        let filesystems = Filesystems::of(&dir);
        let runs_parents_program = || {
            let parent = Stat::read(&ProcessDir::live(stat.ppid));
            parent.is_ok_and(|parent| parent.image == image && parent.image.0 != 0)
        };
        let start = Start { time_ns: stat.started_ns(), forked: stat.forked && runs_parents_program() };
        Ok(Self { dir, pidfd, maps, image, start, filesystems, vm_flags: VmFlags::default(), runs_guests: false })
    }

    pub const fn pid(&self) -> u32 {
        self.dir.pid()
    }

    /// The handle for system calls that take a pidfd.
    pub const fn pidfd(&self) -> &PidFd {
        &self.pidfd
    }

    pub const fn dir(&self) -> &ProcessDir {
        &self.dir
    }

    /// How it began.
    pub const fn start(&self) -> Start {
        self.start
    }

    /// Whether it still runs. A zombie does not.
    pub fn is_alive(&self) -> bool {
        !self.pidfd.has_exited()
    }

    /// Replaces `out` by its mappings, sorted and disjoint; adjacent lines of maps that agree in all that a [`Mapping`]
    /// holds are one.
    ///
    /// After an exec this fails once with [`ProcessError::Replaced`]; the next call tells the new program's mappings.
    /// The kernel hands out the list in pieces: a mapping that changes meanwhile may show in its old or new extent.
    pub fn mappings(&mut self, out: &mut Vec<Mapping>) -> Result<(), ProcessError> {
        let MapsRecords { list: lines, names } = self.read_lines()?;
        let status = with_buffer(|buf| Status::read(&self.dir, buf)).map_err(|e| self.as_exit(e))?;
        let areas: Vec<AddrRange> = if status.vm_locked.unwrap_or(0) > 0 || status.hugetlb.unwrap_or(0) > 0 {
            lines.iter().map(|l| l.range).collect()
        } else {
            Vec::new()
        };
        let updated = with_buffer(|buf| self.vm_flags.update(&self.dir, &status, &areas, buf));
        updated.map_err(|e| self.as_exit(e))?;
        self.check_alive()?;
        let mut list = MappingList::new(out);
        for line in &lines {
            let flags = self.vm_flags.get(line.range);
            let kind = match flags {
                Some(f) if f.pfn_map => MappingKind::Special,
                Some(f) if f.huge_tlb => MappingKind::Hugetlb,
                _ => line.kind,
            };
            let name = &names[line.name.0..line.name.1];
            list.push(line.range, kind, line.shared, flags.is_some_and(|f| f.locked), name);
        }
        Ok(())
    }

    /// Calls `area` for every kernel area (VMA) with its resident and referenced bytes. Costs about 10 ms per resident
    /// GiB.
    pub fn smaps(&mut self, mut area: impl FnMut(MapsLine<'_>, MappingKind, Figures)) -> Result<(), ProcessError> {
        let filesystems = &self.filesystems;
        let mut seen = false;
        let note = |line: MapsLine<'_>, figures: Figures| {
            seen = true;
            let kind = match figures {
                Figures { pfn_map: true, .. } => MappingKind::Special,
                Figures { huge_tlb: true, .. } => MappingKind::Hugetlb,
                _ => line.kind(filesystems),
            };
            area(line, kind, figures);
        };
        with_buffer(|buf| smaps::read(&self.dir, buf, note)).map_err(|e| self.as_exit(e))?;
        self.check_alive()?;
        // Without memory but not (yet) gone: its leading thread has exited.
        if seen { Ok(()) } else { Err(ProcessError::Exited { pid: self.pid() }) }
    }

    /// Clears the accessed bits and referenced flags of all its pages (`clear_refs`). Costs about 10 ms per resident
    /// GiB, during which its page faults wait.
    ///
    /// The kernel does not flush translations that a CPU holds: an access through one of those sets no bit until it is
    /// evicted. Pages in steady use were seen to stay unmarked for up to 5 ms after the clear.
    pub fn clear_refs(&self) -> Result<(), ProcessError> {
        const FILE: &str = "clear_refs";
        let mut file = OpenOptions::new()
            .write(true)
            .open(self.dir.file(FILE))
            .map_err(|e| self.as_exit(self.dir.error(FILE, e)))?;
        // What is open stays with its process, so after this check it is ours.
        self.check_alive()?;
        file.write_all(b"1").map_err(|e| self.as_exit(self.dir.error(FILE, e)))
    }

    /// Whether it runs KVM guests, whose memory accesses its page table does not show. Known after
    /// [`mappings`](Self::mappings).
    pub(crate) const fn runs_guests(&self) -> bool {
        self.runs_guests
    }

    /// Its memory as the kernel counts it, for target `target` at `now_ns`. `None` once it has exited.
    pub fn footprint(&mut self, target: TargetId, now_ns: u64) -> Option<Footprint> {
        let status = with_buffer(|buf| Status::read(&self.dir, buf)).ok()?;
        if !self.is_alive() {
            return None;
        }
        // hugetlb memory is resident too, but the kernel counts it on a line of its own.
        let rss = status.vm_rss? + status.hugetlb.unwrap_or(0);
        Some(Footprint { time_ns: now_ns, target, vsz: status.vm_size?, rss, swap: status.vm_swap })
    }

    /// Its command line with blanks between the words, or `[comm]` if that is empty.
    pub fn name(&self) -> String {
        let mut buf = Vec::new();
        // A command line may be megabytes long.
        let limit = 4 * NAME_LIMIT as u64;
        if self.dir.open("cmdline").is_ok_and(|f| f.take(limit).read_to_end(&mut buf).is_ok()) {
            let text = String::from_utf8_lossy(&buf).replace('\0', " ");
            let text = text.trim();
            if !text.is_empty() {
                return printable(text).chars().take(NAME_LIMIT).collect();
            }
        }
        Stat::read(&self.dir).map(|s| format!("[{}]", printable(&s.comm))).unwrap_or_default()
    }

    /// Fails with [`ProcessError::Exited`] if it has. To be called *after* reading a file of `/proc/PID`: it proves
    /// that the pid was not another process's then.
    pub fn check_alive(&self) -> Result<(), ProcessError> {
        if self.is_alive() { Ok(()) } else { Err(ProcessError::Exited { pid: self.pid() }) }
    }

    /// Reads the maps file, and notices an exec.
    fn read_lines(&mut self) -> Result<MapsRecords, ProcessError> {
        let Self { dir, maps, filesystems, runs_guests, .. } = self;
        let mut records = MapsRecords::default();
        *runs_guests = false;
        let mut bad = None;
        let read = maps.seek(SeekFrom::Start(0)).and_then(|_| {
            let note = |text: &[u8]| match MapsLine::parse(text) {
                Some(line) => {
                    *runs_guests |= line.name.starts_with(b"anon_inode:kvm-vcpu");
                    let begin = records.names.len();
                    records.names.extend_from_slice(line.name);
                    records.list.push(MapsRecord {
                        range: line.range,
                        kind: line.kind(filesystems),
                        shared: line.is_shared(),
                        name: (begin, records.names.len()),
                    });
                }
                None => bad = Some(dir.malformed("maps", String::from_utf8_lossy(text))),
            };
            with_buffer(|buf| for_each_line(maps, buf, note))
        });
        match read {
            Err(e) => return Err(self.as_exit(self.dir.error("maps", e))),
            Ok(0) => return Err(self.follow_exec()),
            Ok(_) => {}
        }
        if let Some(bad) = bad {
            return Err(bad);
        }
        let image = Stat::read(&self.dir).map_err(|e| self.as_exit(e))?.image;
        if self.image.0 == 0 {
            // It was opened in the middle of an exec, which is complete now.
            self.image = image;
        }
        if image != self.image {
            return Err(self.follow_exec());
        }
        Ok(records)
    }

    /// Turns to the address space that the process has now; the error tells what has become of the old one.
    fn follow_exec(&mut self) -> ProcessError {
        let pid = self.pid();
        if !self.is_alive() {
            return ProcessError::Exited { pid };
        }
        let opened = Stat::read(&self.dir).and_then(|stat| open_maps(&self.dir, stat.image));
        match opened.and_then(|(mut maps, image)| {
            let mut one = [0];
            let got = maps.read(&mut one).map_err(|e| self.dir.error("maps", e))?;
            Ok((got > 0).then_some((maps, image)))
        }) {
            Ok(Some((maps, image))) => {
                (self.maps, self.image) = (maps, image);
                self.start.forked = false;
                self.filesystems = Filesystems::of(&self.dir);
                self.vm_flags.clear();
                ProcessError::Replaced { pid }
            }
            // No address space: it is exiting.
            Ok(None) => ProcessError::Exited { pid },
            Err(ProcessError::Permission { .. }) if self.is_alive() => ProcessError::OutOfReach { pid },
            Err(e) => self.as_exit(e),
        }
    }

    /// An error met while the process was exiting says that it has exited.
    fn as_exit(&self, error: ProcessError) -> ProcessError {
        let pid = self.pid();
        if error.is_gone() || !self.is_alive() { ProcessError::Exited { pid } } else { error }
    }
}

fn open_pidfd(dir: &ProcessDir) -> Result<PidFd, ProcessError> {
    let pid = dir.pid();
    PidFd::open(pid).map_err(|e| {
        // Which errno a thread's id gives differs between kernels, so ask proc.
        let leader = Status::read(dir, &mut Vec::new()).ok().and_then(|s| s.tgid).filter(|&t| t != pid);
        match (leader, e.raw_os_error()) {
            (Some(leader), _) => ProcessError::NotALeader { pid, leader },
            (None, Some(libc::ESRCH | libc::EINVAL | libc::ENOENT)) => ProcessError::NoSuchProcess { pid },
            (None, _) => ProcessError::Io { pid, path: dir.file(""), source: e },
        }
    })
}

/// Opens maps and tells the image that it belongs to, as far as that was complete; `image` was seen before. Should the
/// process have executed another program in between, [`Process::mappings`] finds the other image.
fn open_maps(dir: &ProcessDir, mut image: (u64, u64)) -> Result<(File, (u64, u64)), ProcessError> {
    // An exec gives the process its new address space first and fills it in then; the address of the code comes last.
    // That takes microseconds, but a program on a slow disk may take long, so the wait is bounded.
    const TRIES: u32 = 100;
    for _ in 0..TRIES {
        let maps = dir.open("maps")?;
        if image.0 != 0 {
            return Ok((maps, image));
        }
        std::thread::sleep(Duration::from_micros(100));
        image = Stat::read(dir)?.image;
    }
    Ok((dir.open("maps")?, image))
}
