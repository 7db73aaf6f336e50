//! The three switches of `/sys/kernel/mm/lru_gen/enabled`.

use std::fmt;
use std::str::FromStr;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Switches {
    /// 0x1: the multi-generational LRU itself.
    pub core: bool,
    /// 0x2: clearing accessed bits in page-table entries by walks.
    pub leaf_walk: bool,
    /// 0x4: clearing accessed bits of page tables themselves.
    pub non_leaf: bool,
}

impl Default for Switches {
    fn default() -> Self {
        Self::from_bits(7)
    }
}

/// What is neither a number nor y or n.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} does not say what to switch on; write y, n, or a number from 0 to 7 (0x1 core, 0x2 walks, 0x4 tables)")]
pub struct SwitchError(String);

impl Switches {
    /// Of three bits; others are not supported and left away.
    pub const fn from_bits(bits: u32) -> Self {
        Self { core: bits & 1 != 0, leaf_walk: bits & 2 != 0, non_leaf: bits & 4 != 0 }
    }

    pub const fn bits(self) -> u32 {
        self.core as u32 | (self.leaf_walk as u32) << 1 | (self.non_leaf as u32) << 2
    }
}

impl fmt::Display for Switches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#06x}", self.bits())
    }
}

impl FromStr for Switches {
    type Err = SwitchError;

    fn from_str(text: &str) -> Result<Self, SwitchError> {
        let text = text.trim();
        let number = match text {
            "y" | "Y" => Ok(7),
            "n" | "N" => Ok(0),
            _ => match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
                Some(hex) => u32::from_str_radix(hex, 16),
                None if text.len() > 1 && text.starts_with('0') => u32::from_str_radix(&text[1..], 8),
                None => text.parse(),
            },
        };
        number.map(Self::from_bits).map_err(|_| SwitchError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_and_written_as_the_kernel_does() {
        for (text, shown) in [("y", "0x0007"), ("n", "0x0000"), ("5", "0x0005"), ("0x3\n", "0x0003"), ("255", "0x0007")]
        {
            assert_eq!(text.parse::<Switches>().unwrap().to_string(), shown);
        }
        assert!("maybe".parse::<Switches>().is_err());
        assert!("".parse::<Switches>().is_err());
        assert!("0x".parse::<Switches>().is_err());
    }
}
