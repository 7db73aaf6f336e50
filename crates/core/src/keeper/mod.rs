//! Generations of live memory: what page-table walks see, kept page by page in user space.
//!
//! The kernel keeps generations in flags of its pages and walks page tables to renew them. Here the walks are those of
//! an [`AccessSource`](crate::source::AccessSource), and what is known of a page lies beside its place in the address
//! space, so it outlasts the page's eviction: a page that comes back is known, however long it was out.
//!
//! * [`page`]: how lately and how often a page was used, for the controller; [`levels`]: how often, of all pages (a
//!   byte each).
//! * [`creation_times`]: which generation was created when.
//! * [`address_space`]: the pages of one address space, their [history](crate::history) (a byte each) and ageing;
//!   [`backing`]: what follows from mappings.
//! * [`reuse`]: the controller. It learns from pages that come back which ones are best evicted.
//! * [`plan`]: who goes next, in an order that keeps neighbours together.
//! * [`pace`]: how often to walk, and how much to evict.
//! * [`memory`]: the processes that share a limit, as one.
//! * [`limit`]: one limit, kept by walks: when to walk, whom to evict, when it is thrashing; [`kernel`]: with the
//!   kernel's own generations; [`fill_rate`]: how fast memory is filled; [`figures`]: what became of a limit.
//! * [`left_to_kernel`]: when evicting is left to the kernel, which has to reclaim all the same.
//! * [`stored`]: generations as bytes, from one command to the next.
//! * [`thrash`]: when evicting more would be thrashing.
//! * [`memcg_lru`]: the LRU of memories, as the kernel has it, which says how several memories share a need;
//!   [`lru_gen`]: the text form of its control file.
//!
//! Pure: no clock, no operating system.

pub mod address_space;
pub mod backing;
pub mod creation_times;
mod fair_share;
pub mod figures;
pub mod fill_rate;
pub mod kernel;
pub mod left_to_kernel;
pub mod levels;
pub mod limit;
pub mod lru_gen;
pub mod memcg_lru;
pub mod memory;
pub mod pace;
pub mod page;
mod page_kind;
pub mod plan;
pub mod reuse;
pub mod stored;
pub mod thrash;

#[cfg(test)]
mod replay;
#[cfg(test)]
mod truth;
#[cfg(test)]
mod virtual_time;

pub use page_kind::PageKind;

/// The fewest generations: the two youngest are never evicted, so that everything gets a second chance.
pub const MIN_GENS: u64 = 2;
