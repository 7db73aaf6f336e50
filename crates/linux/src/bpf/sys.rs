//! The bpf(2) system call behind safe functions: array maps shared with a program, program loading, task iterators.
//!
//! Attribute layouts follow `union bpf_attr` of the kernel's UAPI; a kernel that knows fewer fields accepts a longer
//! attribute as long as the rest is zero.

use super::insn::Insn;
use crate::mm::mapping::Mapping;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, setrlimit};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

const MAP_CREATE: libc::c_long = 0;
const PROG_LOAD: libc::c_long = 5;
const BTF_LOAD: libc::c_long = 18;
const LINK_CREATE: libc::c_long = 28;
const ITER_CREATE: libc::c_long = 33;
const MAP_TYPE_ARRAY: u32 = 2;
const F_MMAPABLE: u32 = 1 << 10;
const PROG_TYPE_TRACING: u32 = 26;
const ATTACH_TRACE_ITER: u32 = 28;
/// Room for the verifier's log; kernels before 6.4 refuse a load whose log does not fit.
const LOG_BYTES: usize = 1 << 20;
/// How often a load is tried: the verifier gives up (EAGAIN) where a signal comes meanwhile.
const LOAD_ATTEMPTS: usize = 5;

/// Why something about BPF did not work.
#[derive(Debug, thiserror::Error)]
pub enum BpfError {
    /// A map could not be made or mapped.
    #[error("cannot create a BPF map of {bytes} bytes: {source}{}", hint(.source))]
    Map {
        bytes: usize,
        /// Why.
        source: io::Error,
    },
    /// The kernel refused a program.
    #[error("the kernel refused the BPF program {program}: {source}{}{log}", hint(.source))]
    Load {
        program: &'static str,
        /// Why.
        source: io::Error,
        /// The verifier's words, on lines of their own; empty if it had none.
        log: String,
    },
    /// An iterator over tasks could not be made.
    #[error("cannot iterate over tasks with BPF: {source}{}", hint(.source))]
    Iterate {
        /// Why.
        source: io::Error,
    },
}

/// What a refusal by the kernel usually means.
fn hint(e: &io::Error) -> &'static str {
    match e.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            " (needs CAP_BPF and CAP_PERFMON, and a kernel that is not locked down for confidentiality)"
        }
        Some(libc::ENOSYS) => " (needs CONFIG_BPF_SYSCALL=y)",
        _ => "",
    }
}

/// Attribute words of one bpf(2) call: zero but for what is set.
#[derive(Debug)]
#[repr(C, align(8))]
struct Attr([u8; 120]);

impl Attr {
    fn new() -> Self {
        Self([0; 120])
    }

    fn u32(mut self, at: usize, v: u32) -> Self {
        self.0[at..at + 4].copy_from_slice(&v.to_ne_bytes());
        self
    }

    fn u64(mut self, at: usize, v: u64) -> Self {
        self.0[at..at + 8].copy_from_slice(&v.to_ne_bytes());
        self
    }

    fn bytes(mut self, at: usize, v: &[u8]) -> Self {
        self.0[at..at + v.len()].copy_from_slice(v);
        self
    }

    fn fd(self, at: usize, fd: &impl AsRawFd) -> Self {
        self.u32(at, fd.as_raw_fd() as u32)
    }

    /// Makes a call that returns a new file descriptor.
    ///
    /// # Safety
    /// Every address in the attributes must be valid for what the kernel does with it, until the call returns.
    unsafe fn call(&mut self, command: libc::c_long) -> io::Result<OwnedFd> {
        // SAFETY: the attribute is 120 bytes of our own; the caller vouches for addresses in it.
        let fd = unsafe { libc::syscall(libc::SYS_bpf, command, self.0.as_mut_ptr(), self.0.len()) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: all commands used here return a new descriptor that nobody else owns; the kernel sets close-on-exec.
        Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
    }
}

/// Lifts the limit on locked memory that kernels before 5.11 charge BPF memory to. Failure is not an error: newer
/// kernels do not need it, and older ones will say EPERM at the next step.
pub(crate) fn lift_memlock_limit() {
    let _ = setrlimit(Resource::Memlock, Rlimit { current: None, maximum: None });
}

/// Array maps with one value each, mapped into this process, and the programs that use them.
///
/// The kernel writes to them only while such a program runs; it is loaded for these arrays alone and runs only inside
/// [`Link::run`], which borrows them mutably.
#[derive(Debug)]
pub(crate) struct SharedArrays {
    /// Programs and links share it, and are known by it.
    maps: Arc<[OwnedFd]>,
    values: Vec<Mapping>,
}

impl SharedArrays {
    /// Zeroed arrays of so many 64-bit words.
    pub fn new(lengths: &[usize]) -> Result<Self, BpfError> {
        let (mut maps, mut values) = (Vec::new(), Vec::new());
        for words in lengths {
            let bytes = words * 8;
            let fail = |source| BpfError::Map { bytes, source };
            let mut attr =
                Attr::new().u32(0, MAP_TYPE_ARRAY).u32(4, 4).u32(8, bytes as u32).u32(12, 1).u32(16, F_MMAPABLE);
            // SAFETY: MAP_CREATE takes no addresses.
            let fd = unsafe { attr.call(MAP_CREATE) }.map_err(fail)?;
            // The kernel rounds the map up to whole pages as mmap does.
            values.push(Mapping::of_file(&fd, bytes).map_err(fail)?);
            maps.push(fd);
        }
        Ok(Self { maps: maps.into(), values })
    }

    /// The descriptor of one, to be named in programs.
    pub fn fd(&self, array: usize) -> i32 {
        self.maps[array].as_raw_fd()
    }

    pub fn words(&self, array: usize) -> &[u64] {
        let (start, len) = self.place(array);
        // SAFETY: so many words are mapped until drop, aligned to a page; nothing writes to them while `self` is
        // borrowed.
        unsafe { std::slice::from_raw_parts(start, len) }
    }

    pub fn words_mut(&mut self, array: usize) -> &mut [u64] {
        let (start, len) = self.place(array);
        // SAFETY: as in `words`, and the borrow is unique.
        unsafe { std::slice::from_raw_parts_mut(start, len) }
    }

    fn place(&self, array: usize) -> (*mut u64, usize) {
        let value = &self.values[array];
        (value.base().cast().as_ptr(), value.range().len() as usize / 8)
    }

    /// Loads a task-iterator program. A refused program is loaded a second time with the verifier's log on, for the
    /// error.
    ///
    /// # Panics
    /// If it names other maps than these arrays.
    pub fn load(&self, image: &ProgramImage<'_>) -> Result<Program, BpfError> {
        let ours = |fd| self.maps.iter().any(|map| map.as_raw_fd() == fd);
        assert!(image.insns.iter().filter_map(Insn::map).all(ours), "{} names a map of others", image.name);
        Ok(Program { fd: load(image)?, maps: self.maps.clone() })
    }
}

/// A loaded program.
#[derive(Debug)]
pub(crate) struct Program {
    fd: OwnedFd,
    maps: Arc<[OwnedFd]>,
}

impl Program {
    /// Ties it to the tasks of process `pid` (in this process's pid namespace), or to all tasks.
    pub fn attach(&self, pid: Option<u32>) -> Result<Link, BpfError> {
        // bpf_iter_link_info.task: tid, pid, pid_fd, and padding up to the size of the union's largest member.
        let info = [0, pid.unwrap_or(0), 0, 0];
        let mut attr = Attr::new().fd(0, &self.fd).u32(8, ATTACH_TRACE_ITER);
        if pid.is_some() {
            attr = attr.u64(16, info.as_ptr() as u64).u32(24, size_of_val(&info) as u32);
        }
        // SAFETY: `info` lives until the call returns.
        let fd = unsafe { attr.call(LINK_CREATE) }.map_err(|source| BpfError::Iterate { source })?;
        Ok(Link { fd, maps: self.maps.clone() })
    }
}

/// A program and the tasks that it is for.
#[derive(Debug)]
pub(crate) struct Link {
    fd: OwnedFd,
    maps: Arc<[OwnedFd]>,
}

impl Link {
    /// Runs the program once over its tasks.
    ///
    /// # Panics
    /// If `written` are not the arrays that the program was loaded for.
    pub fn run(&self, written: &mut SharedArrays) -> Result<(), BpfError> {
        assert!(Arc::ptr_eq(&self.maps, &written.maps), "a program runs with the arrays that it was loaded for");
        let fail = |source| BpfError::Iterate { source };
        let mut attr = Attr::new().fd(0, &self.fd);
        // SAFETY: ITER_CREATE takes no addresses.
        let iter = unsafe { attr.call(ITER_CREATE) }.map_err(fail)?;
        let mut sink = [0u8; 64];
        loop {
            match rustix::io::read(&iter, &mut sink) {
                // The programs print nothing, so the first successful read is the end.
                Ok(0) => return Ok(()),
                // EAGAIN: the kernel paused after a great many tasks without output; reading on continues.
                Ok(_) | Err(Errno::INTR | Errno::AGAIN) => {}
                Err(e) => return Err(fail(e.into())),
            }
        }
    }
}

/// A program that runs for tasks, as given to the kernel.
#[derive(Debug)]
pub(crate) struct ProgramImage<'a> {
    /// Name, at most 15 letters, digits or underscores.
    pub name: &'static str,
    pub insns: &'a [Insn],
    /// Type id of `bpf_iter_task` in the kernel's BTF.
    pub attach_btf_id: u32,
    /// Functions of the program as pairs (first instruction, type id in `btf`); empty if it has no callback.
    pub funcs: &'a [[u32; 2]],
    /// BTF blob that describes `funcs`.
    pub btf: &'a [u8],
}

fn load(image: &ProgramImage<'_>) -> Result<OwnedFd, BpfError> {
    let fail = |source, log| BpfError::Load { program: image.name, source, log };
    let btf = if image.funcs.is_empty() {
        None
    } else {
        let mut attr = Attr::new().u64(0, image.btf.as_ptr() as u64).u32(16, image.btf.len() as u32);
        // SAFETY: the kernel reads `btf.len()` bytes of a live slice.
        Some(unsafe { attr.call(BTF_LOAD) }.map_err(|e| fail(e, String::new()))?)
    };
    // The kernel offers helpers that read kernel memory only to programs that declare themselves GPL compatible.
    let licence = CString::from(c"Dual MIT/GPL");
    let attempt = |log: Option<&mut Vec<u8>>| {
        let mut attr = Attr::new()
            .u32(0, PROG_TYPE_TRACING)
            .u32(4, image.insns.len() as u32)
            .u64(8, image.insns.as_ptr() as u64)
            .u64(16, licence.as_ptr() as u64)
            .bytes(48, &image.name.as_bytes()[..image.name.len().min(15)])
            .u32(68, ATTACH_TRACE_ITER)
            .u32(108, image.attach_btf_id);
        if let Some(btf) = &btf {
            attr = attr
                .fd(72, btf)
                .u32(76, size_of::<[u32; 2]>() as u32)
                .u64(80, image.funcs.as_ptr() as u64)
                .u32(88, image.funcs.len() as u32);
        }
        if let Some(log) = log {
            attr = attr.u32(24, 1).u32(28, log.len() as u32).u64(32, log.as_mut_ptr() as u64);
        }
        // SAFETY: instructions, licence, function table and log are live and as long as stated.
        unsafe { attr.call(PROG_LOAD) }
    };
    let interrupted = |result: &io::Result<_>| matches!(result, Err(e) if e.raw_os_error() == Some(libc::EAGAIN));
    let mut loaded = attempt(None);
    for _ in 1..LOAD_ATTEMPTS {
        if interrupted(&loaded) {
            loaded = attempt(None);
        }
    }
    loaded.map_err(|e| {
        let mut log = vec![0; LOG_BYTES];
        let again = attempt(Some(&mut log)).err().unwrap_or(e);
        fail(again, tail_of_log(&log))
    })
}

/// The last lines of a verifier's log, where the reason is.
fn tail_of_log(log: &[u8]) -> String {
    const LINES: usize = 12;
    let text = String::from_utf8_lossy(log.split(|&b| b == 0).next().unwrap_or_default());
    let lines: Vec<&str> = text.lines().filter(|l| !l.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(LINES)..].iter().map(|l| format!("\n  {l}")).collect()
}
