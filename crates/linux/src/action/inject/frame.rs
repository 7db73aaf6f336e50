//! The parachute: a signal frame that puts all registers of a thread back when `rt_sigreturn` takes it.
//!
//! Layout: struct rt_sigframe and ucontext in the kernel's arch/x86/include (uapi)
//! asm/{sigframe,sigcontext,ucontext}.h.

use std::arch::x86_64::__cpuid_count;

/// Longest extended state (AVX-512 with AMX is 11008), with room to spare.
pub(super) const XSTATE_MOST: usize = 16 << 10;
/// Address of the restorer, then the ucontext; a multiple of 64.
const HEAD: usize = 8 + 304 + 8;
pub(super) const FRAME_MOST: usize = HEAD + XSTATE_MOST + 64;
/// Bytes below the stack pointer that functions may use without moving it.
const RED_ZONE: u64 = 128;

const UC_FP_XSTATE: u64 = 1;
const UC_SIGCONTEXT_SS: u64 = 2;
const UC_STRICT_RESTORE_SS: u64 = 4;
/// No valid flags of an alternate stack: the kernel then leaves that as it is, and ignores the error.
const SS_LEAVE_ALONE: u32 = 0x5a5a;
const MAGIC1: u32 = 0x4650_5853;
const MAGIC2: u32 = 0x4650_5845;
/// Where the extended state says what it holds.
const SW_RESERVED: usize = 464;
const XSTATE_BV: usize = 512;
const HEADER_END: usize = 576;
/// Tile data of AMX: its place exists only for threads that asked for it.
const XTILE_DATA: u64 = 1 << 18;

/// Kernel-internal results of interrupted system calls.
const ERESTARTSYS: i64 = -512;
const ERESTARTNOINTR: i64 = -513;
const ERESTARTNOHAND: i64 = -514;
const ERESTART_RESTARTBLOCK: i64 = -516;

/// All that the frame is to put back.
pub(super) struct State<'a> {
    pub regs: &'a libc::user_regs_struct,
    pub mask: u64,
    /// As ptrace gives it (NT_X86_XSTATE).
    pub xstate: &'a [u8],
}

/// Writes the frame for a thread in `state` to `out`. Gives its address in the target (the injected call's stack
/// pointer) and its length; `None` if the state is of a form that is not known.
pub(super) fn build(state: &State<'_>, restore: u64, out: &mut [u8; FRAME_MOST]) -> Option<(u64, usize)> {
    let (features, size) = extent(state.xstate)?;
    let total = HEAD + size + 4;
    let regs = state.regs;
    let base = regs.rsp.checked_sub(RED_ZONE + total as u64)? & !63;
    out.get_mut(..total)?.fill(0);

    let mut at = 0;
    let mut put = |value: u64| {
        out[at..at + 8].copy_from_slice(&value.to_le_bytes());
        at += 8;
    };
    put(restore);
    put(UC_FP_XSTATE | UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS);
    put(0); // uc_link
    put(0); // ss_sp
    put(SS_LEAVE_ALONE.into());
    put(0); // ss_size
    let (rip, rax) = resumed(regs);
    let general = [
        regs.r8,
        regs.r9,
        regs.r10,
        regs.r11,
        regs.r12,
        regs.r13,
        regs.r14,
        regs.r15,
        regs.rdi,
        regs.rsi,
        regs.rbp,
        regs.rbx,
        regs.rdx,
        rax,
        regs.rcx,
        regs.rsp,
        rip,
        regs.eflags,
    ];
    general.into_iter().for_each(&mut put);
    put(regs.cs | regs.ss << 48);
    [0; 4].into_iter().for_each(&mut put); // err, trapno, oldmask, cr2
    put(base + HEAD as u64);
    [0; 8].into_iter().for_each(&mut put);
    put(state.mask);

    let x = out.get_mut(HEAD..total)?;
    x[..size].copy_from_slice(state.xstate.get(..size)?);
    x[SW_RESERVED..XSTATE_BV].fill(0);
    x[SW_RESERVED..SW_RESERVED + 4].copy_from_slice(&MAGIC1.to_le_bytes());
    x[SW_RESERVED + 4..SW_RESERVED + 8].copy_from_slice(&(size as u32 + 4).to_le_bytes());
    x[SW_RESERVED + 8..SW_RESERVED + 16].copy_from_slice(&features.to_le_bytes());
    x[SW_RESERVED + 16..SW_RESERVED + 20].copy_from_slice(&(size as u32).to_le_bytes());
    x[size..].copy_from_slice(&MAGIC2.to_le_bytes());
    Some((base, total))
}

/// Where the thread would go on and with what in rax, were it let go without us: an interrupted system call is done
/// again, as the kernel does it. One that waits for a time that is stored in the kernel (nanosleep, poll) cannot be, as
/// `rt_sigreturn` forgets that: it ends with EINTR.
fn resumed(regs: &libc::user_regs_struct) -> (u64, u64) {
    if (regs.orig_rax as i64) < 0 {
        return (regs.rip, regs.rax);
    }
    match regs.rax as i64 {
        ERESTARTSYS | ERESTARTNOINTR | ERESTARTNOHAND => (regs.rip.wrapping_sub(2), regs.orig_rax),
        ERESTART_RESTARTBLOCK => (regs.rip, -i64::from(libc::EINTR) as u64),
        _ => (regs.rip, regs.rax),
    }
}

/// Features and length of the extended state as a signal frame of this thread holds it.
fn extent(xstate: &[u8]) -> Option<(u64, usize)> {
    let word = |at: usize| Some(u64::from_le_bytes(xstate.get(at..at + 8)?.try_into().ok()?));
    let (mut features, in_use) = (word(SW_RESERVED)?, word(XSTATE_BV)?);
    if in_use & XTILE_DATA == 0 {
        features &= !XTILE_DATA;
    }
    if features & 3 != 3 || in_use & !features != 0 || word(XSTATE_BV + 8)? != 0 {
        return None;
    }
    let mut size = HEADER_END;
    for i in (2..63).filter(|i| features >> i & 1 == 1) {
        // Offset and length of a component in the form that is not compacted.
        let leaf = __cpuid_count(0xd, i);
        size = size.max(leaf.ebx as usize + leaf.eax as usize);
    }
    (size <= xstate.len() && size <= XSTATE_MOST).then_some((features, size))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn regs() -> libc::user_regs_struct {
        // SAFETY: plain integers.
        let mut regs: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        (regs.rsp, regs.rip, regs.orig_rax, regs.rax) = (0x7fff_0000_1238, 0x40_1002, u64::MAX, 7);
        (regs.cs, regs.ss, regs.rbx, regs.eflags) = (0x33, 0x2b, 0xb, 0x246);
        regs
    }

    fn word(frame: &[u8], at: usize) -> u64 {
        u64::from_le_bytes(frame[at..at + 8].try_into().unwrap())
    }

    #[test]
    fn frame_lies_below_the_red_zone_and_is_aligned() {
        let mut xstate = vec![0; HEADER_END];
        xstate[SW_RESERVED] = 3;
        let regs = regs();
        let mut out = [0xff; FRAME_MOST];
        let state = State { regs: &regs, mask: 0x1234, xstate: &xstate };
        let (base, len) = build(&state, 0xabc, &mut out).unwrap();
        assert!(base.is_multiple_of(64) && base + len as u64 <= regs.rsp - RED_ZONE);
        assert_eq!(len, HEAD + HEADER_END + 4);
        assert_eq!((word(&out, 0), word(&out, 8)), (0xabc, 7));
        // uc_mcontext begins 40 bytes into the ucontext; offsets as in struct sigcontext.
        let sc = 8 + 40;
        assert_eq!((word(&out, sc + 11 * 8), word(&out, sc + 13 * 8)), (0xb, 7));
        assert_eq!((word(&out, sc + 15 * 8), word(&out, sc + 16 * 8)), (regs.rsp, regs.rip));
        assert_eq!(word(&out, sc + 18 * 8), 0x33 | 0x2b << 48);
        assert_eq!(word(&out, sc + 184), base + HEAD as u64);
        assert_eq!(word(&out, sc + 256), 0x1234);
        assert_eq!(word(&out, HEAD + SW_RESERVED) as u32, MAGIC1);
        assert_eq!(out[len - 4..len], MAGIC2.to_le_bytes());
    }

    #[test]
    fn interrupted_calls_are_done_again() {
        let mut r = regs();
        (r.orig_rax, r.rax) = (0, ERESTARTSYS as u64);
        assert_eq!(resumed(&r), (0x40_1000, 0));
        r.rax = ERESTART_RESTARTBLOCK as u64;
        assert_eq!(resumed(&r), (0x40_1002, -4i64 as u64));
        r.rax = 17;
        assert_eq!(resumed(&r), (0x40_1002, 17));
        // Not in a system call: the number means nothing.
        (r.orig_rax, r.rax) = (u64::MAX, ERESTARTSYS as u64);
        assert_eq!(resumed(&r), (0x40_1002, ERESTARTSYS as u64));
    }

    #[test]
    fn state_of_unknown_form_is_refused() {
        assert_eq!(extent(&[]), None);
        assert_eq!(extent(&[0; 512]), None);
        let mut x = vec![0; 4096];
        assert_eq!(extent(&x), None);
        x[SW_RESERVED] = 3;
        assert_eq!(extent(&x), Some((3, HEADER_END)));
        // Something is in use that is not said to be there; compacted form.
        x[XSTATE_BV] = 4;
        assert_eq!(extent(&x), None);
        (x[XSTATE_BV], x[XSTATE_BV + 8]) = (1, 1);
        assert_eq!(extent(&x), None);
    }
}
