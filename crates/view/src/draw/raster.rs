//! Pixels, with bitmap fonts, encoded as PNG.

use super::{Anchor, Canvas, Image, TextSize};
use crate::error::ViewError;
use crate::heat::palette::Rgb;
use embedded_graphics::mono_font::{MonoFont, MonoTextStyle, iso_8859_1};
use embedded_graphics::pixelcolor::{Rgb888, RgbColor};
use embedded_graphics::prelude::{Dimensions, DrawTarget, Drawable, Pixel, Point, Size};
use embedded_graphics::primitives::Rectangle;
use embedded_graphics::text::Text;

/// A picture made of pixels.
#[derive(Debug)]
pub(crate) struct Raster {
    image: Image,
}

impl Raster {
    /// A picture of one colour.
    pub fn new(width: usize, height: usize, background: Rgb) -> Self {
        Self { image: Image { width, height, pixels: vec![background; width * height] } }
    }

    /// The picture as a PNG file.
    pub fn png(&self) -> Result<Vec<u8>, ViewError> {
        encode_png(&self.image)
    }

    fn set(&mut self, x: i64, y: i64, colour: Rgb) {
        if x >= 0 && y >= 0 && (x as usize) < self.image.width && (y as usize) < self.image.height {
            self.image.pixels[y as usize * self.image.width + x as usize] = colour;
        }
    }
}

/// Encodes an image as PNG, with a palette where it has at most 256 colours.
pub(crate) fn encode_png(image: &Image) -> Result<Vec<u8>, ViewError> {
    let wrong = |e: png::EncodingError| ViewError::Encode(e.to_string());
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, image.width as u32, image.height as u32);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_compression(png::Compression::High);
    let (palette, data) = match indexed(image) {
        Some((palette, indices)) => (Some(palette), indices),
        None => (None, image.pixels.iter().flat_map(|p| [p.0, p.1, p.2]).collect()),
    };
    match palette {
        Some(palette) => {
            encoder.set_color(png::ColorType::Indexed);
            encoder.set_palette(palette);
        }
        None => encoder.set_color(png::ColorType::Rgb),
    }
    let mut writer = encoder.write_header().map_err(wrong)?;
    writer.write_image_data(&data).map_err(wrong)?;
    writer.finish().map_err(wrong)?;
    Ok(out)
}

/// The colours of an image and each pixel's index among them; `None` if there are more than 256.
fn indexed(image: &Image) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut index = std::collections::HashMap::new();
    let mut palette = Vec::new();
    let mut data = Vec::with_capacity(image.pixels.len());
    for &p in &image.pixels {
        let next = index.len();
        let i = *index.entry(p).or_insert_with(|| {
            palette.extend([p.0, p.1, p.2]);
            next
        });
        data.push(u8::try_from(i).ok()?);
    }
    Some((palette, data))
}

impl Canvas for Raster {
    fn rect(&mut self, x: f64, y: f64, width: f64, height: f64, colour: Rgb) {
        let (x0, y0, x1, y1) = (x.round(), y.round(), (x + width).round(), (y + height).round());
        for y in y0 as i64..y1 as i64 {
            for x in x0 as i64..x1 as i64 {
                self.set(x, y, colour);
            }
        }
    }

    fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: Rgb) {
        let steps = (to.0 - from.0).abs().max((to.1 - from.1).abs()).ceil().max(1.0);
        for i in 0..=steps as i64 {
            let f = i as f64 / steps;
            let at = |a: f64, b: f64| (a + (b - a) * f).round() as i64;
            self.set(at(from.0, to.0), at(from.1, to.1), colour);
        }
    }

    fn area(&mut self, points: &[(f64, f64)], base: f64, fill: Rgb, edge: Rgb) {
        for pair in points.windows(2) {
            let ((x0, y0), (x1, y1)) = (pair[0], pair[1]);
            for x in x0.round() as i64..x1.round() as i64 {
                let f = if x1 > x0 { ((x as f64 - x0) / (x1 - x0)).clamp(0.0, 1.0) } else { 0.0 };
                let top = (y0 + (y1 - y0) * f).round() as i64;
                (top..base.round() as i64).for_each(|y| self.set(x, y, fill));
            }
        }
        for pair in points.windows(2) {
            self.line(pair[0], pair[1], edge);
            self.line((pair[0].0, pair[0].1 + 1.0), (pair[1].0, pair[1].1 + 1.0), edge);
        }
    }

    fn text(&mut self, x: f64, y: f64, text: &str, size: TextSize, anchor: Anchor, colour: Rgb) {
        let text = printable(text);
        let width = text.chars().count() as f64 * self.char_width(size);
        let x = match anchor {
            Anchor::Start => x,
            Anchor::Middle => x - width / 2.0,
            Anchor::End => x - width,
        };
        let style = MonoTextStyle::new(font(size), Rgb888::new(colour.0, colour.1, colour.2));
        // Drawing onto this target cannot fail: its error type has no values.
        let _ = Text::new(&text, Point::new(x.round() as i32, y.round() as i32), style).draw(self);
    }

    fn image(&mut self, x: f64, y: f64, width: f64, height: f64, image: &Image) {
        let (x0, y0) = (x.round() as i64, y.round() as i64);
        let (w, h) = (width.round() as usize, height.round() as usize);
        for row in 0..h {
            for col in 0..w {
                let from = row * image.height / h * image.width + col * image.width / w;
                self.set(x0 + col as i64, y0 + row as i64, image.pixels[from]);
            }
        }
    }

    fn char_width(&self, size: TextSize) -> f64 {
        f64::from(font(size).character_size.width + font(size).character_spacing)
    }
}

fn font(size: TextSize) -> &'static MonoFont<'static> {
    match size {
        TextSize::Small => &iso_8859_1::FONT_7X13,
        TextSize::Normal => &iso_8859_1::FONT_8X13,
        TextSize::Title => &iso_8859_1::FONT_9X18_BOLD,
    }
}

/// The fonts hold Latin-1 only: stand-ins for the rest.
fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '…' => out.push_str(".."),
            '–' | '—' | '−' => out.push('-'),
            c if c.is_control() => out.push(' '),
            c if (c as u32) < 256 => out.push(c),
            _ => out.push('?'),
        }
    }
    out
}

impl Dimensions for Raster {
    fn bounding_box(&self) -> Rectangle {
        Rectangle::new(Point::zero(), Size::new(self.image.width as u32, self.image.height as u32))
    }
}

impl DrawTarget for Raster {
    type Color = Rgb888;
    type Error = std::convert::Infallible;

    fn draw_iter<I: IntoIterator<Item = Pixel<Rgb888>>>(&mut self, pixels: I) -> Result<(), Self::Error> {
        for Pixel(at, c) in pixels {
            self.set(at.x.into(), at.y.into(), Rgb(c.r(), c.g(), c.b()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(file: &[u8]) -> (u32, u32, Vec<u8>) {
        let mut decoder = png::Decoder::new(std::io::Cursor::new(file));
        decoder.set_transformations(png::Transformations::EXPAND);
        let mut reader = decoder.read_info().expect("a PNG");
        let mut data = vec![0; reader.output_buffer_size().expect("fits memory")];
        let info = reader.next_frame(&mut data).expect("an image");
        (info.width, info.height, data)
    }

    #[test]
    fn png_holds_the_pixels() {
        let mut r = Raster::new(5, 4, Rgb(1, 2, 3));
        r.rect(1.0, 1.0, 2.0, 1.0, Rgb(200, 100, 50));
        r.rect(-5.0, 3.0, 100.0, 100.0, Rgb(9, 9, 9));
        let (width, height, data) = decoded(&r.png().expect("encodes"));
        assert_eq!((width, height), (5, 4));
        assert_eq!(&data[..3], [1, 2, 3]);
        assert_eq!(&data[(5 + 1) * 3..(5 + 3) * 3], [200, 100, 50, 200, 100, 50]);
        assert_eq!(&data[3 * 5 * 3..], [9; 15]);
    }

    #[test]
    fn many_colours_need_no_palette() {
        let pixels = (0..1000u32).map(|i| Rgb(i as u8, (i >> 8) as u8, 7)).collect();
        let (_, _, data) = decoded(&encode_png(&Image { width: 100, height: 10, pixels }).expect("encodes"));
        assert_eq!(&data[999 * 3..], [231, 3, 7]);
    }

    #[test]
    fn text_leaves_ink_and_knows_its_width() {
        let mut r = Raster::new(100, 20, Rgb(0, 0, 0));
        r.text(50.0, 15.0, "ab…", TextSize::Normal, Anchor::End, Rgb(255, 255, 255));
        let ink: Vec<usize> = (0..2000).filter(|&i| r.image.pixels[i].0 > 0).map(|i| i % 100).collect();
        assert!(!ink.is_empty() && ink.iter().all(|&x| (18..50).contains(&x)));
    }
}
