//! Pictures of heatmaps and series, drawn on any [`Canvas`](crate::draw::Canvas).

pub mod axes;
pub mod curves;
pub mod fleet;
pub mod heatmap;
pub mod schemes;
pub mod series;
pub mod tradeoff;

use crate::heat::palette::Rgb;

pub(crate) const BRIGHT: Rgb = Rgb(0xf2, 0xf3, 0xf5);
pub const TEXT: Rgb = Rgb(0xc4, 0xc8, 0xd0);
pub(crate) const DIM: Rgb = Rgb(0x8b, 0x91, 0x9e);
pub(crate) const RULE: Rgb = Rgb(0x4a, 0x50, 0x5e);
pub(crate) const GRID: Rgb = Rgb(0x22, 0x26, 0x30);
pub(crate) const CURVE: Rgb = Rgb(0xf0, 0x8a, 0x5d);
pub(crate) const CURVE_FILL: Rgb = Rgb(0x4a, 0x2c, 0x33);

/// A rectangle of a picture, in pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Frame {
    pub x: f64,
    pub y: f64,
    pub width: f64,
    pub height: f64,
}

impl Frame {
    pub fn right(&self) -> f64 {
        self.x + self.width
    }

    pub fn bottom(&self) -> f64 {
        self.y + self.height
    }
}
