//! Figures of the targets' processes.

use super::cgroup::Trouble;
use crate::proc::stat::Stat;
use crate::proc::status::Status;
use crate::proc::{ProcessDir, ProcessError};
use crate::roots::Roots;
use isotherm_core::meter::LiveTarget;

/// Resident memory of one process, hugetlb pages included. `None`: it has no memory (any more).
fn rss(dir: &ProcessDir, buf: &mut Vec<u8>) -> Result<Option<u64>, ProcessError> {
    let status = Status::read(dir, buf)?;
    Ok(status.vm_rss.map(|rss| rss + status.hugetlb.unwrap_or(0)))
}

/// Major faults of all threads of one process.
fn major_faults(dir: &ProcessDir, _: &mut Vec<u8>) -> Result<Option<u64>, ProcessError> {
    Ok(Some(Stat::read(dir)?.major_faults))
}

pub(super) fn total_rss(roots: &Roots, targets: &[LiveTarget], buf: &mut Vec<u8>) -> Result<u64, Trouble> {
    sum(roots, targets, buf, rss)
}

pub(super) fn total_major_faults(roots: &Roots, targets: &[LiveTarget], buf: &mut Vec<u8>) -> Result<u64, Trouble> {
    sum(roots, targets, buf, major_faults)
}

/// Adds up over the targets. One that has gone counts nothing; but where nobody is left, nothing is known, which is not
/// zero.
fn sum(
    roots: &Roots,
    targets: &[LiveTarget],
    buf: &mut Vec<u8>,
    figure: fn(&ProcessDir, &mut Vec<u8>) -> Result<Option<u64>, ProcessError>,
) -> Result<u64, Trouble> {
    let mut total: Option<u64> = None;
    for pid in targets.iter().filter_map(|t| t.pid) {
        match figure(&ProcessDir::of(roots, pid), buf) {
            Ok(Some(value)) => total = Some(total.unwrap_or(0).saturating_add(value)),
            Ok(None) => {}
            Err(e) if e.is_gone() => {}
            Err(e) => return Err((e.to_string(), "run as root or as the owner of the processes".into())),
        }
    }
    total.ok_or_else(|| {
        let reason = match targets.len() {
            0 => "there is no target".to_owned(),
            n => format!("none of the {n} targets is a process that still runs"),
        };
        (reason, "name a running process, control group or command".into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_tree::tree;

    fn live(pids: &[Option<u32>]) -> Vec<LiveTarget> {
        pids.iter().enumerate().map(|(i, &pid)| LiveTarget { target: i as u32, pid }).collect()
    }

    #[test]
    fn targets_add_up_and_those_that_have_gone_count_nothing() {
        let stat = |pid: u32, faults: u32| {
            format!("{pid} (a) S 1 1 1 0 -1 4194560 120 99 {faults} 7 1 2 0 0 20 0 5 0 9 1 8 1 94 95 96 0\n")
        };
        let t = tree(&[
            ("proc/4/status", "VmRSS:\t 8 kB\nHugetlbPages:\t 2048 kB\n"),
            ("proc/4/stat", &stat(4, 3)),
            ("proc/5/status", "VmRSS:\t 1 kB\n"),
            ("proc/5/stat", &stat(5, 40)),
            ("proc/6/status", "Name:\tzombie\n"),
        ]);
        let mut buf = Vec::new();
        let targets = live(&[Some(4), Some(5), Some(6), Some(7), None]);
        assert_eq!(total_rss(&t.roots, &targets, &mut buf), Ok((8 + 2048 + 1) << 10));
        assert_eq!(total_major_faults(&t.roots, &targets, &mut buf), Ok(43));
        assert!(total_rss(&t.roots, &live(&[Some(6), Some(7)]), &mut buf).unwrap_err().0.contains("none of the 2"));
        assert!(total_major_faults(&t.roots, &[], &mut buf).unwrap_err().0.contains("no target"));
    }
}
