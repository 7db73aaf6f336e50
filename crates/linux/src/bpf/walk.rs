//! The two programs that walk a page table, and the memory they share with us. `docs/ebpf-program.md` shows the same
//! programs as readable C.
//!
//! Both run as a task iterator: the kernel calls them with each task of the process, under the RCU read lock, so page
//! table pages that the process gives up meanwhile stay readable until they return. All reads go through
//! `bpf_probe_read_kernel`, which cannot fault.

use super::insn::{Alu, Asm, AsmError, Cond, Insn, Label, Reg, Width};
use Reg::*;
use Width::{W32, W64};

/// Helper numbers of the kernel's BPF interface.
pub(super) const PROBE_READ_KERNEL: i32 = 113;
const BPF_LOOP: i32 = 181;

/// Words of the control map, in front of the slots.
#[allow(missing_docs)]
pub mod ctrl {
    /// In: thread group id to look for; 0 takes the first task with an address space.
    pub(crate) const TGID: usize = 0;
    /// In: number of slots (window program) or of ranges (copy program) to work on.
    pub const COUNT: usize = 1;
    /// In: virtual address of physical address 0.
    pub(crate) const DIRECT_MAP: usize = 2;
    /// In: first physical address above all memory.
    pub(crate) const MAX_PHYS: usize = 3;
    /// In: which bits of an entry are the physical address.
    pub(crate) const PHYS_MASK: usize = 4;
    /// In: levels of the page table, 4 or 5.
    pub const LEVELS: usize = 5;
    /// Out: see the `state_` constants.
    pub(crate) const STATE: usize = 6;
    /// Out: kernel address of the address space, its only use being to compare it.
    pub(crate) const MM: usize = 7;
    /// Out: counts executions of another program.
    pub(crate) const EXEC_ID: usize = 8;
    /// Out: kernel address of the top-level table.
    pub(crate) const PGD: usize = 9;
    /// In and out, copy program: index of the range in work.
    pub(crate) const RANGE: usize = 10;
    /// In and out, copy program: next address to look at.
    pub(crate) const CURSOR: usize = 11;
    /// Out, copy program: slots written.
    pub const RECORDS: usize = 12;
    /// Out, copy program: tables copied.
    pub const TABLES: usize = 13;
    /// First word of the slots, [`SLOT_WORDS`] each.
    pub(crate) const SLOTS: usize = 16;
    /// Words of a slot: address, entries wanted | first word << 32, code, entry.
    pub(crate) const SLOT_WORDS: usize = 4;
    /// First word of the ranges, two words each: start, end.
    pub(crate) const RANGES: usize = SLOTS + super::MAX_SLOTS * SLOT_WORDS;
    pub const WORDS: usize = RANGES + super::MAX_RANGES * 2;
}

/// No task with an address space was seen.
pub(crate) const STATE_NONE: u64 = 0;
/// The batch was done, and the task had the same address space at its end.
pub(crate) const STATE_DONE: u64 = 1;
/// The task changed or lost its address space during the batch.
pub(crate) const STATE_CHANGED: u64 = 2;

/// Slots in the control map: windows a batch, or records of a copy.
pub(crate) const MAX_SLOTS: usize = 1024;
/// Ranges of a copy.
pub(crate) const MAX_RANGES: usize = 256;
/// Last-level tables a copy can hold: 256 KiB, beyond which nothing is gained.
pub const MAX_TABLES: usize = 64;
/// Words of the data map that may be asked for.
pub(crate) const DATA_WORDS: usize = MAX_TABLES * 512;
/// Words of the data map. The surplus lets the verifier see that a whole table fits at any start below `DATA_WORDS`.
pub(crate) const DATA_MAP_WORDS: usize = DATA_WORDS + 512;
/// Steps of the bounded loop for kernels without `bpf_loop`: the verifier walks through each of them, which takes time.
pub(crate) const BOUNDED_STEPS: usize = 256;

/// Codes in a slot: what kind in the low byte, the level as log2 of what an entry there covers in the next.
pub(crate) const KIND_NONE: u64 = 1;
/// The entry maps memory itself.
pub(crate) const KIND_LEAF: u64 = 2;
/// A last-level table was copied.
pub(crate) const KIND_TABLE: u64 = 3;
pub(crate) const KIND_FAULT: u64 = 4;
/// An entry pointed above all memory.
pub(crate) const KIND_BOUND: u64 = 5;

/// Offsets in the kernel's structures, from its BTF.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelOffsets {
    /// `task_struct.tgid`
    pub tgid: u32,
    /// `task_struct.mm`
    pub mm: u32,
    /// `task_struct.self_exec_id`
    pub self_exec_id: u32,
    /// `mm_struct.pgd`
    pub pgd: u32,
}

/// How the program repeats its step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoopStyle {
    /// With the helper `bpf_loop` (Linux 5.17).
    Helper,
    /// As a loop that the verifier unrolls, at most [`BOUNDED_STEPS`] a run.
    Bounded,
}

impl LoopStyle {
    /// Steps in one run.
    pub const fn steps(self) -> usize {
        match self {
            Self::Helper => MAX_SLOTS,
            Self::Bounded => BOUNDED_STEPS,
        }
    }
}

/// Which program to build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// Reads the entries that map given windows, one slot each.
    Windows,
    /// Copies whole last-level tables below given ranges, skipping what is not populated.
    Copy,
}

#[derive(Debug)]
pub struct Built {
    pub insns: Vec<Insn>,
    /// First instruction of the step function.
    pub step_at: u32,
}

/// Descriptors of the two maps.
#[derive(Debug, Clone, Copy)]
pub struct MapFds {
    pub ctrl: i32,
    pub data: i32,
}

const fn word(index: usize) -> i16 {
    (index * 8) as i16
}

/// Stack slots, relative to the frame pointer.
const SCRATCH: i16 = -8;
const TASK: i16 = -16;

/// Builds one of the programs.
pub fn build(which: Which, style: LoopStyle, k: KernelOffsets, maps: MapFds) -> Result<Built, AsmError> {
    let mut a = Asm::new();
    let step = a.label();
    main_function(&mut a, style, k, maps, step);
    let step_at = a.len() as u32;
    a.bind(step);
    match which {
        Which::Windows => window_step(&mut a, maps),
        Which::Copy => copy_step(&mut a, maps),
    }
    Ok(Built { insns: a.finish()?, step_at })
}

/// `*(fp + SCRATCH) = *(R3 + off)`; goes on at `fail` if that faults. Loses R0..R5.
fn read_word(a: &mut Asm, off: u32, fail: Label) {
    if off != 0 {
        a.alu(Alu::Add, R3, off as i32);
    }
    a.mov_reg(R1, FP);
    a.alu(Alu::Add, R1, SCRATCH as i32);
    a.mov(R2, 8);
    a.call(PROBE_READ_KERNEL);
    a.jump_if(Cond::Ne, R0, 0, fail);
}

/// Calls `step` with 0, 1, ... until it returns something else than 0. Loses R0 to R5, and R8.
pub(super) fn repeat(a: &mut Asm, style: LoopStyle, step: Label) {
    match style {
        LoopStyle::Helper => {
            a.mov(R1, style.steps() as i32);
            a.func(R2, step);
            a.mov(R3, 0);
            a.mov(R4, 0);
            a.call(BPF_LOOP);
        }
        LoopStyle::Bounded => {
            let (again, enough) = (a.label(), a.label());
            a.mov(R8, 0);
            a.bind(again);
            a.mov_reg(R1, R8);
            a.call_local(step);
            a.jump_if(Cond::Ne, R0, 0, enough);
            a.alu(Alu::Add, R8, 1);
            a.jump_if(Cond::Lt, R8, style.steps() as i32, again);
            a.bind(enough);
        }
    }
}

/// Picks the task, notes whose address space it has, runs the steps, and checks that the address space is still the
/// same.
fn main_function(a: &mut Asm, style: LoopStyle, k: KernelOffsets, maps: MapFds, step: Label) {
    let (out, any) = (a.label(), a.label());
    // R6 = task, R7 = control map; the context is { meta, task }.
    a.load(W64, R6, R1, 8);
    a.jump_if(Cond::Eq, R6, 0, out);
    a.store(W64, FP, TASK, R6);
    a.map_value(R7, maps.ctrl, 0);
    // Another thread of the process has been served already.
    a.load(W64, R1, R7, word(ctrl::STATE));
    a.jump_if(Cond::Ne, R1, STATE_NONE as i32, out);
    a.load(W64, R8, R7, word(ctrl::TGID));
    a.jump_if(Cond::Eq, R8, 0, any);
    // tgid is 4 bytes; read with the word after it and cut off.
    a.mov_reg(R3, R6);
    read_word(a, k.tgid, out);
    a.load(W32, R1, FP, SCRATCH);
    a.jump_if_reg(Cond::Ne, R1, R8, out);
    a.bind(any);
    // A thread that is exiting, a zombie leader and a kernel thread have no address space: wait for the next thread.
    a.mov_reg(R3, R6);
    read_word(a, k.mm, out);
    a.load(W64, R9, FP, SCRATCH);
    a.jump_if(Cond::Eq, R9, 0, out);
    a.store(W64, R7, word(ctrl::MM), R9);
    a.mov_reg(R3, R9);
    read_word(a, k.pgd, out);
    a.load(W64, R1, FP, SCRATCH);
    a.store(W64, R7, word(ctrl::PGD), R1);
    a.mov_reg(R3, R6);
    read_word(a, k.self_exec_id, out);
    a.load(W64, R1, FP, SCRATCH);
    a.store(W64, R7, word(ctrl::EXEC_ID), R1);
    repeat(a, style, step);
    // exit and exec take the address space away from the task before they tear it down. So if the task still has it,
    // it was whole all along.
    let changed = a.label();
    a.load(W64, R3, FP, TASK);
    read_word(a, k.mm, changed);
    a.load(W64, R1, FP, SCRATCH);
    a.jump_if_reg(Cond::Ne, R1, R9, changed);
    a.store_imm(W64, R7, word(ctrl::STATE), STATE_DONE as i32);
    a.jump(out);
    a.bind(changed);
    a.store_imm(W64, R7, word(ctrl::STATE), STATE_CHANGED as i32);
    a.bind(out);
    a.mov(R0, 0);
    a.exit();
}

/// Where a walk may end.
struct Ends {
    /// R1 = entry; nothing mapped below it.
    none: Vec<(u8, Label)>,
    /// R1 = entry that maps memory.
    leaf: Vec<(u8, Label)>,
    fault: Label,
    bound: Label,
}

/// Walks from the top to the last-level table. In: R6 = control map, R8 = address. Out: R1 = entry, and R9 = kernel
/// address of the last-level table if it falls through.
fn walk(a: &mut Asm) -> Ends {
    let (fault, bound, four) = (a.label(), a.label(), a.label());
    let mut ends = Ends { none: Vec::new(), leaf: Vec::new(), fault, bound };
    a.load(W64, R9, R6, word(ctrl::PGD));
    a.load(W64, R1, R6, word(ctrl::LEVELS));
    a.jump_if(Cond::Ne, R1, 5, four);
    for shift in [48, 39, 30, 21] {
        if shift == 39 {
            a.bind(four);
        }
        a.mov_reg(R3, R8);
        a.alu(Alu::Rsh, R3, shift as i32);
        a.alu(Alu::And, R3, 511);
        a.alu(Alu::Lsh, R3, 3);
        a.alu_reg(Alu::Add, R3, R9);
        read_word(a, 0, fault);
        a.load(W64, R1, FP, SCRATCH);
        if shift <= 30 {
            // Bit 7: maps memory itself. Tested before "present": while the kernel splits a huge page, and in a
            // PROT_NONE mapping, the entry keeps bit 7 without bit 0.
            let leaf = a.label();
            a.jump_if(Cond::Set, R1, 0x80, leaf);
            ends.leaf.push((shift, leaf));
        }
        let (none, present) = (a.label(), a.label());
        a.jump_if(Cond::Set, R1, 1, present);
        a.jump(none);
        a.bind(present);
        ends.none.push((shift, none));
        a.load(W64, R9, R6, word(ctrl::PHYS_MASK));
        a.alu_reg(Alu::And, R9, R1);
        a.load(W64, R2, R6, word(ctrl::MAX_PHYS));
        a.jump_if_reg(Cond::Ge, R9, R2, bound);
        a.load(W64, R2, R6, word(ctrl::DIRECT_MAP));
        a.alu_reg(Alu::Add, R9, R2);
    }
    ends
}

const fn code(kind: u64, shift: u8) -> i32 {
    (kind | (shift as u64) << 8) as i32
}

/// `int step(u64 index)` of the window program: serves slot `index`; returns 1 when there is none.
fn window_step(a: &mut Asm, maps: MapFds) {
    let (done, write) = (a.label(), a.label());
    a.map_value(R6, maps.ctrl, 0);
    a.jump_if(Cond::Ge, R1, MAX_SLOTS as i32, done);
    a.load(W64, R2, R6, word(ctrl::COUNT));
    a.jump_if_reg(Cond::Ge, R1, R2, done);
    // R7 = slot
    a.alu(Alu::Lsh, R1, 5);
    a.mov_reg(R7, R6);
    a.alu_reg(Alu::Add, R7, R1);
    a.load(W64, R8, R7, word(ctrl::SLOTS));
    let ends = walk(a);
    // Keep the entry, then read `wanted` entries into the data map.
    a.store(W64, R7, word(ctrl::SLOTS + 3), R1);
    a.mov_reg(R3, R8);
    a.alu(Alu::Rsh, R3, 12);
    a.alu(Alu::And, R3, 511);
    a.alu(Alu::Lsh, R3, 3);
    a.alu_reg(Alu::Add, R3, R9);
    a.load(W32, R2, R7, word(ctrl::SLOTS + 1));
    a.jump_if(Cond::Gt, R2, 512, ends.fault);
    a.jump_if(Cond::Eq, R2, 0, ends.fault);
    a.alu(Alu::Lsh, R2, 3);
    a.load(W32, R4, R7, word(ctrl::SLOTS + 1) + 4);
    a.jump_if(Cond::Ge, R4, DATA_WORDS as i32, ends.fault);
    a.alu(Alu::Lsh, R4, 3);
    a.map_value(R1, maps.data, 0);
    a.alu_reg(Alu::Add, R1, R4);
    a.call(PROBE_READ_KERNEL);
    a.jump_if(Cond::Ne, R0, 0, ends.fault);
    a.store_imm(W64, R7, word(ctrl::SLOTS + 2), code(KIND_TABLE, 21));
    a.mov(R0, 0);
    a.exit();
    for (kind, list) in [(KIND_NONE, &ends.none), (KIND_LEAF, &ends.leaf)] {
        for &(shift, label) in list {
            a.bind(label);
            a.mov(R2, code(kind, shift));
            a.jump(write);
        }
    }
    for (kind, label) in [(KIND_BOUND, ends.bound), (KIND_FAULT, ends.fault)] {
        a.bind(label);
        a.mov(R1, 0);
        a.mov(R2, code(kind, 0));
        a.jump(write);
    }
    a.bind(write);
    a.store(W64, R7, word(ctrl::SLOTS + 2), R2);
    a.store(W64, R7, word(ctrl::SLOTS + 3), R1);
    a.mov(R0, 0);
    a.exit();
    a.bind(done);
    a.mov(R0, 1);
    a.exit();
}

/// `int step(u64)` of the copy program: looks at the cursor's address, copies or notes what is there, and moves the
/// cursor behind it; returns 1 when everything is done or the maps are full.
fn copy_step(a: &mut Asm, maps: MapFds) {
    let (done, in_range, started, record, next) = (a.label(), a.label(), a.label(), a.label(), a.label());
    a.map_value(R6, maps.ctrl, 0);
    a.load(W64, R1, R6, word(ctrl::RECORDS));
    a.jump_if(Cond::Ge, R1, MAX_SLOTS as i32, done);
    a.load(W64, R1, R6, word(ctrl::RANGE));
    a.jump_if(Cond::Ge, R1, MAX_RANGES as i32, done);
    a.load(W64, R2, R6, word(ctrl::COUNT));
    a.jump_if_reg(Cond::Ge, R1, R2, done);
    // R8 = max(cursor, start of the range)
    a.mov_reg(R7, R1);
    a.alu(Alu::Lsh, R7, 4);
    a.map_value(R2, maps.ctrl, (ctrl::RANGES * 8) as i32);
    a.alu_reg(Alu::Add, R2, R7);
    a.load(W64, R8, R6, word(ctrl::CURSOR));
    a.load(W64, R3, R2, 0);
    a.jump_if_reg(Cond::Ge, R8, R3, started);
    a.mov_reg(R8, R3);
    a.bind(started);
    a.load(W64, R3, R2, 8);
    a.jump_if_reg(Cond::Lt, R8, R3, in_range);
    a.alu(Alu::Add, R1, 1);
    a.store(W64, R6, word(ctrl::RANGE), R1);
    a.mov(R0, 0);
    a.exit();
    a.bind(in_range);
    a.store(W64, R6, word(ctrl::CURSOR), R8);
    let ends = walk(a);
    // R7 = tables so far; copy the table behind them.
    a.load(W64, R7, R6, word(ctrl::TABLES));
    a.jump_if(Cond::Ge, R7, MAX_TABLES as i32, done);
    a.mov_reg(R2, R7);
    a.alu(Alu::Lsh, R2, 12);
    a.map_value(R1, maps.data, 0);
    a.alu_reg(Alu::Add, R1, R2);
    a.mov(R2, 4096);
    a.mov_reg(R3, R9);
    a.call(PROBE_READ_KERNEL);
    a.jump_if(Cond::Ne, R0, 0, ends.fault);
    a.alu(Alu::Add, R7, 1);
    a.store(W64, R6, word(ctrl::TABLES), R7);
    a.load(W64, R1, FP, SCRATCH);
    a.mov(R2, code(KIND_TABLE, 21));
    a.mov(R3, 21);
    a.jump(record);
    // A fault or a wild entry ends the work below one entry of the lowest level only: the cursor moves on by 2 MiB.
    for (kind, label) in [(KIND_BOUND, ends.bound), (KIND_FAULT, ends.fault)] {
        a.bind(label);
        a.mov(R1, 0);
        a.mov(R2, code(kind, 21));
        a.mov(R3, 21);
        a.jump(record);
    }
    for &(shift, label) in &ends.leaf {
        a.bind(label);
        a.mov(R2, code(KIND_LEAF, shift));
        a.mov(R3, shift as i32);
        a.jump(record);
    }
    for &(shift, label) in &ends.none {
        a.bind(label);
        a.mov(R3, shift as i32);
        a.jump(next);
    }
    // In: R1 = entry, R2 = code, R3 = level. Writes a record.
    a.bind(record);
    a.load(W64, R4, R6, word(ctrl::RECORDS));
    a.jump_if(Cond::Ge, R4, MAX_SLOTS as i32, done);
    a.mov_reg(R5, R4);
    a.alu(Alu::Lsh, R5, 5);
    a.mov_reg(R9, R6);
    a.alu_reg(Alu::Add, R9, R5);
    a.store(W64, R9, word(ctrl::SLOTS), R8);
    a.store(W64, R9, word(ctrl::SLOTS + 2), R2);
    a.store(W64, R9, word(ctrl::SLOTS + 3), R1);
    a.alu(Alu::Add, R4, 1);
    a.store(W64, R6, word(ctrl::RECORDS), R4);
    // In: R3 = level. Cursor = ((address >> level) + 1) << level.
    a.bind(next);
    a.alu_reg(Alu::Rsh, R8, R3);
    a.alu(Alu::Add, R8, 1);
    a.alu_reg(Alu::Lsh, R8, R3);
    a.store(W64, R6, word(ctrl::CURSOR), R8);
    a.mov(R0, 0);
    a.exit();
    a.bind(done);
    a.mov(R0, 1);
    a.exit();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_programs_assemble_in_both_styles() {
        let k = KernelOffsets { tgid: 1000, mm: 900, self_exec_id: 1100, pgd: 80 };
        for which in [Which::Windows, Which::Copy] {
            for style in [LoopStyle::Helper, LoopStyle::Bounded] {
                let b = build(which, style, k, MapFds { ctrl: 3, data: 4 }).unwrap();
                assert!(b.insns.len() < 250, "{} instructions", b.insns.len());
                assert!((b.step_at as usize) < b.insns.len());
            }
        }
    }

    #[test]
    fn offsets_fit_the_instruction_format() {
        assert!((ctrl::SLOTS + 3) * 8 <= i16::MAX as usize);
        const { assert!(ctrl::WORDS * 8 < 1 << 29) };
    }
}
