//! A figure and the ends between which it is known to lie.

use isotherm_core::history::frame::bytes;
use isotherm_core::units::format_size;

/// Bytes, and the ends between which they are known to lie.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Estimate {
    /// The figure to show.
    pub bytes: u64,
    /// The least that may be true.
    pub least: u64,
    pub most: u64,
}

impl Estimate {
    pub(super) fn of_pages(pages: u64, least: u64, most: u64) -> Self {
        Self { bytes: bytes(pages), least: bytes(least), most: bytes(most) }
    }

    /// Whether its ends differ by more than 5 % of something, bytes.
    pub fn is_wide(&self, of: u64) -> bool {
        u128::from(self.most.saturating_sub(self.least)) * 20 > u128::from(of)
    }

    /// `12.3 MiB`; with both ends where they differ by more than 5 % of the figure: `12.3 MiB (11.9 to 13.0)`.
    pub fn text(&self) -> String {
        let text = format_size(self.bytes);
        if !self.is_wide(self.bytes) {
            return text;
        }
        let (least, most) = (format_size(self.least), format_size(self.most));
        let ((number, unit), (_, other)) = (split_unit(&least), split_unit(&most));
        let same = unit == split_unit(&text).1 && other == unit;
        if same {
            format!("{text} ({number} to {})", split_unit(&most).0)
        } else {
            format!("{text} ({least} to {most})")
        }
    }
}

fn split_unit(size: &str) -> (&str, &str) {
    size.split_once(' ').unwrap_or((size, ""))
}
