//! Small eBPF tool kit: an assembler, the kernel's type information, and loading. No C compiler, no libbpf.

mod blob;
pub mod btf;
pub mod insn;
pub(crate) mod read;
pub mod sys;
pub mod walk;
