//! Page frames: the same memory is known by the same numbers in every process that maps it.

use crate::common::servant::{PAGE, Servant};
use crate::watching::{TABLE, watch};
use isotherm_core::addr::AddrRange;
use isotherm_core::source::{AccessSource, in_sample};
use isotherm_linux::source::pagetable::PageTableSource;
use isotherm_linux::targets::{TargetSpec, TargetTracker};

/// Pages and frames of target `target`.
fn frames(source: &mut PageTableSource, target: u32, range: AddrRange, one_in: u32) -> Vec<(u64, u64)> {
    let mut out = Vec::new();
    assert!(source.frames(target, &[range], one_in, &mut |addr, frame| out.push((addr, frame))).unwrap());
    out
}

#[test]
fn root_parent_and_forked_child_map_the_same_frames() {
    let s = Servant::new();
    let at = s.map(2 * TABLE, TABLE, libc::MAP_PRIVATE);
    s.madvise(at, TABLE, libc::MADV_NOHUGEPAGE);
    s.touch(at, 512, 1);
    // Where the kernel gives no huge page here, these are 512 entries; the numbers are of the same form.
    s.madvise(at + TABLE, TABLE, libc::MADV_HUGEPAGE);
    s.touch(at + TABLE, 512, 1);
    let grandchild = s.fork();
    // These become the child's own again.
    s.touch(at, 100, 1);
    let spec = TargetSpec::Pids { pids: vec![s.pid(), grandchild], children: false };
    let mut source = PageTableSource::new(TargetTracker::new(spec).unwrap()).unwrap();
    source.poll_targets().unwrap();
    let all = AddrRange::new(at, at + 2 * TABLE);
    let (parent, child) = (frames(&mut source, 0, all, 1), frames(&mut source, 1, all, 1));
    assert_eq!((parent.len(), child.len()), (1024, 1024));
    assert!(parent[..100].iter().zip(&child).all(|(p, c)| p.0 == c.0 && p.1 != c.1));
    assert_eq!(parent[100..], child[100..]);
    let mut distinct: Vec<u64> = parent.iter().map(|p| p.1).collect();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), 1024);
    // A sample is one of frames, and bound by the ranges.
    let part = AddrRange::new(at + 50 * PAGE, at + TABLE + 50 * PAGE);
    for target in 0..2 {
        let of = if target == 0 { &parent } else { &child };
        let want: Vec<(u64, u64)> = of.iter().copied().filter(|&(a, f)| part.contains(a) && in_sample(f, 8)).collect();
        assert_eq!(frames(&mut source, target, part, 8), want);
        assert!(!want.is_empty());
    }
}

#[test]
fn root_frames_are_those_of_pagemap_even_where_access_is_forbidden() {
    use std::os::unix::fs::FileExt;
    let s = Servant::new();
    let at = s.map(TABLE, TABLE, libc::MAP_PRIVATE);
    s.madvise(at, TABLE, libc::MADV_NOHUGEPAGE);
    s.touch(at, 512, 1);
    // The kernel keeps the addresses in such entries inverted.
    s.call(libc::SYS_mprotect, &[at, 100 * PAGE, libc::PROT_NONE as u64]);
    let mut source = watch(&s);
    let pagemap = std::fs::File::open(format!("/proc/{}/pagemap", s.pid())).unwrap();
    let truth = |i: u64| {
        let mut entry = [0; 8];
        pagemap.read_exact_at(&mut entry, (at / PAGE + i) * 8).unwrap();
        (at + i * PAGE, u64::from_ne_bytes(entry) & ((1 << 55) - 1))
    };
    let want: Vec<(u64, u64)> = (0..512).map(truth).collect();
    assert_eq!(frames(&mut source, 0, AddrRange::new(at, at + TABLE), 1), want);
}
