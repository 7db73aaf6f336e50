//! One stop of the target's main thread: from attaching to letting go.

use super::frame::{self, FRAME_MOST, XSTATE_MOST};
use super::gadgets::{Gadgets, SYSCALL_RET, is_restore};
use super::plan::Plan;
use super::refusal::Refusal;
use super::sandbox::{self, STATUS_MOST};
use crate::ptrace::{Stop, Tracee};
use std::time::{Duration, Instant};

/// How long a thread may take to stop.
const STOP_WITHIN: Duration = Duration::from_millis(100);
/// System calls of the x32 kind carry this bit.
const X32_BIT: u64 = 0x4000_0000;

/// Buffers for a stop, so that nothing is allocated in it.
pub(super) struct Buffers {
    xstate: [u8; XSTATE_MOST],
    frame: [u8; FRAME_MOST],
    saved: [u8; FRAME_MOST],
    status: [u8; STATUS_MOST],
}

impl Buffers {
    pub fn new() -> Box<Self> {
        Box::new(Self {
            xstate: [0; XSTATE_MOST],
            frame: [0; FRAME_MOST],
            saved: [0; FRAME_MOST],
            status: [0; STATUS_MOST],
        })
    }
}

/// A thread that is stopped and ready for calls: its frame is in place.
pub(super) struct Stopped<'a> {
    tracee: Tracee,
    gadgets: Gadgets,
    regs: libc::user_regs_struct,
    mask: u64,
    base: u64,
    saved: &'a [u8],
    begin: Instant,
    /// Whether the registers are others than those it came with.
    changed: bool,
    hook: &'a dyn Fn(),
}

/// A point at which the helper may die in tests: called before and after everything that changes the thread.
pub(super) type Hook<'a> = &'a dyn Fn();

impl<'a> Stopped<'a> {
    /// Stops main thread `pid` and looks whether it may be used. On refusal it has been let go, but for
    /// [`Refusal::NoStop`]: then only our own end lets it go.
    pub(crate) fn seize(plan: &Plan<'_>, buffers: &'a mut Buffers, hook: Hook<'a>) -> Result<Self, Refusal> {
        let (tracee, gadgets) = (Tracee(plan.pid), plan.gadgets);
        hook();
        tracee.seize().map_err(|e| match e.raw_os_error() {
            Some(libc::ESRCH) => Refusal::Gone,
            _ => Refusal::NotPermitted,
        })?;
        hook();
        tracee.interrupt().map_err(|_| Refusal::Gone)?;
        let refuse = |why, signal| {
            // Fails only if it has just been killed.
            let _ = tracee.detach(signal);
            Err(why)
        };
        match tracee.wait_within(STOP_WITHIN) {
            Stop::Interrupted => {}
            Stop::Group => return refuse(Refusal::Stopped, 0),
            Stop::Signal(signal) => return refuse(Refusal::Signals, signal),
            Stop::Syscall => return refuse(Refusal::Unexpected, 0),
            Stop::Gone => return Err(Refusal::Gone),
            Stop::Timeout => return Err(Refusal::NoStop),
        }
        let begin = Instant::now();
        hook();
        if let Err(why) = sandbox::look(&plan.status, &mut buffers.status) {
            return refuse(why, 0);
        }
        match Self::prepare(tracee, gadgets, buffers) {
            Ok((regs, mask, base, saved)) => {
                hook();
                Ok(Self { tracee, gadgets, regs, mask, base, saved, begin, changed: false, hook })
            }
            Err(why) => refuse(why, 0),
        }
    }

    /// Checks everything, lays the frame down.
    #[allow(clippy::type_complexity, reason = "taken apart at once")]
    fn prepare(
        tracee: Tracee,
        gadgets: Gadgets,
        buffers: &'a mut Buffers,
    ) -> Result<(libc::user_regs_struct, u64, u64, &'a [u8]), Refusal> {
        let gone = |_| Refusal::Gone;
        let regs = tracee.regs().map_err(gone)?.ok_or(Refusal::OtherArchitecture)?;
        let in_call = regs.orig_rax as i64 >= 0;
        if !tracee.is_x86_64().map_err(gone)? || (in_call && regs.orig_rax & X32_BIT != 0) {
            return Err(Refusal::OtherArchitecture);
        }
        if tracee.dispatches_syscalls() {
            return Err(Refusal::UserDispatch);
        }
        if !in_call && tracee.in_rseq(regs.rip) {
            return Err(Refusal::CriticalSection);
        }
        // Below the stack pointer of the stack that the kernel made nothing lives but signal frames. Of a stack that
        // the program made that cannot be said. (The stack may have grown since its lower end was read.)
        let floor = gadgets.stack.start.saturating_sub(64 << 20);
        if regs.rsp <= floor || regs.rsp > gadgets.stack.end {
            return Err(Refusal::NotOnStack);
        }
        let mut code = [0; 9];
        if !tracee.read(gadgets.syscall_ret, &mut code[..3]) || code[..3] != SYSCALL_RET {
            return Err(Refusal::OtherCode);
        }
        if !tracee.read(gadgets.restore, &mut code) || !is_restore(&code) {
            return Err(Refusal::OtherCode);
        }
        let mask = tracee.mask().map_err(gone)?;
        let n = tracee.xstate(&mut buffers.xstate).map_err(|_| Refusal::OtherArchitecture)?;
        let xstate = buffers.xstate.get(..n).ok_or(Refusal::OtherArchitecture)?;
        let state = frame::State { regs: &regs, mask, xstate };
        let (base, len) =
            frame::build(&state, gadgets.restore, &mut buffers.frame).ok_or(Refusal::OtherArchitecture)?;
        let (new, old) = (&buffers.frame[..len], &mut buffers.saved[..len]);
        if !tracee.read(base, old) {
            return Err(Refusal::NoRoom);
        }
        if !tracee.write(base, new) {
            let _ = tracee.write(base, old);
            return Err(Refusal::NoRoom);
        }
        Ok((regs, mask, base, old))
    }

    /// How long it has been stopped.
    pub fn since(&self) -> Duration {
        self.begin.elapsed()
    }

    /// Makes it do a system call; gives the result. After an error it has been let go already, or cannot be: then only
    /// our own end does that.
    pub fn call(&mut self, number: u64, args: [u64; 3]) -> Result<i64, Refusal> {
        let mut regs = self.regs;
        // The parachute: the instruction behind the call returns to the frame, which puts everything back.
        (regs.rip, regs.rsp) = (self.gadgets.syscall_ret, self.base);
        (regs.rax, regs.orig_rax) = (number, u64::MAX);
        [regs.rdi, regs.rsi, regs.rdx] = args;
        // Trap and direction flag.
        regs.eflags &= !0x500;
        let gone = |_| Refusal::Gone;
        self.tracee.set_regs(&regs).map_err(gone)?;
        (self.hook)();
        if !self.changed {
            self.changed = true;
            // Signals wait until the thread has its own registers again. Only now: the frame puts the mask back, too.
            self.tracee.set_mask(u64::MAX).map_err(gone)?;
            (self.hook)();
        }
        for _ in 0..2 {
            self.tracee.to_syscall().map_err(gone)?;
            match self.tracee.wait() {
                Stop::Syscall => (self.hook)(),
                Stop::Gone => return Err(Refusal::Gone),
                // SIGSTOP cannot be blocked. It finds the thread where its registers can be put back.
                Stop::Signal(signal) => {
                    self.restore(signal);
                    return Err(Refusal::Signals);
                }
                Stop::Group => {
                    self.restore(0);
                    return Err(Refusal::Stopped);
                }
                Stop::Interrupted | Stop::Timeout => {
                    self.restore(0);
                    return Err(Refusal::Unexpected);
                }
            }
        }
        let regs = self.tracee.regs().map_err(gone)?.ok_or(Refusal::Unexpected)?;
        Ok(regs.rax as i64)
    }

    /// Gives everything back and lets the thread go. Tells how long it was stopped.
    pub fn release(mut self) -> Duration {
        if self.changed {
            // From the exit of a system call the kernel returns to the program directly. It only looks at whether an
            // interrupted call is to be done again on the way out of a stop like the first one: so there the registers
            // are put back.
            let asked = self.tracee.interrupt().and_then(|()| self.tracee.cont());
            let signal = match asked.map(|()| self.tracee.wait()) {
                Ok(Stop::Interrupted | Stop::Group) => 0,
                Ok(Stop::Signal(signal)) => signal,
                // It is gone, or goes on by its parachute at our end.
                Ok(Stop::Gone | Stop::Syscall | Stop::Timeout) | Err(_) => return self.begin.elapsed(),
            };
            (self.hook)();
            self.restore(signal);
        } else {
            let _ = self.tracee.write(self.base, self.saved);
            let _ = self.tracee.detach(0);
        }
        self.begin.elapsed()
    }

    /// Puts mask, registers and memory back, in this order: as long as the registers are not its own, the frame stands.
    fn restore(&mut self, signal: i32) {
        // Errors mean that it was killed meanwhile.
        let _ = self.tracee.set_mask(self.mask);
        (self.hook)();
        let _ = self.tracee.set_regs(&self.regs);
        (self.hook)();
        let _ = self.tracee.write(self.base, self.saved);
        (self.hook)();
        let _ = self.tracee.detach(signal);
        (self.hook)();
    }
}
