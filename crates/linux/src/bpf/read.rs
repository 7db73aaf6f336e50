//! The program that reads words of kernel memory, and the memory that it shares with us. `docs/ebpf-program.md` shows it as
//! readable C.
//!
//! It runs as a task iterator like those that [walk](super::walk) page tables, since that is how a program that reads kernel
//! memory can be called at any time; which task it is called with does not matter.

use super::insn::{Alu, Asm, AsmError, Cond, Reg, Width};
use super::walk::{Built, LoopStyle, PROBE_READ_KERNEL, repeat};
use Reg::*;
use Width::W64;

/// Words of the control map.
pub(crate) mod ctrl {
    /// In: number of slots to serve.
    pub(crate) const COUNT: usize = 0;
    /// In: 0. Out: 1, when it ran.
    pub(crate) const STATE: usize = 1;
    /// Out: kernel address of the task that it was called with.
    pub(crate) const TASK: usize = 2;
    /// First word of the slots.
    pub(crate) const SLOTS: usize = 4;
    /// Words of a slot: address, the two words found there (0 where nothing can be read), and one that is not used.
    pub(crate) const SLOT_WORDS: usize = 4;
    pub(crate) const WORDS: usize = SLOTS + super::MAX_SLOTS * SLOT_WORDS;
}

/// Slots in the control map.
pub(crate) const MAX_SLOTS: usize = super::walk::MAX_SLOTS;

/// Bytes read for each slot.
const BYTES: i32 = 16;

/// Builds it. `control`: descriptor of its map.
pub(crate) fn build(style: LoopStyle, control: i32) -> Result<Built, AsmError> {
    let mut a = Asm::new();
    let (step, out) = (a.label(), a.label());
    // The context is { meta, task }.
    a.load(W64, R6, R1, 8);
    a.jump_if(Cond::Eq, R6, 0, out);
    a.map_value(R7, control, 0);
    a.load(W64, R1, R7, word(ctrl::STATE));
    a.jump_if(Cond::Ne, R1, 0, out);
    a.store_imm(W64, R7, word(ctrl::STATE), 1);
    a.store(W64, R7, word(ctrl::TASK), R6);
    repeat(&mut a, style, step);
    a.bind(out);
    a.mov(R0, 0);
    a.exit();
    let step_at = a.len() as u32;
    a.bind(step);
    read_step(&mut a, control);
    Ok(Built { insns: a.finish()?, step_at })
}

/// `int step(u64 index)`: serves slot `index`; returns 1 when there is none.
fn read_step(a: &mut Asm, control: i32) {
    let done = a.label();
    a.map_value(R6, control, 0);
    a.jump_if(Cond::Ge, R1, MAX_SLOTS as i32, done);
    a.load(W64, R2, R6, word(ctrl::COUNT));
    a.jump_if_reg(Cond::Ge, R1, R2, done);
    a.alu(Alu::Lsh, R1, 5);
    a.alu_reg(Alu::Add, R6, R1);
    a.load(W64, R3, R6, word(ctrl::SLOTS));
    a.mov_reg(R1, R6);
    a.alu(Alu::Add, R1, i32::from(word(ctrl::SLOTS + 1)));
    a.mov(R2, BYTES);
    // Where it fails, the helper leaves zeros.
    a.call(PROBE_READ_KERNEL);
    a.mov(R0, 0);
    a.exit();
    a.bind(done);
    a.mov(R0, 1);
    a.exit();
}

const fn word(index: usize) -> i16 {
    (index * 8) as i16
}
