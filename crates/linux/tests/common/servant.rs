//! A child process that does as it is asked: system calls and memory accesses, one at a time, so that a test knows
//! exactly which pages were touched when.

use isotherm_linux::fork::fork;
use std::io::{Error, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};

const TOUCH: u64 = 1 << 32;
const FORK: u64 = TOUCH + 1;
const LEADERLESS: u64 = TOUCH + 2;
pub const PAGE: u64 = 4096;

/// Makes the kernel put pages that were mapped lately on its LRU lists: until then they cannot be observed. They wait
/// in lists of up to 31 for each CPU, which overflow when more pages are needed there.
pub fn push_new_pages_to_lru() {
    // SAFETY: plain system calls on live structures; touches only the mapping made here, which is unmapped again. The
    // calling thread may run everywhere again in the end.
    unsafe {
        let mut all: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of_val(&all), &mut all);
        for cpu in (0..libc::CPU_SETSIZE as usize).filter(|&cpu| libc::CPU_ISSET(cpu, &all)) {
            let mut one: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(cpu, &mut one);
            libc::sched_setaffinity(0, size_of_val(&one), &one);
            let (len, flags) = (64 * PAGE as usize, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE);
            let p = libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
            assert_ne!(p, libc::MAP_FAILED);
            libc::munmap(p, len);
        }
        libc::sched_setaffinity(0, size_of_val(&all), &all);
    }
}

/// Tests with servants run one at a time: a servant is a fork, so memory that another test shares with its own would be this one's, too, and what
/// its budget pays for.
static TURN: Mutex<()> = Mutex::new(());

thread_local! {
    /// Held until the test's thread ends, whatever servants it has.
    static MINE: MutexGuard<'static, ()> = TURN.lock().unwrap_or_else(PoisonError::into_inner);
}

/// Ends and collects the child when dropped.
pub struct Servant {
    pid: libc::pid_t,
    line: UnixStream,
}

impl Servant {
    pub fn new() -> Self {
        MINE.with(|_| ());
        let (ours, theirs) = UnixStream::pair().unwrap();
        // SAFETY: the child runs `serve` only, which neither allocates nor takes a lock that another thread may hold.
        let pid = unsafe { fork(|| serve(&theirs)) }.unwrap();
        Self { pid: pid.as_raw_pid(), line: ours }
    }

    pub fn pid(&self) -> u32 {
        self.pid as u32
    }

    fn order(&self, words: [u64; 7]) {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
        (&self.line).write_all(&bytes).unwrap();
    }

    fn ask(&self, words: [u64; 7]) -> i64 {
        self.order(words);
        let mut reply = [0; 8];
        (&self.line).read_exact(&mut reply).unwrap();
        i64::from_ne_bytes(reply)
    }

    /// Makes the child do a system call.
    pub fn call(&self, number: libc::c_long, args: &[u64]) -> i64 {
        let mut words = [number as u64, 0, 0, 0, 0, 0, 0];
        words[1..=args.len()].copy_from_slice(args);
        let r = self.ask(words);
        assert!(r >= 0, "system call {number} {args:x?} in the child: {}", Error::from_raw_os_error(-r as i32));
        r
    }

    /// Maps anonymous memory, aligned to `align`.
    pub fn map(&self, len: u64, align: u64, flags: i32) -> u64 {
        self.map_fd(len, align, flags | libc::MAP_ANONYMOUS, u64::MAX)
    }

    pub fn map_fd(&self, len: u64, align: u64, flags: i32, fd: u64) -> u64 {
        let prot = (libc::PROT_READ | libc::PROT_WRITE) as u64;
        // A wide reservation that stays, so that the kernel joins nothing to our mapping.
        let reserve = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let room = self.call(libc::SYS_mmap, &[0, len + 2 * align, 0, reserve as u64, u64::MAX, 0]) as u64;
        let at = (room + align).next_multiple_of(align);
        self.call(libc::SYS_mmap, &[at, len, prot, (flags | libc::MAP_FIXED) as u64, fd, 0]) as u64
    }

    pub fn madvise(&self, start: u64, len: u64, advice: i32) {
        self.call(libc::SYS_madvise, &[start, len, advice as u64]);
    }

    /// Writes to `count` pages from `start` on, `stride` pages apart.
    pub fn touch(&self, start: u64, count: u64, stride: u64) {
        self.ask([TOUCH, start, count, stride * PAGE, 0, 0, 0]);
    }

    /// Makes the child write to one page `times` times while the test goes on.
    pub fn start_writing(&self, page: u64, times: u64) {
        self.order([TOUCH, page, times, 0, 0, 0, 0]);
    }

    /// Whether the child is done with what it was last asked to start.
    pub fn is_done(&self) -> bool {
        self.line.set_nonblocking(true).unwrap();
        let done = (&self.line).read(&mut [0; 8]).is_ok();
        self.line.set_nonblocking(false).unwrap();
        done
    }

    /// Makes the child fork; the grandchild sleeps until the child ends.
    pub fn fork(&self) -> u32 {
        self.ask([FORK, 0, 0, 0, 0, 0, 0]) as u32
    }

    /// Makes the child go on in a second thread while the first one exits.
    pub fn lose_leader(&self) {
        self.ask([LEADERLESS, 0, 0, 0, 0, 0, 0]);
        self.wait_until_zombie();
    }

    /// Makes the child execute `sleep 60`.
    pub fn exec_sleep(&self) {
        let path = c"/bin/sleep".as_ptr() as u64;
        self.order([libc::SYS_execve as u64, path, ARGV.0.as_ptr() as u64, 0, 0, 0, 0]);
        let pid = self.pid;
        super::wait_for("the new program to sleep", || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            stat.contains("(sleep) S ").then_some(())
        });
    }

    pub fn exit(&self) {
        self.order([libc::SYS_exit_group as u64, 0, 0, 0, 0, 0, 0]);
        self.wait_until_zombie();
    }

    /// Waits for the end of the first thread, which the process's own state shows.
    fn wait_until_zombie(&self) {
        let pid = self.pid;
        super::wait_for("exit", || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            stat.contains(") Z ").then_some(())
        });
    }
}

impl Drop for Servant {
    fn drop(&mut self) {
        // SAFETY: kills and collects our own child, whose pid cannot be another's before it is collected.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            libc::waitpid(self.pid, std::ptr::null_mut(), 0);
        }
    }
}

struct Argv([*const libc::c_char; 3]);
// SAFETY: points to constants.
unsafe impl Sync for Argv {}
static ARGV: Argv = Argv([c"sleep".as_ptr(), c"60".as_ptr(), std::ptr::null()]);

/// The child's loop. Uses raw system calls only: the parent has threads, so after a fork nothing else is safe.
fn serve(line: &UnixStream) -> ! {
    use std::os::fd::AsRawFd;
    let fd = line.as_raw_fd();
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    serve_fd(fd)
}

fn serve_fd(fd: i32) -> ! {
    loop {
        let mut w = [0u64; 7];
        // SAFETY: reads into a live array; the test's orders name memory that the test had mapped in this process.
        unsafe {
            if libc::read(fd, w.as_mut_ptr().cast(), 56) != 56 {
                libc::_exit(0);
            }
            let reply: i64 = match w[0] {
                TOUCH => {
                    for i in 0..w[2] {
                        ((w[1] + i * w[3]) as *mut u8).write_volatile(i as u8);
                    }
                    0
                }
                FORK => {
                    let forked = fork(|| {
                        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                        loop {
                            libc::pause();
                        }
                    });
                    forked.map_or(-1, |pid| i64::from(pid.as_raw_pid()))
                }
                LEADERLESS => {
                    let mut thread = std::mem::zeroed();
                    let arg = fd as usize as *mut libc::c_void;
                    libc::pthread_create(&mut thread, std::ptr::null(), second_thread, arg);
                    libc::syscall(libc::SYS_exit, 0);
                    0
                }
                number => {
                    let r = libc::syscall(number as libc::c_long, w[1], w[2], w[3], w[4], w[5], w[6]);
                    if r < 0 { -(*libc::__errno_location() as i64) } else { r }
                }
            };
            libc::write(fd, (&raw const reply).cast(), 8);
        }
    }
}

extern "C" fn second_thread(fd: *mut libc::c_void) -> *mut libc::c_void {
    let fd = fd as usize as i32;
    let reply = 0i64;
    // SAFETY: writes a live word.
    unsafe { libc::write(fd, (&raw const reply).cast(), 8) };
    serve_fd(fd)
}
