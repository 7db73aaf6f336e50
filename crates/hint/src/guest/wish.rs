//! Which ways of isolating memory the user wants, and which of them the guest has.

use super::GuestError;
use isotherm_core::hinter::{Config, Way};
use isotherm_linux::guestmem::KernelIsolator;
use std::str::FromStr;

/// What the user wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// All that work, the cheapest first.
    Auto,
    Only(Way),
}

/// A text that is no way to isolate memory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no way to isolate memory; there are auto, offline and touch")]
pub struct WishError(String);

impl FromStr for Wish {
    type Err = WishError;

    fn from_str(text: &str) -> Result<Self, WishError> {
        let way = Way::ALL.into_iter().find(|way| way.name() == text).map(Self::Only);
        way.or_else(|| (text == "auto").then_some(Self::Auto)).ok_or_else(|| WishError(text.to_owned()))
    }
}

impl Wish {
    /// Makes `isolator` ready for the ways that are allowed and that the guest has; the limits of a pass in each.
    /// `reserve`: bytes of free memory that are left alone.
    pub(super) fn find(self, isolator: &mut KernelIsolator, reserve: u64) -> Result<Vec<Config>, GuestError> {
        let mut refusals = Vec::new();
        let mut configs = Vec::new();
        for way in Way::ALL.into_iter().filter(|way| matches!(self, Self::Auto) || self == Self::Only(*way)) {
            match (isolator.add(way), way) {
                (Ok(bytes), Way::Offline) => configs.push(Config::offline(bytes, reserve)),
                (Ok(_), Way::Touch) => configs.push(Config::touch(reserve)),
                (Err(e), _) => refusals.push(format!("{way}: {e}")),
            }
        }
        if configs.is_empty() { Err(GuestError::NoWay(refusals.join("; "))) } else { Ok(configs) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes() {
        assert_eq!("auto".parse(), Ok(Wish::Auto));
        assert_eq!("touch".parse(), Ok(Wish::Only(Way::Touch)));
        let refused = |no: &str| no.parse::<Wish>().unwrap_err().to_string().contains("offline and touch");
        assert!(["thp", "reserve"].into_iter().all(refused));
    }
}
