//! What a scheme does to the memory that it matches.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// What is done to matching memory. Names are DAMOS's, where it has the action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Nothing; only counted.
    Stat,
    /// Read it in ahead of use.
    #[serde(rename = "willneed")]
    WillNeed,
    /// Mark it as cold: the next in line when memory gets short.
    Cold,
    /// Page it out now.
    #[serde(rename = "pageout")]
    PageOut,
    /// Let the kernel back it with huge pages.
    #[serde(rename = "hugepage")]
    HugePage,
    /// Forbid huge pages for it.
    #[serde(rename = "nohugepage")]
    NoHugePage,
    /// Turn it into huge pages now.
    Collapse,
    /// Move it up in the kernel's LRU lists.
    LruPrio,
    /// Move it down in the kernel's LRU lists.
    LruDeprio,
    /// Move it to a fast memory node.
    MigrateHot,
    /// Move it to a slow memory node.
    MigrateCold,
    /// Keep it from being paged out (mlock).
    Lock,
    /// Take a lock back.
    Unlock,
}

/// Which regions come first when the quota does not suffice for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preference {
    /// Those accessed most and longest.
    Hot,
    /// Those accessed least and longest ago.
    Cold,
    /// All alike.
    None,
}

/// A word that names no action.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not an action; use one of {list}", list = Action::ALL.map(Action::name).join(", "))]
pub struct UnknownAction(pub String);

impl Action {
    /// All actions, in the order of the documentation.
    pub const ALL: [Self; 13] = [
        Self::Stat,
        Self::WillNeed,
        Self::Cold,
        Self::PageOut,
        Self::HugePage,
        Self::NoHugePage,
        Self::Collapse,
        Self::LruPrio,
        Self::LruDeprio,
        Self::MigrateHot,
        Self::MigrateCold,
        Self::Lock,
        Self::Unlock,
    ];

    /// The name in scheme files and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stat => "stat",
            Self::WillNeed => "willneed",
            Self::Cold => "cold",
            Self::PageOut => "pageout",
            Self::HugePage => "hugepage",
            Self::NoHugePage => "nohugepage",
            Self::Collapse => "collapse",
            Self::LruPrio => "lru_prio",
            Self::LruDeprio => "lru_deprio",
            Self::MigrateHot => "migrate_hot",
            Self::MigrateCold => "migrate_cold",
            Self::Lock => "lock",
            Self::Unlock => "unlock",
        }
    }

    /// The action that DAMON's old debugfs file meant by a number.
    pub const fn from_debugfs(number: u64) -> Option<Self> {
        Some(match number {
            0 => Self::WillNeed,
            1 => Self::Cold,
            2 => Self::PageOut,
            3 => Self::HugePage,
            4 => Self::NoHugePage,
            5 => Self::Stat,
            _ => return None,
        })
    }

    /// Which regions are served first.
    ///
    /// DAMOS scores `pageout`, `lru_*` and `migrate_*`; the actions that it does not know or serves evenly follow the
    /// same sense here only where it is beyond doubt.
    pub(crate) const fn preference(self) -> Preference {
        match self {
            Self::LruPrio | Self::MigrateHot | Self::Lock => Preference::Hot,
            Self::PageOut | Self::LruDeprio | Self::MigrateCold => Preference::Cold,
            _ => Preference::None,
        }
    }

    /// Whether it changes how memory is from now on, so that doing it again at once would change nothing but cost the
    /// target.
    pub const fn lasts(self) -> bool {
        matches!(self, Self::HugePage | Self::NoHugePage | Self::Collapse | Self::Lock | Self::Unlock)
    }

    /// Whether it is for memory that nobody uses: single pages that have been idle, wherever they lie, if the scheme
    /// asks for memory that is not accessed. Not so `nohugepage`: that is said of mappings, and single pages would cut
    /// them into pieces.
    pub(crate) const fn is_for_idle_pages(self) -> bool {
        matches!(self, Self::Cold | Self::PageOut | Self::LruDeprio | Self::MigrateCold)
    }

    /// Whether memory that is in use would suffer: such an action wants proof, page by page, that nobody used it.
    pub(crate) const fn harms_hot_pages(self) -> bool {
        matches!(self, Self::PageOut | Self::MigrateCold)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Action {
    type Err = UnknownAction;

    fn from_str(text: &str) -> Result<Self, UnknownAction> {
        let lower = text.to_ascii_lowercase();
        Self::ALL.into_iter().find(|a| a.name() == lower).ok_or_else(|| UnknownAction(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for action in Action::ALL {
            assert_eq!(action.name().parse(), Ok(action));
            assert_eq!(serde_json::to_value(action).unwrap(), action.name());
        }
        assert!("page_out".parse::<Action>().unwrap_err().to_string().contains("pageout"));
    }
}
