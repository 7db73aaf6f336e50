//! Ways to isolate free memory.

use std::fmt;

/// How memory is isolated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Way {
    /// Memory blocks go offline: the very blocks that were asked for, a unit of them at a time, and nothing is cleared.
    /// They are returned batch by batch.
    Offline,
    /// Huge pages are allocated and touched: the kernel chooses which, and clears them. What is returned is given out
    /// again at once, so that everything isolated in a pass is kept until the pass is over.
    Touch,
}

impl Way {
    /// All of them, cheapest first.
    pub const ALL: [Self; 2] = [Self::Offline, Self::Touch];

    /// Its name in commands.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Offline => "offline",
            Self::Touch => "touch",
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
