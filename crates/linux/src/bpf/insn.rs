//! A small assembler for eBPF instructions: one method per instruction form used here, and labels for jumps.
//!
//! Encoding as in the kernel's "BPF Instruction Set Architecture" (RFC 9669): 8 bytes an instruction, 16 for a 64-bit
//! constant.

/// A register. `R0` returns, `R1`..`R5` carry arguments and are lost in calls, `R6`..`R9` survive calls, `FP` is the
/// read-only frame pointer (512 bytes of stack below it).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub(crate) enum Reg {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    FP,
}

/// Width of a load or store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Width {
    /// 4 bytes.
    W32 = 0x00,
    /// 8 bytes.
    W64 = 0x18,
}

/// 64-bit arithmetic: `dst = dst op src`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Alu {
    Add = 0x00,
    And = 0x50,
    Lsh = 0x60,
    Rsh = 0x70,
    Mov = 0xb0,
}

/// Condition of a jump; comparisons are 64-bit and unsigned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Cond {
    /// `dst == src`
    Eq = 0x10,
    /// `dst > src`
    Gt = 0x20,
    /// `dst >= src`
    Ge = 0x30,
    /// `dst & src` is not zero
    Set = 0x40,
    /// `dst != src`
    Ne = 0x50,
    /// `dst < src`
    Lt = 0xa0,
}

/// One encoded instruction (or half of a 64-bit constant).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Insn {
    pub op: u8,
    /// Destination register in the low, source in the high four bits.
    pub regs: u8,
    /// Jump distance or memory offset.
    pub off: i16,
    pub imm: i32,
}

impl Insn {
    /// The descriptor of the map that it names.
    pub(crate) fn map(&self) -> Option<i32> {
        let names = self.op == CLASS_LD_IMM64 && [PSEUDO_MAP_FD, PSEUDO_MAP_VALUE].contains(&(self.regs >> 4));
        names.then_some(self.imm)
    }
}

/// A place in the program that jumps, calls and callbacks refer to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Label(usize);

/// Why a program cannot be put together; a mistake of the program's author.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AsmError {
    /// A label was used and never bound.
    #[error("instruction {0} refers to a label that was never bound")]
    Unbound(usize),
    /// A jump of more than 32767 instructions.
    #[error("the jump at instruction {0} is too far")]
    TooFar(usize),
}

/// Where the distance to a label goes.
#[derive(Debug, Clone, Copy)]
enum Field {
    Off,
    Imm,
}

const CLASS_LD_IMM64: u8 = 0x18;
const CLASS_LDX_MEM: u8 = 0x61;
const CLASS_ST_MEM: u8 = 0x62;
const CLASS_STX_MEM: u8 = 0x63;
const CLASS_JMP: u8 = 0x05;
const CLASS_ALU64: u8 = 0x07;
const SRC_REG: u8 = 0x08;
const OP_CALL: u8 = 0x85;
const OP_EXIT: u8 = 0x95;
const PSEUDO_CALL: u8 = 1;
const PSEUDO_MAP_FD: u8 = 1;
const PSEUDO_MAP_VALUE: u8 = 2;
const PSEUDO_FUNC: u8 = 4;

/// Collects instructions and resolves labels.
#[derive(Debug, Default)]
pub(crate) struct Asm {
    insns: Vec<Insn>,
    labels: Vec<Option<usize>>,
    uses: Vec<(usize, Label, Field)>,
}

impl Asm {
    pub fn new() -> Self {
        Self::default()
    }

    /// A label to be bound later.
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Binds `label` to the next instruction.
    pub fn bind(&mut self, label: Label) {
        self.labels[label.0] = Some(self.insns.len());
    }

    /// Number of instruction slots so far.
    pub fn len(&self) -> usize {
        self.insns.len()
    }

    fn push(&mut self, op: u8, dst: u8, src: u8, off: i16, imm: i32) {
        self.insns.push(Insn { op, regs: dst | src << 4, off, imm });
    }

    /// `dst = dst op imm` (the constant is sign-extended to 64 bits).
    pub(crate) fn alu(&mut self, op: Alu, dst: Reg, imm: i32) {
        self.push(CLASS_ALU64 | op as u8, dst as u8, 0, 0, imm);
    }

    /// `dst = dst op src`.
    pub(crate) fn alu_reg(&mut self, op: Alu, dst: Reg, src: Reg) {
        self.push(CLASS_ALU64 | SRC_REG | op as u8, dst as u8, src as u8, 0, 0);
    }

    /// `dst = imm`.
    pub fn mov(&mut self, dst: Reg, imm: i32) {
        self.alu(Alu::Mov, dst, imm);
    }

    /// `dst = src`.
    pub(crate) fn mov_reg(&mut self, dst: Reg, src: Reg) {
        self.alu_reg(Alu::Mov, dst, src);
    }

    fn imm64(&mut self, dst: Reg, pseudo: u8, low: i32, high: i32) {
        self.push(CLASS_LD_IMM64, dst as u8, pseudo, 0, low);
        self.push(0, 0, 0, 0, high);
    }

    /// `dst = address of byte `off` of the single value of the array map `fd``.
    pub(crate) fn map_value(&mut self, dst: Reg, fd: i32, off: i32) {
        self.imm64(dst, PSEUDO_MAP_VALUE, fd, off);
    }

    /// `dst = address of the function at `label``, for helpers that call back.
    pub(crate) fn func(&mut self, dst: Reg, label: Label) {
        self.uses.push((self.insns.len(), label, Field::Imm));
        self.imm64(dst, PSEUDO_FUNC, 0, 0);
    }

    /// `dst = *(base + off)`.
    pub fn load(&mut self, width: Width, dst: Reg, base: Reg, off: i16) {
        self.push(CLASS_LDX_MEM | width as u8, dst as u8, base as u8, off, 0);
    }

    /// `*(base + off) = src`.
    pub fn store(&mut self, width: Width, base: Reg, off: i16, src: Reg) {
        self.push(CLASS_STX_MEM | width as u8, base as u8, src as u8, off, 0);
    }

    /// `*(base + off) = imm`.
    pub(crate) fn store_imm(&mut self, width: Width, base: Reg, off: i16, imm: i32) {
        self.push(CLASS_ST_MEM | width as u8, base as u8, 0, off, imm);
    }

    /// Goes on at `label`.
    pub fn jump(&mut self, label: Label) {
        self.uses.push((self.insns.len(), label, Field::Off));
        self.push(CLASS_JMP, 0, 0, 0, 0);
    }

    /// Goes on at `label` if `dst cond imm`.
    pub(crate) fn jump_if(&mut self, cond: Cond, dst: Reg, imm: i32, label: Label) {
        self.uses.push((self.insns.len(), label, Field::Off));
        self.push(CLASS_JMP | cond as u8, dst as u8, 0, 0, imm);
    }

    /// Goes on at `label` if `dst cond src`.
    pub(crate) fn jump_if_reg(&mut self, cond: Cond, dst: Reg, src: Reg, label: Label) {
        self.uses.push((self.insns.len(), label, Field::Off));
        self.push(CLASS_JMP | SRC_REG | cond as u8, dst as u8, src as u8, 0, 0);
    }

    /// Calls the kernel's helper number `helper`.
    pub fn call(&mut self, helper: i32) {
        self.push(OP_CALL, 0, 0, 0, helper);
    }

    /// Calls the function at `label`.
    pub(crate) fn call_local(&mut self, label: Label) {
        self.uses.push((self.insns.len(), label, Field::Imm));
        self.push(OP_CALL, 0, PSEUDO_CALL, 0, 0);
    }

    /// Returns `R0`.
    pub fn exit(&mut self) {
        self.push(OP_EXIT, 0, 0, 0, 0);
    }

    pub fn finish(mut self) -> Result<Vec<Insn>, AsmError> {
        for &(at, label, field) in &self.uses {
            let target = self.labels[label.0].ok_or(AsmError::Unbound(at))?;
            let distance = target as i64 - at as i64 - 1;
            match field {
                Field::Off => self.insns[at].off = i16::try_from(distance).map_err(|_| AsmError::TooFar(at))?,
                Field::Imm => self.insns[at].imm = i32::try_from(distance).map_err(|_| AsmError::TooFar(at))?,
            }
        }
        Ok(self.insns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Reg::*;

    fn bytes(i: &Insn) -> [u8; 8] {
        let mut b = [0; 8];
        b[0] = i.op;
        b[1] = i.regs;
        b[2..4].copy_from_slice(&i.off.to_le_bytes());
        b[4..].copy_from_slice(&i.imm.to_le_bytes());
        b
    }

    // Expected bytes were taken from the encoding tables of RFC 9669.
    #[test]
    fn encodings() {
        let mut a = Asm::new();
        a.mov(R0, -1);
        a.mov_reg(R6, R1);
        a.alu(Alu::Rsh, R3, 12);
        a.alu_reg(Alu::And, R3, R4);
        a.load(Width::W64, R2, FP, -8);
        a.load(Width::W32, R2, R7, 12);
        a.store(Width::W64, R6, 48, R9);
        a.store_imm(Width::W32, R6, 4, 7);
        a.map_value(R6, 5, 16);
        a.call(113);
        a.exit();
        let insns = a.finish().unwrap();
        assert_eq!(insns.iter().filter_map(Insn::map).collect::<Vec<i32>>(), [5]);
        let got: Vec<[u8; 8]> = insns.iter().map(bytes).collect();
        let want: [[u8; 8]; 12] = [
            [0xb7, 0x00, 0, 0, 0xff, 0xff, 0xff, 0xff],
            [0xbf, 0x16, 0, 0, 0, 0, 0, 0],
            [0x77, 0x03, 0, 0, 12, 0, 0, 0],
            [0x5f, 0x43, 0, 0, 0, 0, 0, 0],
            [0x79, 0xa2, 0xf8, 0xff, 0, 0, 0, 0],
            [0x61, 0x72, 12, 0, 0, 0, 0, 0],
            [0x7b, 0x96, 48, 0, 0, 0, 0, 0],
            [0x62, 0x06, 4, 0, 7, 0, 0, 0],
            [0x18, 0x26, 0, 0, 5, 0, 0, 0],
            [0x00, 0x00, 0, 0, 16, 0, 0, 0],
            [0x85, 0x00, 0, 0, 113, 0, 0, 0],
            [0x95, 0x00, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(got, want);
    }

    #[test]
    fn labels_forwards_and_backwards() {
        let mut a = Asm::new();
        let (top, out, f) = (a.label(), a.label(), a.label());
        a.bind(top);
        a.jump_if(Cond::Ge, R1, 10, out);
        a.func(R2, f);
        a.call_local(f);
        a.jump(top);
        a.bind(out);
        a.exit();
        a.bind(f);
        a.exit();
        let i = a.finish().unwrap();
        assert_eq!((i[0].op, i[0].off, i[0].imm), (0x35, 4, 10));
        assert_eq!((i[1].regs, i[1].imm), (0x42, 4));
        assert_eq!((i[3].regs, i[3].imm), (0x10, 2));
        assert_eq!(i[4].off, -5);
    }

    #[test]
    fn mistakes_are_named() {
        let mut a = Asm::new();
        let l = a.label();
        a.jump(l);
        assert_eq!(a.finish(), Err(AsmError::Unbound(0)));
        let mut a = Asm::new();
        let l = a.label();
        a.jump(l);
        (0..40_000).for_each(|_| a.exit());
        a.bind(l);
        assert_eq!(a.finish(), Err(AsmError::TooFar(0)));
    }
}
