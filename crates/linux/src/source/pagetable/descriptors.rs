//! Which page frames belong to large folios, from the kernel's own descriptors (`struct page`), read through BPF.
//!
//! `/proc/kpageflags` tells the same, for a system call for each frame that lies apart from others; and the longer a machine
//! runs, the further apart lie the frames of neighbouring pages.
//!
//! Descriptors are an array, by frame number. Where it begins is random; it follows from the stack of one of our own threads,
//! of which the kernel keeps a list of descriptors, and whose frames the page table tells.

use super::descriptor_types::Types;
use super::memory_end::max_phys;
use super::pte;
use super::walker::{Batch, Mapped, Span, Walker, WalkerError};
use crate::bpf::btf;
use crate::bpf::insn::AsmError;
use crate::bpf::read::{self, MAX_SLOTS, ctrl};
use crate::bpf::sys::{BpfError, Link, ProgramImage, SharedArrays};
use crate::bpf::walk::{Built, LoopStyle};
use isotherm_core::addr::PAGE_SIZE;
use std::io;
use std::path::Path;

/// Of a folio's first page, where it is large: a bit of `page.flags`. Of the others: the lowest bit of `page.compound_head`.
const TAIL: u64 = 1;
/// Frames that are compared with what `/proc/kpageflags` says, and those of them that may have changed meanwhile.
const COMPARED: usize = 256;
const CHANGED: usize = 8;

/// Reader of descriptors.
#[derive(Debug)]
pub(super) struct Descriptors {
    arrays: SharedArrays,
    link: Link,
    style: LoopStyle,
    types: Types,
    /// Kernel address of that of frame 0.
    first: u64,
}

impl Descriptors {
    /// Finds them by means of a calibrated `walker`. `large`: whether frames are part of a large folio, as
    /// `/proc/kpageflags` has it; both have to agree.
    pub fn find(walker: &mut Walker, large: impl FnOnce(&[u64]) -> io::Result<Vec<bool>>) -> Result<Self, WalkerError> {
        let fail = |why: &str| WalkerError::Calibrate(format!("page descriptors: {why}"));
        let types = walker.descriptor_types().ok_or_else(|| fail("the kernel's type information lacks them"))?;
        let style = walker.style();
        let mut found = Self::built_by(style, types, |control| read::build(style, control))?;
        found.first = found.calibrate(walker, types)?.ok_or_else(|| fail("not found"))?;
        let frames = max_phys(Path::new("/")).ok_or_else(|| fail("no end of memory"))? / PAGE_SIZE;
        let some: Vec<u64> = (0..COMPARED as u64).map(|i| i * (frames / COMPARED as u64)).collect();
        let other = large(&some).map_err(|e| fail(&e.to_string()))?;
        let differ = found.large(&some)?.iter().zip(&other).filter(|(a, b)| a != b).count();
        if differ > CHANGED {
            return Err(fail(&format!("{differ} of {COMPARED} frames differ from /proc/kpageflags")));
        }
        Ok(found)
    }

    /// Loads what `build` makes for the control map.
    pub(super) fn built_by(
        style: LoopStyle,
        types: Types,
        build: impl FnOnce(i32) -> Result<Built, AsmError>,
    ) -> Result<Self, WalkerError> {
        let arrays = SharedArrays::new(&[ctrl::WORDS])?;
        let built = build(arrays.fd(0))?;
        let funcs = [[0, btf::MAIN_FUNC], [built.step_at, btf::CALLBACK_FUNC]];
        let program = arrays.load(&ProgramImage {
            name: "isotherm_read",
            insns: &built.insns,
            attach_btf_id: types.attach_btf_id,
            funcs: if style == LoopStyle::Helper { &funcs } else { &[] },
            btf: &btf::two_functions(),
        })?;
        // Before 6.1 an iterator cannot be limited to a process; any task will do.
        let link = program.attach(Some(std::process::id())).or_else(|_| program.attach(None))?;
        Ok(Self { arrays, link, style, types, first: 0 })
    }

    /// Takes over where descriptors begin.
    #[cfg(test)]
    pub(super) fn begin_at(&mut self, other: &Self) {
        self.first = other.first;
    }

    /// The address of the first descriptor; `None`: the stack is not what it should be.
    fn calibrate(&mut self, walker: &mut Walker, types: Types) -> Result<Option<u64>, WalkerError> {
        self.read(&[])?;
        let task = self.arrays.words(0)[ctrl::TASK];
        let [stack, area] = [types.task_stack, types.task_stack_area].map(|offset| task + offset);
        let words = self.read(&[stack, area])?;
        let (stack, area) = (words[0][0], words[1][0]);
        let pages = self.read(&[area + types.area_pages])?[0][0];
        let descriptors = self.read(&[pages])?[0];
        let link = walker.attach(std::process::id());
        let span = [Span { start: stack, pages: 2 }];
        let (_, Batch::Done(_)) = walker.read_spans(&link, &span)? else { return Ok(None) };
        let phys_mask = walker.layout().phys_mask;
        let seen = walker.span(0);
        let [first, second] = match seen.entries {
            [a, b] if seen.mapped == Mapped::Table && pte::is_present(*a) && pte::is_present(*b) => {
                [a, b].map(|entry| pte::frame(*entry, phys_mask))
            }
            _ => return Ok(None),
        };
        let base = descriptors[0].wrapping_sub(first.wrapping_mul(types.page_size));
        Ok((descriptors[1] == base.wrapping_add(second.wrapping_mul(types.page_size))).then_some(base))
    }

    /// Two words at each of `addresses`, as many as fit a run; zeros where nothing can be read.
    fn read(&mut self, addresses: &[u64]) -> Result<Vec<[u64; 2]>, BpfError> {
        let count = addresses.len().min(self.style.steps()).min(MAX_SLOTS);
        let words = self.arrays.words_mut(0);
        words[ctrl::COUNT] = count as u64;
        words[ctrl::STATE] = 0;
        for (slot, &address) in words[ctrl::SLOTS..].chunks_exact_mut(ctrl::SLOT_WORDS).zip(addresses) {
            slot[..3].copy_from_slice(&[address, 0, 0]);
        }
        self.link.run(&mut self.arrays)?;
        if self.arrays.words(0)[ctrl::STATE] == 0 {
            // As after a fork: it is tied to the process that loaded it.
            let source = io::Error::new(io::ErrorKind::NotFound, "the program found no task");
            return Err(BpfError::Iterate { source });
        }
        let slots = self.arrays.words(0)[ctrl::SLOTS..].chunks_exact(ctrl::SLOT_WORDS);
        Ok(slots.take(count).map(|slot| [slot[1], slot[2]]).collect())
    }

    /// Which of `frames` are part of a large folio; one without a descriptor is not.
    pub fn large(&mut self, frames: &[u64]) -> Result<Vec<bool>, BpfError> {
        let Types { page_size, head, .. } = self.types;
        let mut out = Vec::with_capacity(frames.len());
        for some in frames.chunks(self.style.steps()) {
            let addresses: Vec<u64> =
                some.iter().map(|frame| self.first.wrapping_add(frame.wrapping_mul(page_size))).collect();
            out.extend(self.read(&addresses)?.iter().map(|[flags, link]| flags & head != 0 || link & TAIL != 0));
        }
        Ok(out)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::calibrate::calibrate;
    use super::super::frames::Frames;
    use super::super::pte;
    use super::super::walker::Mapped;
    use super::*;
    use crate::arena::{Arena, HugePages};
    use crate::roots::Roots;
    use std::time::Instant;

    /// Memory of ours in huge pages and in small ones, and its frames: what else the machine holds may be all of one kind.
    pub fn frames_of_both_kinds(walker: &mut Walker) -> ([Arena; 2], Vec<u64>) {
        const PAGES: u64 = 2048;
        let arenas = [HugePages::Yes, HugePages::No].map(|huge| {
            let mut arena = Arena::new(PAGES << 12, huge).unwrap();
            arena.touch(&(0..PAGES).collect::<Vec<_>>());
            arena
        });
        let link = walker.attach(std::process::id());
        let mask = walker.layout().phys_mask;
        let mut frames = Vec::new();
        for arena in &arenas {
            walker.copy_tables(&link, &[arena.range()], 0).unwrap();
            for record in walker.records() {
                match record.mapped {
                    Mapped::Table => {
                        let present = record.table.iter().filter(|entry| pte::is_present(**entry));
                        frames.extend(present.map(|entry| pte::frame(*entry, mask)));
                    }
                    Mapped::Leaf { shift, entry } => {
                        let first = pte::frame(pte::leaf_as_first_page(entry), mask);
                        frames.extend((0..1 << shift >> 12).map(|i| first + i));
                    }
                    Mapped::Nothing { .. } | Mapped::Unreadable => {}
                }
            }
        }
        assert!(frames.len() as u64 >= 2 * PAGES, "{} frames", frames.len());
        (arenas, frames)
    }

    #[test]
    fn root_descriptors_say_what_kpageflags_says() {
        for style in [LoopStyle::Helper, LoopStyle::Bounded] {
            let mut walker = Walker::load_style(style).unwrap();
            calibrate(&mut walker).unwrap();
            let flags = Frames::open(&Roots::system()).unwrap();
            let mut found = Descriptors::find(&mut walker, |frames| flags.large_by_flags(frames)).unwrap();
            let end = max_phys(Path::new("/")).unwrap() / PAGE_SIZE;
            // Beyond the end, too, where there are none.
            let (_ours, of_ours) = frames_of_both_kinds(&mut walker);
            let mut frames: Vec<u64> = (0..5000).map(|i| i * (end / 4900)).chain(of_ours).collect();
            frames.sort_unstable(); // as `flags` wants them
            let began = Instant::now();
            let by_descriptors = found.large(&frames).unwrap();
            let between = Instant::now();
            let by_flags = flags.large_by_flags(&frames).unwrap();
            eprintln!("{:?} and {:?} for {} frames", between - began, between.elapsed(), frames.len());
            let differ = by_flags.iter().zip(&by_descriptors).filter(|(a, b)| a != b).count();
            let large = by_flags.iter().filter(|large| **large).count();
            assert!(large > 50 && large < frames.len() - 100, "{large} frames of large folios");
            assert!(differ < 50, "{differ} differ");
        }
    }
}
