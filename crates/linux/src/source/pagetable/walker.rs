//! Reads other processes' page tables: loads the two walk programs, and runs them for windows and for whole ranges.

use super::descriptor_types::Types;
use super::memory_end::max_phys;
use crate::bpf::btf::{self, Btf, BtfError};
use crate::bpf::insn::AsmError;
use crate::bpf::sys::{self, BpfError, Link, Program, ProgramImage, SharedArrays};
use crate::bpf::walk::{
    self, Built, DATA_MAP_WORDS, DATA_WORDS, KIND_BOUND, KIND_FAULT, KIND_LEAF, KIND_NONE, KIND_TABLE, KernelOffsets,
    LoopStyle, MAX_RANGES, MAX_SLOTS, MapFds, STATE_CHANGED, STATE_DONE, Which, ctrl,
};
use isotherm_core::addr::{AddrRange, PAGE_SIZE};
use std::cell::OnceCell;
use std::path::Path;

// Which of the shared arrays.
const CTRL: usize = 0;
const DATA: usize = 1;

/// Why page tables cannot be read here at all.
#[derive(Debug, thiserror::Error)]
pub enum WalkerError {
    #[error(transparent)]
    Btf(#[from] BtfError),
    /// Maps, programs, iterators.
    #[error(transparent)]
    Bpf(#[from] BpfError),
    /// The instruction builder was misused.
    #[error("the page table program cannot be put together: {0}")]
    Assemble(#[from] AsmError),
    /// The direct map's address could not be found.
    #[error("{0}")]
    Calibrate(String),
}

/// Where physical memory is visible to the kernel, and how page tables are to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Kernel address of physical address 0.
    pub direct_map: u64,
    /// First physical address above all memory.
    pub max_phys: u64,
    /// Address bits of an entry.
    pub phys_mask: u64,
    /// 4 or 5.
    pub levels: u8,
}

/// A process as the programs find it. Each is attached to it when it is needed, a descriptor each.
#[derive(Debug)]
pub(crate) struct TaskLink {
    pid: u32,
    tgid: u32,
    windows: OnceCell<Link>,
    copy: OnceCell<Link>,
}

impl TaskLink {
    /// Detaches the programs: of thousands of processes, a descriptor each is many, and attaching costs a microsecond.
    pub(crate) fn release(&mut self) {
        (self.windows, self.copy) = (OnceCell::new(), OnceCell::new());
    }
}

/// Identity of an address space: it changes when the process executes another program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpaceId {
    mm: u64,
    exec_id: u64,
}

/// How a batch ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Batch {
    /// Everything asked for was done, in this address space.
    Done(SpaceId),
    /// The process changed its address space meanwhile (exec, exit, or the thread used has ended): try again.
    Changed,
    /// No such process, or it has no address space (a zombie, a kernel thread).
    NoSpace,
}

/// What maps an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mapped {
    /// Nothing, in all of the aligned span of 2^`shift` bytes around it.
    Nothing {
        /// log2 of the span.
        shift: u8,
    },
    /// One huge entry of 2^`shift` bytes.
    Leaf {
        /// log2 of what it covers: 21 or 30 (39 does not exist in hardware today).
        shift: u8,
        entry: u64,
    },
    Table,
    /// The read failed although the process was there: the table went away, or points above all known memory.
    Unreadable,
}

impl Mapped {
    fn decode(code: u64, entry: u64) -> Self {
        let shift = (code >> 8) as u8;
        match code & 0xff {
            KIND_NONE => Self::Nothing { shift },
            KIND_LEAF => Self::Leaf { shift, entry },
            KIND_TABLE => Self::Table,
            KIND_FAULT | KIND_BOUND => Self::Unreadable,
            _ => Self::Unreadable,
        }
    }
}

/// A window to read: at most 512 pages inside one 2 MiB span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Address of the first page.
    pub start: u64,
    /// Pages, 1..=512.
    pub pages: u16,
}

/// What a window program found, valid until the next batch.
#[derive(Debug, Clone, Copy)]
pub struct SpanView<'a> {
    /// What maps the window.
    pub mapped: Mapped,
    /// Its last-level entries; empty unless `mapped` is a table.
    pub entries: &'a [u64],
}

/// One table or huge entry that a copy found.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// An address in it; the first one looked at, not always aligned.
    pub addr: u64,
    /// What it is; never `Nothing`.
    pub mapped: Mapped,
    /// The 512 entries; empty unless `mapped` is a table.
    pub table: &'a [u64],
}

/// Loaded programs and the memory shared with them.
#[derive(Debug)]
pub struct Walker {
    arrays: SharedArrays,
    windows: Program,
    copy: Program,
    style: LoopStyle,
    layout: Layout,
    descriptor_types: Option<Types>,
    /// Whether process ids here are those of the initial namespace, which is what tasks carry.
    root_pids: bool,
}

impl Walker {
    /// Loads the programs. They cannot be used before [`set_layout`](Self::set_layout) has said where memory is.
    pub fn load() -> Result<Self, WalkerError> {
        // Before 5.17: no bpf_loop. If something else is wrong, the second attempt fails too and says what.
        Self::load_style(LoopStyle::Helper).or_else(|_| Self::load_style(LoopStyle::Bounded))
    }

    pub(super) fn load_style(style: LoopStyle) -> Result<Self, WalkerError> {
        Self::built_by(style, |which, offsets, maps| walk::build(which, style, offsets, maps))
    }

    /// Loads what `build` makes.
    pub(super) fn built_by(
        style: LoopStyle,
        build: impl Fn(Which, KernelOffsets, MapFds) -> Result<Built, AsmError>,
    ) -> Result<Self, WalkerError> {
        sys::lift_memlock_limit();
        let btf = Btf::kernel()?;
        let task = btf.structure("task_struct")?;
        let offsets = KernelOffsets {
            tgid: task.offset("tgid")?,
            mm: task.offset("mm")?,
            self_exec_id: task.offset("self_exec_id")?,
            pgd: btf.structure("mm_struct")?.offset("pgd")?,
        };
        let attach_btf_id = btf.func_id("bpf_iter_task")?;
        let arrays = SharedArrays::new(&[ctrl::WORDS, DATA_MAP_WORDS])?;
        let maps = MapFds { ctrl: arrays.fd(CTRL), data: arrays.fd(DATA) };
        let types = btf::two_functions();
        let load = |name, which| -> Result<Program, WalkerError> {
            let built = build(which, offsets, maps)?;
            let funcs = [[0, btf::MAIN_FUNC], [built.step_at, btf::CALLBACK_FUNC]];
            let funcs = if style == LoopStyle::Helper { &funcs[..] } else { &[] };
            Ok(arrays.load(&ProgramImage { name, insns: &built.insns, attach_btf_id, funcs, btf: &types })?)
        };
        let windows = load("isotherm_window", Which::Windows)?;
        let copy = load("isotherm_copy", Which::Copy)?;
        let layout = Layout { direct_map: 0, max_phys: 0, phys_mask: 0, levels: 4 };
        let (root_pids, descriptor_types) = (in_root_pid_namespace(), Types::of(&btf, task, attach_btf_id).ok());
        Ok(Self { arrays, windows, copy, style, layout, descriptor_types, root_pids })
    }

    /// States where memory is.
    pub(crate) fn set_layout(&mut self, layout: Layout) {
        self.layout = layout;
    }

    /// The layout in use.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Looks again how much memory there is; whether it has become more. (Memory can be plugged in while the system
    /// runs.)
    pub(crate) fn refresh_max_phys(&mut self) -> bool {
        match max_phys(Path::new("/")) {
            Some(max) if max > self.layout.max_phys => {
                self.layout.max_phys = max;
                true
            }
            _ => false,
        }
    }

    /// What of the kernel's types is needed to read page descriptors; `None`: this kernel keeps them differently.
    pub(super) const fn descriptor_types(&self) -> Option<Types> {
        self.descriptor_types
    }

    /// Whether the kernel's loop helper is used (Linux 5.17 and later).
    pub fn style(&self) -> LoopStyle {
        self.style
    }

    /// Prepares reading process `pid`.
    pub(crate) fn attach(&self, pid: u32) -> TaskLink {
        let tgid = if self.root_pids { pid } else { 0 };
        TaskLink { pid, tgid, windows: OnceCell::new(), copy: OnceCell::new() }
    }

    /// Runs `program` over a process, attached by `slot` of its link.
    fn run(
        program: &Program,
        arrays: &mut SharedArrays,
        task: &TaskLink,
        slot: &OnceCell<Link>,
    ) -> Result<(), BpfError> {
        if let Some(link) = slot.get() {
            return link.run(arrays);
        }
        let link = match program.attach(Some(task.pid)) {
            // Before 6.1 an iterator cannot be limited to the process: go through all and compare the id.
            Err(_) if task.tgid != 0 => program.attach(None),
            other => other,
        }?;
        slot.get_or_init(|| link).run(arrays)
    }

    fn start(&mut self, link: &TaskLink, count: usize) {
        let Layout { direct_map, max_phys, phys_mask, levels } = self.layout;
        let c = self.arrays.words_mut(CTRL);
        c[ctrl::TGID] = link.tgid as u64;
        c[ctrl::COUNT] = count as u64;
        c[ctrl::DIRECT_MAP] = direct_map;
        c[ctrl::MAX_PHYS] = max_phys;
        c[ctrl::PHYS_MASK] = phys_mask;
        c[ctrl::LEVELS] = levels as u64;
        c[ctrl::STATE] = 0;
    }

    fn outcome(&self) -> Batch {
        let c = self.arrays.words(CTRL);
        match c[ctrl::STATE] {
            STATE_DONE => Batch::Done(SpaceId { mm: c[ctrl::MM], exec_id: c[ctrl::EXEC_ID] }),
            STATE_CHANGED => Batch::Changed,
            _ => Batch::NoSpace,
        }
    }

    /// Kernel address of the top-level table that the last batch saw.
    pub(crate) fn top_table(&self) -> u64 {
        self.arrays.words(CTRL)[ctrl::PGD]
    }

    /// Reads the first windows of `spans`, as many as fit one batch, and tells how many. What was found is then in
    /// [`span`](Self::span).
    pub(crate) fn read_spans(&mut self, link: &TaskLink, spans: &[Span]) -> Result<(usize, Batch), BpfError> {
        let (mut n, mut used) = (0, 0);
        let slots = self.arrays.words_mut(CTRL)[ctrl::SLOTS..].chunks_exact_mut(ctrl::SLOT_WORDS);
        for (s, slot) in spans.iter().zip(slots.take(self.style.steps())) {
            // Never read past the end of the table, whatever was asked for.
            let pages = (s.pages as usize).clamp(1, 512 - (s.start / PAGE_SIZE % 512) as usize);
            if used + pages > DATA_WORDS {
                break;
            }
            slot.copy_from_slice(&[s.start, pages as u64 | (used as u64) << 32, 0, 0]);
            used += pages;
            n += 1;
        }
        self.start(link, n);
        Self::run(&self.windows, &mut self.arrays, link, &link.windows)?;
        Ok((n, self.outcome()))
    }

    /// Window `i` of the last [`read_spans`](Self::read_spans).
    pub fn span(&self, i: usize) -> SpanView<'_> {
        let slot = self.slot(i);
        let mapped = Mapped::decode(slot[2], slot[3]);
        let (pages, first) = ((slot[1] & 0xffff) as usize, (slot[1] >> 32) as usize);
        let entries = if mapped == Mapped::Table { &self.arrays.words(DATA)[first..first + pages] } else { &[] };
        SpanView { mapped, entries }
    }

    fn slot(&self, i: usize) -> &[u64] {
        &self.arrays.words(CTRL)[ctrl::SLOTS + i * ctrl::SLOT_WORDS..][..ctrl::SLOT_WORDS]
    }

    /// Copies tables below `ranges` (at most [`MAX_RANGES`] are looked at), from `cursor` on. What was found is then in
    /// [`records`](Self::records); [`Progress`] says where to go on.
    pub(crate) fn copy_tables(
        &mut self,
        link: &TaskLink,
        ranges: &[AddrRange],
        cursor: u64,
    ) -> Result<(Progress, Batch), BpfError> {
        let n = ranges.len().min(MAX_RANGES);
        let words = self.arrays.words_mut(CTRL);
        for (slot, r) in words[ctrl::RANGES..].chunks_exact_mut(2).zip(&ranges[..n]) {
            slot.copy_from_slice(&[r.start, r.end]);
        }
        words[ctrl::RANGE] = 0;
        words[ctrl::CURSOR] = cursor;
        words[ctrl::RECORDS] = 0;
        words[ctrl::TABLES] = 0;
        self.start(link, n);
        Self::run(&self.copy, &mut self.arrays, link, &link.copy)?;
        let c = self.arrays.words(CTRL);
        Ok((Progress { cursor: c[ctrl::CURSOR], ranges_done: c[ctrl::RANGE] as usize }, self.outcome()))
    }

    /// What the last [`copy_tables`](Self::copy_tables) found, in address order.
    pub fn records(&self) -> impl Iterator<Item = Record<'_>> {
        let n = (self.arrays.words(CTRL)[ctrl::RECORDS] as usize).min(MAX_SLOTS);
        let mut tables = self.arrays.words(DATA).chunks_exact(512);
        (0..n).map(move |i| {
            let slot = self.slot(i);
            let mapped = Mapped::decode(slot[2], slot[3]);
            let table = if mapped == Mapped::Table { tables.next().unwrap_or(&[]) } else { &[] };
            Record { addr: slot[0], mapped, table }
        })
    }
}

/// Where a copy stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Address to go on at.
    pub cursor: u64,
    /// Ranges that are finished, of those given.
    pub ranges_done: usize,
}

/// Whether this process is in the initial pid namespace, whose inode number is fixed in the kernel's interface.
fn in_root_pid_namespace() -> bool {
    std::fs::read_link("/proc/self/ns/pid").is_ok_and(|l| l.as_os_str() == "pid:[4026531836]")
}
