//! A process that holds memory as a VMM does, for tests.

use super::guest::Guest;
use super::memory::MemoryError;
use super::pinned::PinnedFiles;
use isotherm_linux::hostmem::others::FileIdentity;
use isotherm_linux::proc::PidFd;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

/// Bytes of its memory.
pub(super) const RAM: u64 = 16 << 20;

/// Makes ready for Linux AIO (io_setup) when it begins, if asked to, and on SIGUSR1.
const SCRIPT: &str = r#"
import ctypes, mmap, os, signal, sys
def use_aio(*_):
    number = {"x86_64": 206}.get(os.uname().machine, 0)
    context = ctypes.c_ulong(0)
    assert ctypes.CDLL(None).syscall(number, 1, ctypes.byref(context)) == 0
signal.signal(signal.SIGUSR1, use_aio)
size, byte = int(sys.argv[1]), int(sys.argv[2])
file = os.memfd_create("memory-backend-memfd")
os.ftruncate(file, size)
memory = mmap.mmap(file, size)
memory[:] = bytes([byte]) * size
if sys.argv[3] == "aio":
    use_aio()
print(file, flush=True)
sys.stdin.read()
"#;

pub(super) struct TestVmm {
    child: Child,
    fd: String,
}

impl TestVmm {
    /// All of its memory holds `byte`.
    pub fn start(byte: u8, uses_aio: bool) -> Self {
        let how = if uses_aio { "aio" } else { "threads" };
        let mut child = Command::new("python3")
            .args(["-c", SCRIPT, &RAM.to_string(), &byte.to_string(), how])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut fd = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut fd).unwrap();
        Self { child, fd: fd.trim().to_owned() }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn guest(&self, pinned: Arc<PinnedFiles>) -> Result<Guest, MemoryError> {
        let process = Arc::new(PidFd::open(self.pid()).unwrap());
        Guest::new(process, "test".into(), None, 0, Arc::default(), pinned)
    }

    fn meta(&self) -> std::fs::Metadata {
        std::fs::metadata(format!("/proc/{}/fd/{}", self.pid(), self.fd)).unwrap()
    }

    pub fn identity(&self) -> FileIdentity {
        (self.meta().dev(), self.meta().ino())
    }

    /// Bytes that its memory takes.
    pub fn resident(&self) -> u64 {
        self.meta().blocks() * 512
    }
}

impl Drop for TestVmm {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
