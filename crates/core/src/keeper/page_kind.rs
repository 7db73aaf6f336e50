//! What a page holds.

/// What a page holds; the two kinds are reclaimed at different costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PageKind {
    /// Anonymous memory: its backing is swap.
    Anon = 0,
    /// A file's page.
    File = 1,
}

impl PageKind {
    /// The other kind.
    pub const fn other(self) -> Self {
        match self {
            Self::Anon => Self::File,
            Self::File => Self::Anon,
        }
    }
}
