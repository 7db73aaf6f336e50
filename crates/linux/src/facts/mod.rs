//! Facts about this machine, read from its files without trying anything.

pub(crate) mod buddyinfo;
pub(crate) mod cpus;
mod environment;
mod huge_pages;
mod kernel_damon;
pub(crate) mod meminfo;
pub(crate) mod pressure;
pub(crate) mod vmstat;

pub use environment::{Environment, Hypervisor, Lockdown, NoPressure, SwapArea};
pub use huge_pages::HugePages;
pub(crate) use kernel_damon::KDAMONDS;
pub use kernel_damon::{DamonUser, KernelDamon};

/// The choice in brackets of a file like `always [madvise] never`.
pub(crate) fn bracketed(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    rest.split_once(']').map(|(choice, _)| choice.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bracketed_choice() {
        assert_eq!(bracketed("always [madvise] never\n").as_deref(), Some("madvise"));
        assert_eq!(bracketed("none"), None);
    }
}
