//! What watching costs a target.

/// What setting an accessed bit again costs the target, ns: the processor's walk plus its write to the table. Measured
/// 15 to 335 ns a page in a virtual machine with shadow page tables; the upper end is charged.
pub(crate) const RESET_NS: u64 = 300;
