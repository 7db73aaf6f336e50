//! A process that checks itself all the time: its data, its registers, its system calls. It is this test program,
//! started again, and runs before `main` on the stack that the kernel made.

use std::arch::asm;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const KIND: &str = "ISOTHERM_TEST_VICTIM";
const PAGES: &str = "ISOTHERM_TEST_PAGES";
const PAGE: u64 = 4096;
const BLOCK: u64 = 512 * PAGE;
/// Words of the file that it shares with the test.
const ADDR: u64 = 0;
const PROGRESS: u64 = 1;
const ERROR: u64 = 2;
const SPARE: u64 = 3;
const TOUCH_SPARE: u64 = 4;
const CONFINE: u64 = 5;

/// What it does between two looks at its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// Computes with all registers.
    Busy,
    /// Sleeps for a time that the kernel keeps (restarted through its own system call).
    Sleep,
    /// Waits in a read that must neither fail nor come back empty.
    Read,
    /// Waits for signals with another mask.
    Suspend,
    /// Waits in its main thread for another, which does the work.
    Threads,
}

pub const ACTIVITIES: [Activity; 5] =
    [Activity::Busy, Activity::Sleep, Activity::Read, Activity::Suspend, Activity::Threads];

/// The process; killed and collected when dropped.
pub struct Victim {
    child: Child,
    file: File,
}

impl Victim {
    /// Starts one with `pages` pages of private memory and waits until it runs.
    pub fn start(kind: Activity, pages: u64) -> Self {
        let file = tempfile::tempfile().unwrap();
        file.set_len(PAGE).unwrap();
        let index = ACTIVITIES.iter().position(|k| *k == kind).unwrap();
        // The child inherits the file as its standard input.
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env(KIND, index.to_string()).env(PAGES, pages.to_string());
        command.stdin(Stdio::from(file.try_clone().unwrap())).stdout(Stdio::null());
        let victim = Self { child: command.spawn().unwrap(), file };
        victim.check("it started");
        victim
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// First address of its memory, a multiple of 2 MiB.
    pub fn addr(&self) -> u64 {
        self.word(ADDR)
    }

    /// First address of 4 MiB more, which it has not touched yet.
    pub fn spare(&self) -> u64 {
        self.word(SPARE)
    }

    /// Makes it touch those.
    pub fn touch_spare(&self) {
        self.file.write_all_at(&1u64.to_ne_bytes(), 8 * TOUCH_SPARE).unwrap();
        wait_until("the spare memory to be touched", || self.word(TOUCH_SPARE) == 2);
    }

    /// Makes its main thread install a filter that kills it at the calls that are injected. May be called again.
    #[allow(dead_code, reason = "not used by every test")]
    pub fn confine(&self) {
        if self.word(CONFINE) == 0 {
            self.file.write_all_at(&1u64.to_ne_bytes(), 8 * CONFINE).unwrap();
        }
        wait_until("the filter", || self.word(CONFINE) == 2);
    }

    fn word(&self, i: u64) -> u64 {
        let mut word = [0; 8];
        self.file.read_exact_at(&mut word, 8 * i).unwrap();
        u64::from_ne_bytes(word)
    }

    /// Waits until it has come round twice more, all in order; then it has looked at all of its data at least once.
    pub fn check(&self, when: &str) {
        let (begin, from) = (Instant::now(), self.word(PROGRESS));
        loop {
            let error = self.word(ERROR);
            assert_eq!(
                error, 0,
                "the victim found fault with itself after {when}: see `fail` in victim.rs for the number"
            );
            if self.word(PROGRESS) >= from + 2 {
                return;
            }
            let state = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap_or_default();
            let state = state.lines().find(|l| l.starts_with("State:")).unwrap_or("State: gone").to_owned();
            let alive = state.contains("R (") || state.contains("S (") || state.contains("D (");
            let stuck = begin.elapsed() > Duration::from_secs(60);
            assert!(alive || begin.elapsed() < Duration::from_secs(5), "the victim does not run after {when}: {state}");
            assert!(!state.contains("Z ("), "the victim died after {when}");
            assert!(!stuck, "the victim makes no progress after {when}: {state}");
            std::thread::sleep(Duration::from_micros(500));
        }
    }
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < Duration::from_secs(60), "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = {
    extern "C" fn before_main() {
        if let Some(kind) = std::env::var(KIND).ok().and_then(|k| k.parse::<usize>().ok()) {
            live(ACTIVITIES[kind], std::env::var(PAGES).unwrap().parse().unwrap());
        }
    }
    before_main
};

static ALARMS: AtomicU64 = AtomicU64::new(0);

extern "C" fn on_alarm(_: i32) {
    ALARMS.fetch_add(1, Ordering::Relaxed);
}

fn live(kind: Activity, pages: u64) -> ! {
    // SAFETY: plain system calls on memory mapped here; the shared words are only used through atomics.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        let rw = libc::PROT_READ | libc::PROT_WRITE;
        let shared = libc::mmap(std::ptr::null_mut(), PAGE as usize, rw, libc::MAP_SHARED, 0, 0);
        assert_ne!(shared, libc::MAP_FAILED);
        let word = |i: u64| &*shared.cast::<AtomicU64>().add(i as usize);
        let len = (pages * PAGE) as usize;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let room = libc::mmap(std::ptr::null_mut(), len + 6 * BLOCK as usize, libc::PROT_NONE, flags, -1, 0) as u64;
        let start = (room + 1).next_multiple_of(BLOCK);
        assert_eq!(libc::mprotect(start as *mut libc::c_void, len, rw), 0);
        libc::madvise(start as *mut libc::c_void, len, libc::MADV_NOHUGEPAGE);
        word(ADDR).store(start, Ordering::Relaxed);
        // Apart from the rest, so that it is a mapping of its own.
        let spare = (start + pages * PAGE + 1).next_multiple_of(BLOCK);
        assert_eq!(libc::mprotect(spare as *mut libc::c_void, 2 * BLOCK as usize, rw), 0);
        word(SPARE).store(spare, Ordering::Relaxed);
        let work = Work { kind, start, pages, spare, shared: shared.cast() };
        if kind == Activity::Threads {
            let mut thread = std::mem::zeroed();
            let work = Work { kind: Activity::Busy, ..work };
            libc::pthread_create(&mut thread, std::ptr::null(), second_thread, (&raw const work).cast_mut().cast());
            libc::pthread_join(thread, std::ptr::null_mut());
            fail(word(ERROR), 9);
        }
        work.run()
    }
}

extern "C" fn second_thread(work: *mut libc::c_void) -> *mut libc::c_void {
    // SAFETY: points to what the main thread keeps while it waits for this one.
    unsafe { (*work.cast::<Work>()).run() }
}

struct Work {
    kind: Activity,
    start: u64,
    pages: u64,
    spare: u64,
    shared: *const AtomicU64,
}

impl Work {
    /// Works and looks at its data, for ever.
    unsafe fn run(&self) -> ! {
        let &Self { kind, start, pages, spare, shared } = self;
        // SAFETY: all addresses are of memory that `live` has mapped for good.
        unsafe {
            let word = |i: u64| &*shared.add(i as usize);
            let timer = prepare(kind);
            let mut round = 0u64;
            for page in 0..pages {
                fill(start + page * PAGE, page, 0);
            }
            loop {
                round += 1;
                let fault = turn(kind, timer, round).or_else(|| {
                    (0..pages).find_map(|page| {
                        let at = start + page * PAGE;
                        let bad = !holds(at, page, round - 1);
                        fill(at, page, round);
                        bad.then_some(1000 + page)
                    })
                });
                if word(TOUCH_SPARE).load(Ordering::Relaxed) == 1 {
                    (0..1024).for_each(|page| fill(spare + page * PAGE, page, 0));
                    word(TOUCH_SPARE).store(2, Ordering::Relaxed);
                }
                if word(CONFINE).load(Ordering::Relaxed) == 1 {
                    confine(word(CONFINE));
                }
                if let Some(number) = fault {
                    fail(word(ERROR), number);
                }
                word(PROGRESS).fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Has madvise, mlock and munlock kill all threads of this process, and says so in `word`.
fn confine(word: &AtomicU64) {
    const KILL: u32 = 0x8000_0000;
    const ALLOW: u32 = 0x7fff_0000;
    let step = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    let equals = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let filter = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(equals, 3, 0, libc::SYS_madvise as u32),
        step(equals, 2, 0, libc::SYS_mlock as u32),
        step(equals, 1, 0, libc::SYS_munlock as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, ALLOW),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, KILL),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: the program outlives the call, which copies it. TSYNC (1): for all threads.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::syscall(libc::SYS_seccomp, 1, 1, &raw const program)
    };
    word.store(if done == 0 { 2 } else { 3 }, Ordering::Relaxed);
}

/// 1: registers; 2 to 8: system calls, see `turn`; 9: joined a thread that never ends; from 1000 on: the page that did
/// not hold what was written to it.
fn fail(word: &AtomicU64, number: u64) -> ! {
    word.store(number, Ordering::Relaxed);
    std::process::abort()
}

fn value(page: u64, round: u64, i: u64) -> u64 {
    (page << 32 ^ round << 12 ^ i).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Eight words of a page, spread over it.
unsafe fn fill(at: u64, page: u64, round: u64) {
    for i in 0..8 {
        // SAFETY: the caller's page is mapped.
        unsafe { ((at + i * 512) as *mut u64).write_volatile(value(page, round, i)) };
    }
}

unsafe fn holds(at: u64, page: u64, round: u64) -> bool {
    // SAFETY: the caller's page is mapped.
    (0..8).all(|i| unsafe { ((at + i * 512) as *const u64).read_volatile() } == value(page, round, i))
}

unsafe fn prepare(kind: Activity) -> i32 {
    // SAFETY: plain system calls with live structures.
    unsafe {
        match kind {
            Activity::Read => {
                let timer = libc::timerfd_create(libc::CLOCK_MONOTONIC, 0);
                let every = libc::timespec { tv_sec: 0, tv_nsec: 3_000_000 };
                let spec = libc::itimerspec { it_interval: every, it_value: every };
                libc::timerfd_settime(timer, 0, &spec, std::ptr::null_mut());
                timer
            }
            Activity::Suspend => {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = on_alarm as *const () as usize;
                libc::sigaction(libc::SIGALRM, &action, std::ptr::null_mut());
                let mut set = std::mem::zeroed();
                libc::sigemptyset(&mut set);
                libc::sigaddset(&mut set, libc::SIGALRM);
                libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
                let every = libc::timeval { tv_sec: 0, tv_usec: 3000 };
                let spec = libc::itimerval { it_interval: every, it_value: every };
                libc::syscall(libc::SYS_setitimer, libc::ITIMER_REAL, &spec, std::ptr::null_mut::<libc::itimerval>());
                -1
            }
            _ => -1,
        }
    }
}

/// One piece of its work; the number of the fault that it found.
unsafe fn turn(kind: Activity, timer: i32, round: u64) -> Option<u64> {
    // SAFETY: system calls with live structures.
    unsafe {
        match kind {
            Activity::Busy | Activity::Threads => (!registers_stay(round)).then_some(1),
            Activity::Sleep => {
                let time = libc::timespec { tv_sec: 0, tv_nsec: 4_000_000 };
                let mut left: libc::timespec = std::mem::zeroed();
                let begin = Instant::now();
                match libc::nanosleep(&time, &mut left) {
                    0 if begin.elapsed() < Duration::from_micros(3900) => Some(2),
                    0 => None,
                    // Allowed after the helper's death: what was left is reported. The kernel adds the timer's slack
                    // (50 us).
                    _ if *libc::__errno_location() == libc::EINTR => (left.tv_nsec > 4_100_000).then_some(3),
                    _ => Some(4),
                }
            }
            Activity::Read => {
                let mut count = 0u64;
                let got = libc::read(timer, (&raw mut count).cast(), 8);
                (got != 8 || count == 0 || count > 1 << 32).then_some(5)
            }
            Activity::Suspend => {
                let before = ALARMS.load(Ordering::Relaxed);
                let mut none = std::mem::zeroed();
                libc::sigemptyset(&mut none);
                let r = libc::sigsuspend(&none);
                let mut now: libc::sigset_t = std::mem::zeroed();
                libc::sigprocmask(libc::SIG_BLOCK, std::ptr::null(), &mut now);
                if r != -1 || *libc::__errno_location() != libc::EINTR {
                    Some(6)
                } else if ALARMS.load(Ordering::Relaxed) == before {
                    Some(7)
                } else {
                    (libc::sigismember(&now, libc::SIGALRM) != 1 || libc::sigismember(&now, libc::SIGUSR1) != 0)
                        .then_some(8)
                }
            }
        }
    }
}

/// Loads all registers that a program may use with known values, lets time pass, and looks whether they are still
/// there.
unsafe fn registers_stay(round: u64) -> bool {
    let seed = round.wrapping_mul(0x5851_f42d_4c95_7f2d) | 1;
    let mut sum: u64;
    let expected = (0..8).fold(0u64, |s, i| s.wrapping_add(seed.wrapping_add(i))) ^ seed ^ (seed.wrapping_add(9));
    // SAFETY: uses registers that are declared, and the red zone below the stack pointer, as a leaf function may.
    unsafe {
        asm!(
            "mov [rsp - 120], {seed}",
            "lea r8, [{seed} + 0]", "movq xmm8, r8",
            "lea r8, [{seed} + 1]", "movq xmm9, r8",
            "lea r8, [{seed} + 2]", "movq xmm10, r8",
            "lea r8, [{seed} + 3]", "movq xmm11, r8",
            "lea r8, [{seed} + 4]", "movq xmm12, r8",
            "lea r8, [{seed} + 5]", "movq xmm13, r8",
            "lea r8, [{seed} + 6]", "movq xmm14, r8",
            "lea r8, [{seed} + 7]", "movq xmm15, r8",
            "lea rdi, [{seed} + 9]",
            "mov rsi, 60000",
            "2:", "dec rsi", "jnz 2b",
            "xor {sum}, {sum}",
            "movq rdx, xmm8", "add {sum}, rdx",
            "movq rdx, xmm9", "add {sum}, rdx",
            "movq rdx, xmm10", "add {sum}, rdx",
            "movq rdx, xmm11", "add {sum}, rdx",
            "movq rdx, xmm12", "add {sum}, rdx",
            "movq rdx, xmm13", "add {sum}, rdx",
            "movq rdx, xmm14", "add {sum}, rdx",
            "movq rdx, xmm15", "add {sum}, rdx",
            "xor {sum}, rdi",
            "xor {sum}, [rsp - 120]",
            seed = in(reg) seed, sum = out(reg) sum,
            out("r8") _, out("rdi") _, out("rsi") _, out("rdx") _,
            out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
            out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
        );
    }
    sum == expected
}
