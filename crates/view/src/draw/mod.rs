//! Drawing: one set of primitives, and two ways to carry them out.
//!
//! [`svg`] writes vector graphics, [`raster`] paints pixels and encodes PNG. Pictures in [`plot`](crate::plot) are
//! written once against [`Canvas`].

pub mod base64;
pub mod raster;
pub mod svg;

use crate::heat::palette::Rgb;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextSize {
    Small,
    Normal,
    Title,
}

/// Which point of a text its position means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

/// A rectangle of pixels, row by row from the top.
#[derive(Debug, Clone)]
pub struct Image {
    /// Pixels in a row.
    pub width: usize,
    pub height: usize,
    /// `width * height` colours.
    pub pixels: Vec<Rgb>,
}

/// Something to draw on. Positions are pixels from the upper left corner.
pub trait Canvas {
    fn rect(&mut self, x: f64, y: f64, width: f64, height: f64, colour: Rgb);
    /// A line one pixel wide.
    fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: Rgb);
    /// A filled area between `points` (by x) and the horizontal at `base`, with its upper edge drawn in `edge`.
    fn area(&mut self, points: &[(f64, f64)], base: f64, fill: Rgb, edge: Rgb);
    /// Text with its baseline at `y`.
    fn text(&mut self, x: f64, y: f64, text: &str, size: TextSize, anchor: Anchor, colour: Rgb);
    /// An image, stretched to the rectangle without smoothing.
    fn image(&mut self, x: f64, y: f64, width: f64, height: f64, image: &Image);
    /// Width of a character in pixels, about.
    fn char_width(&self, size: TextSize) -> f64;
}
