//! Scalable vector graphics.

use super::raster::encode_png;
use super::{Anchor, Canvas, Image, TextSize, base64};
use crate::heat::palette::Rgb;
use std::fmt::Write;

/// An SVG document under way.
#[derive(Debug)]
pub(crate) struct Svg {
    body: String,
    width: f64,
    height: f64,
}

impl Svg {
    /// A document of one colour. `title` is what screen readers say.
    pub fn new(width: f64, height: f64, background: Rgb, title: &str) -> Self {
        let mut svg = Self { body: format!("<title>{}</title>\n", escape(title)), width, height };
        svg.rect(0.0, 0.0, width, height, background);
        svg
    }

    pub fn finish(self) -> String {
        let (w, h) = (self.width, self.height);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" xmlns:xlink=\"http://www.w3.org/1999/xlink\" width=\"{w}\" \
             height=\"{h}\" viewBox=\"0 0 {w} {h}\" font-family=\"system-ui, 'Segoe UI', Roboto, 'Helvetica Neue', \
             'DejaVu Sans', sans-serif\">\n{}</svg>\n",
            self.body
        )
    }
}

/// Text as it may stand in XML.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\t' | '\n' | '\r' => out.push(' '),
            // XML 1.0 has no way to write these.
            c if c < ' ' || c == '\u{fffe}' || c == '\u{ffff}' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

fn font_size(size: TextSize) -> f64 {
    match size {
        TextSize::Small => 11.0,
        TextSize::Normal => 12.5,
        TextSize::Title => 17.0,
    }
}

/// A coordinate with no more digits than the eye sees.
fn n(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

impl Canvas for Svg {
    fn rect(&mut self, x: f64, y: f64, width: f64, height: f64, colour: Rgb) {
        let (x, y, w, h) = (n(x), n(y), n(width), n(height));
        let _ =
            writeln!(self.body, "<rect x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\" fill=\"{}\"/>", colour.hex());
    }

    fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: Rgb) {
        let _ = writeln!(
            self.body,
            "<path d=\"M{} {}L{} {}\" stroke=\"{}\" fill=\"none\"/>",
            n(from.0),
            n(from.1),
            n(to.0),
            n(to.1),
            colour.hex()
        );
    }

    fn area(&mut self, points: &[(f64, f64)], base: f64, fill: Rgb, edge: Rgb) {
        let (Some(first), Some(last)) = (points.first(), points.last()) else { return };
        let mut path = String::new();
        for (i, p) in points.iter().enumerate() {
            let _ = write!(path, "{}{} {}", if i == 0 { "M" } else { "L" }, n(p.0), n(p.1));
        }
        let (x0, x1, base) = (n(first.0), n(last.0), n(base));
        let _ = writeln!(self.body, "<path d=\"{path}L{x1} {base}L{x0} {base}Z\" fill=\"{}\"/>", fill.hex());
        let _ = writeln!(
            self.body,
            "<path d=\"{path}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\" stroke-linejoin=\"round\"/>",
            edge.hex()
        );
    }

    fn text(&mut self, x: f64, y: f64, text: &str, size: TextSize, anchor: Anchor, colour: Rgb) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let weight = if size == TextSize::Title { " font-weight=\"600\"" } else { "" };
        let _ = writeln!(
            self.body,
            "<text x=\"{}\" y=\"{}\" font-size=\"{}\" text-anchor=\"{anchor}\" fill=\"{}\"{weight}>{}</text>",
            n(x),
            n(y),
            font_size(size),
            colour.hex(),
            escape(text)
        );
    }

    fn image(&mut self, x: f64, y: f64, width: f64, height: f64, image: &Image) {
        // Encoding to memory does not fail for an image that has pixels; one without has nothing to show.
        let Ok(png) = encode_png(image) else { return };
        let _ = writeln!(
            self.body,
            "<image x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" preserveAspectRatio=\"none\" \
             style=\"image-rendering:pixelated\" xlink:href=\"data:image/png;base64,{}\"/>",
            n(x),
            n(y),
            n(width),
            n(height),
            base64::encode(&png)
        );
    }

    fn char_width(&self, size: TextSize) -> f64 {
        // Digits and lower-case letters of the common sans-serif fonts are 0.5 to 0.6 em wide.
        font_size(size) * 0.57
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        assert_eq!(escape("a<b> & \"c\"\u{1}\n"), "a&lt;b&gt; &amp; &quot;c&quot;\u{fffd} ");
    }

    #[test]
    fn a_document() {
        let mut s = Svg::new(10.0, 5.0, Rgb(0, 0, 0), "t");
        s.line((0.0, 0.5), (1.25, 2.0), Rgb(255, 0, 0));
        let expected = "<path d=\"M0 0.5L1.25 2\" stroke=\"#ff0000\" fill=\"none\"/>\n</svg>\n";
        assert!(s.finish().ends_with(expected));
    }
}
