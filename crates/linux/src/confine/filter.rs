//! The filter of system calls, made of what is declared.

use super::{ConfineError, Needs};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};
use std::collections::BTreeMap;
use std::io;

/// A system call that is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Allowed {
    pub number: libc::c_long,
    /// One of these must pass; none: always.
    pub tests: &'static [Test],
}

/// A test of an argument, by its place from 0. The kernel reads all of these as 32 bits, but those of bits that are
/// below the 32nd anyway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Test {
    /// It is this.
    Is(u8, u64),
    /// It has none of these bits.
    NoneOf(u8, u64),
}

impl Test {
    fn rule(self) -> Result<SeccompRule, BackendError> {
        let (place, operator, value) = match self {
            Self::Is(place, value) => (place, SeccompCmpOp::Eq, value),
            Self::NoneOf(place, bits) => (place, SeccompCmpOp::MaskedEq(bits), 0),
        };
        SeccompRule::new(vec![SeccompCondition::new(place, SeccompCmpArgLen::Dword, operator, value)?])
    }
}

/// The programs, in the order in which they are to be installed. Where one of them refuses, the call is refused.
pub(super) fn compile(needs: &Needs) -> Result<[BpfProgram; 2], ConfineError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    let allowed: Vec<Allowed> = needs.wanted_calls().iter().flat_map(|group| group.allowed()).collect();
    for one in &allowed {
        let always = allowed.iter().any(|other| other.number == one.number && other.tests.is_empty());
        let tests = if always { &[] } else { one.tests };
        let tests = tests.iter().map(|test| test.rule()).collect::<Result<Vec<_>, _>>()?;
        rules.entry(one.number).or_default().extend(tests);
    }
    // Its flags lie in memory, where no filter looks. C libraries that see that there is no such call use clone,
    // which the list looks at.
    let unknown = SeccompAction::Errno(libc::ENOSYS as u32);
    let no_clone3 = program([(libc::SYS_clone3, Vec::new())].into(), SeccompAction::Allow, unknown)?;
    rules.insert(libc::SYS_clone3, Vec::new());
    let denied = SeccompAction::Errno(libc::EPERM as u32);
    Ok([no_clone3, program(rules, denied, SeccompAction::Allow)?])
}

fn program(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    otherwise: SeccompAction,
    matched: SeccompAction,
) -> Result<BpfProgram, BackendError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    SeccompFilter::new(rules, otherwise, matched, arch)?.try_into()
}

/// Puts them in force for all threads. What the list refuses from then on is written to the kernel's audit log; that
/// threads are begun the old way is not.
pub(super) fn install([no_clone3, list]: &[BpfProgram; 2]) -> Result<(), ConfineError> {
    install_one(no_clone3, 0)?;
    install_one(list, libc::SECCOMP_FILTER_FLAG_LOG)
}

fn install_one(program: &BpfProgram, more: libc::c_ulong) -> Result<(), ConfineError> {
    let flags = libc::SECCOMP_FILTER_FLAG_TSYNC | more;
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut().cast() };
    // SAFETY: the program lives over the call, which only reads it; its instructions have the layout of the kernel's
    // sock_filter, and there are `len` of them (fewer than 4096).
    let result = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const filter) };
    match result {
        0 => Ok(()),
        1.. => Err(ConfineError::Thread(result)),
        _ => Err(ConfineError::Filter { source: io::Error::last_os_error() }),
    }
}
