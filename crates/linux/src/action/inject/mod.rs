//! System calls in the name of another process, for advice that the kernel takes only from the process itself: huge
//! pages on and off, locking.
//!
//! The main thread is stopped for about a millisecond by ptrace and made to execute system calls with an instruction
//! that its program has anyway; no code is written. Then every register is put back, so that an interrupted system call
//! goes on as after any stop. What is done to stay harmless:
//!
//! * A **helper**, a process forked for the one request, does it. Whatever kills Isotherm (`kill -9` included) leaves
//!   the helper alive, which finishes its stop and leaves.
//! * A **parachute**: before any register is changed, a signal frame with all registers lies below the stack pointer,
//!   as the kernel itself would lay it down, and the injected call returns into it. Should the helper die, too, in the
//!   middle, the kernel lets the thread go on, and it puts its registers back by itself (`rt_sigreturn`).
//! * Anything unusual is refused: see [`eligible`] and [`refusal`].

mod call;
mod eligible;
mod error;
mod frame;
mod gadgets;
mod helper;
mod injector;
mod plan;
mod refusal;
mod sandbox;
mod shared;
#[cfg(test)]
mod tests;
mod thread;

use crate::proc::PidFd;
use isotherm_core::addr::AddrRange;
use isotherm_core::scheme::action::Action;
use std::sync::atomic::AtomicBool;

pub(super) use call::Call;
pub(crate) use eligible::ineligible;
pub(super) use injector::Injector;

/// Does one of the four injected actions on a range of a process, to try out whether that works here; why it does not.
pub(crate) fn try_on(process: &PidFd, action: Action, range: AddrRange) -> Option<String> {
    let Some(call) = Call::of(action) else { return Some(format!("{action} is not done by injection")) };
    Injector::default().run(process, call, &[range], &AtomicBool::new(false)).error
}
