//! When the kernel makes transparent huge pages.

use super::bracketed;
use crate::roots::Roots;
use std::fmt;

/// The machine's setting; anybody with the right to may change it at any time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HugePages {
    /// Of all memory.
    Always,
    /// Of what asks for them.
    OnRequest,
    /// Not at all.
    Never,
}

impl HugePages {
    /// The kernel's file.
    pub(crate) const FILE: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

    /// Reads it; `None`: the kernel has none (`CONFIG_TRANSPARENT_HUGEPAGE` is off).
    pub fn read(roots: &Roots) -> Option<Self> {
        let mode = bracketed(&roots.line(Self::FILE)?)?;
        [Self::Always, Self::OnRequest, Self::Never].into_iter().find(|setting| setting.to_string() == mode)
    }
}

impl fmt::Display for HugePages {
    /// As the kernel writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Always => "always",
            Self::OnRequest => "madvise",
            Self::Never => "never",
        })
    }
}
