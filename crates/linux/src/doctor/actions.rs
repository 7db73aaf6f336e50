//! What the kernel lets one process do to the memory of another. Each kind of advice is tried on a child of our own,
//! and where its effect can be seen, that is looked at, too.

use super::Finding;
use super::subject::Subject;
use crate::action::LRU_PRIO;
use crate::action::inject::try_on;
use crate::facts::Environment;
use crate::mm::advise::Advice;
use isotherm_core::addr::AddrRange;
use isotherm_core::scheme::action::Action;
use std::io;

const THP_REMEDY: &str = "run as root, or use the action collapse, or have the program call it";
const LOCK_REMEDY: &str = "run as root, or have the program call mlock itself";
const NICE: &str = "run as root, or grant CAP_SYS_NICE and CAP_SYS_PTRACE";

pub(crate) fn probe_actions(env: &Environment) -> Vec<Finding> {
    let subject = Subject::start();
    let on_subject = |name: &'static str, test: &dyn Fn(&Subject) -> Finding| match &subject {
        Ok(subject) => test(subject),
        Err(e) => Finding::unusable(
            name,
            format!("a child to try it on could not be started: {e}"),
            "raise the process limit",
        ),
    };
    // The child's huge pages are first forbidden, then allowed again for what follows.
    let nohugepage =
        on_subject("nohugepage", &|s| injected("nohugepage", s, s.huge, Action::NoHugePage, ("nh", true), THP_REMEDY));
    // Before pageout, which sends the pages to swap, where they lie on no node.
    let migrations = ["migrate_hot", "migrate_cold"].map(|name| on_subject(name, &|s| migrate(name, s, env)));
    let [migrate_hot, migrate_cold] = migrations;
    vec![
        Finding::usable("stat", "counts only; needs nothing"),
        on_subject("willneed", &willneed),
        on_subject("cold", &|s| cold("cold", s)),
        on_subject("pageout", &|s| pageout(s, env)),
        on_subject("hugepage", &|s| injected("hugepage", s, s.huge, Action::HugePage, ("hg", true), THP_REMEDY)),
        nohugepage,
        on_subject("collapse", &collapse),
        // Isotherm never takes over the kernel's DAMON, which somebody else may use.
        Finding::unusable("lru_prio", LRU_PRIO, "use lru_deprio on the rest, or lock"),
        on_subject("lru_deprio", &|s| cold("lru_deprio", s)),
        migrate_hot,
        migrate_cold,
        on_subject("lock", &|s| injected("lock", s, s.small, Action::Lock, ("lo", true), LOCK_REMEDY)),
        on_subject("unlock", &|s| injected("unlock", s, s.small, Action::Unlock, ("lo", false), LOCK_REMEDY)),
    ]
}

/// Advice that the kernel refused: why, and what helps.
fn refused(name: &'static str, error: &io::Error, since: &str) -> Finding {
    match error.raw_os_error() {
        Some(libc::ENOSYS) => Finding::unusable(
            name,
            "the kernel has no process_madvise",
            "use kernel 5.10 or newer with CONFIG_ADVISE_SYSCALLS=y",
        ),
        Some(libc::EPERM | libc::EACCES) => {
            Finding::unusable(name, format!("not permitted on other processes: {error}"), NICE)
        }
        Some(libc::EINVAL) => Finding::unusable(
            name,
            "the kernel does not take this advice for another process",
            format!("use kernel {since} or newer"),
        ),
        _ => Finding::unusable(name, format!("the kernel refused: {error}"), ""),
    }
}

fn willneed(subject: &Subject) -> Finding {
    match subject.advise(subject.small, Advice::WillNeed) {
        Ok(_) => Finding::usable("willneed", ""),
        Err(e) => refused("willneed", &e, "5.10"),
    }
}

fn cold(name: &'static str, subject: &Subject) -> Finding {
    let referenced = || subject.smaps_kib(subject.small, "Referenced");
    let test = || -> io::Result<(u64, u64)> {
        // The other test of the same kind may have left the pages unreferenced: advice is still checked by its return.
        let before = referenced()?;
        subject.advise(subject.small, Advice::Cold)?;
        Ok((before, referenced()?))
    };
    let detail = if name == "lru_deprio" { "through MADV_COLD" } else { "" };
    match test() {
        Ok((before, after)) if before > 0 && after >= before => {
            Finding::unusable(name, "the kernel took the advice but the pages stayed referenced", "")
        }
        Ok(_) => Finding::usable(name, detail),
        Err(e) => refused(name, &e, "5.10"),
    }
}

fn pageout(subject: &Subject, env: &Environment) -> Finding {
    if let Err(e) = subject.advise(subject.small, Advice::PageOut) {
        return refused("pageout", &e, "5.10");
    }
    let free: u64 = env.swap.iter().map(|s| s.size.saturating_sub(s.used)).sum();
    if free == 0 {
        let what = if env.swap.is_empty() { "there is no swap" } else { "swap is full" };
        let mut finding =
            Finding::usable("pageout", format!("the kernel takes the advice, but schemes do nothing for now: {what}"));
        finding.remedy = "add swap, for example zram".into();
        return finding;
    }
    match subject.swapped_pages(subject.small) {
        Ok(0) => Finding::unusable(
            "pageout",
            "the kernel took the advice, but no page of the test went to swap",
            "look at the control group's swap limit (memory.swap.max) and at the swap device",
        ),
        Ok(_) => Finding::usable("pageout", "seen in swap"),
        Err(e) => Finding::usable("pageout", format!("advice is taken; the effect could not be seen: {e}")),
    }
}

/// An action that only a process itself can do: the child is made to do it. `flag` tells in smaps whether it has.
fn injected(
    name: &'static str,
    subject: &Subject,
    range: AddrRange,
    action: Action,
    flag: (&str, bool),
    remedy: &str,
) -> Finding {
    if let Some(why) = try_on(subject.pidfd(), action, range) {
        return Finding::unusable(name, why, remedy);
    }
    match subject.has_flag(range, flag.0) {
        Ok(on) if on == flag.1 => {
            Finding::usable(name, "by a system call in the target's own name; it is stopped for up to 1 ms")
        }
        Ok(_) => {
            Finding::unusable(name, format!("the call worked, but the mapping's flag {} did not change", flag.0), "")
        }
        Err(e) => Finding::usable(name, format!("the call worked; the effect could not be seen: {e}")),
    }
}

fn collapse(subject: &Subject) -> Finding {
    let huge = |range: AddrRange| subject.smaps_kib(range, "AnonHugePages").unwrap_or(0);
    match subject.advise(subject.huge, Advice::Collapse) {
        Ok(_) if huge(subject.huge) > 0 => Finding::usable("collapse", "seen as a huge page"),
        Ok(_) => Finding::unusable("collapse", "the kernel took the advice, but no huge page appeared", ""),
        Err(e) => match e.raw_os_error() {
            Some(libc::EINVAL) => Finding::unusable(
                "collapse",
                "the kernel does not collapse pages of another process",
                "use kernel 6.1 or newer with CONFIG_TRANSPARENT_HUGEPAGE=y",
            ),
            // ENOMEM, EBUSY, EAGAIN: no free 2 MiB of memory at this moment.
            Some(libc::ENOMEM | libc::EBUSY | libc::EAGAIN) => {
                Finding::usable("collapse", format!("advice is taken; no huge page was free just now ({e})"))
            }
            _ => refused("collapse", &e, "6.1"),
        },
    }
}

fn migrate(name: &'static str, subject: &Subject, env: &Environment) -> Finding {
    const ONE_NODE: &str = "there is only one memory node, so there is nowhere to move pages to";
    const NODES: &str = "run on a machine with several NUMA nodes or tiers of memory";
    let addr = subject.small.start;
    let here = match subject.node_of(addr) {
        Err(e) if e.raw_os_error() == Some(libc::ENOSYS) => {
            return Finding::unusable(
                name,
                "the kernel has no move_pages",
                "use a kernel with CONFIG_NUMA and CONFIG_MIGRATION",
            );
        }
        // No right helps here.
        _ if env.memory_nodes.len() < 2 => return Finding::unusable(name, ONE_NODE, NODES),
        Ok(node) => node,
        Err(e) => return Finding::unusable(name, format!("move_pages on another process: {e}"), NICE),
    };
    let Some(&other) = env.memory_nodes.iter().find(|&&n| n as libc::c_int != here) else {
        return Finding::unusable(name, ONE_NODE, NODES);
    };
    match subject.move_to(addr, other) {
        Ok(node) if node as u32 == other => Finding::usable(name, format!("moved a page from node {here} to {other}")),
        Ok(node) => Finding::unusable(
            name,
            format!("a page stayed on node {node} instead of {other}"),
            "free memory on that node",
        ),
        Err(e) => Finding::unusable(name, format!("moving a page to node {other}: {e}"), "free memory on that node"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roots::Roots;

    #[test]
    fn every_refusal_has_a_reason() {
        let findings = probe_actions(&Environment::read(&Roots::system()));
        let names: Vec<_> = findings.iter().map(|f| f.name).collect();
        assert_eq!(names.len(), 13);
        for f in &findings {
            assert_eq!(f.usable, f.reason.is_empty(), "{f:?}");
        }
        assert!(findings.iter().any(|f| f.name == "stat" && f.usable));
    }

    #[test]
    fn one_node_is_the_reason_wherever_the_page_lies() {
        let mut env = Environment::read(&Roots::system());
        env.memory_nodes = vec![0];
        let subject = Subject::start().unwrap();
        // Where there is swap the page is in it then.
        let _ = subject.advise(subject.small, Advice::PageOut);
        for name in ["migrate_hot", "migrate_cold"] {
            let found = migrate(name, &subject, &env);
            assert!(!found.usable && found.reason.contains("only one memory node"), "{found:?}");
            assert!(found.remedy.contains("several NUMA nodes"), "{found:?}");
        }
    }

    #[test]
    fn refusals_are_told_apart() {
        let of = |code| refused("cold", &io::Error::from_raw_os_error(code), "5.10");
        assert!(of(libc::ENOSYS).remedy.contains("CONFIG_ADVISE_SYSCALLS"));
        assert!(of(libc::EPERM).remedy.contains("CAP_SYS_NICE"));
        assert!(of(libc::EINVAL).remedy.contains("5.10"));
    }
}

#[cfg(test)]
mod privileged {
    use super::*;
    use crate::roots::Roots;

    #[test]
    fn root_advice_is_taken_for_another_process() {
        let findings = probe_actions(&Environment::read(&Roots::system()));
        for name in ["willneed", "cold", "pageout", "lru_deprio"] {
            let f = findings.iter().find(|f| f.name == name).unwrap();
            assert!(f.usable, "{f:?}");
        }
    }
}
