//! The page table source: reads accessed bits with eBPF, clears them with `process_madvise(MADV_COLD)`.

pub mod calibrate;
pub mod pte;
pub mod walker;
