//! Memory system calls behind safe functions.

pub mod advise;
pub mod entry_bits;
pub mod mapping;
mod move_pages;
pub(crate) mod page_flags;
pub mod pagemap;
pub mod scratch;
pub mod swap_trip;
pub(crate) mod words;

pub(crate) use move_pages::move_pages;
