//! Colours of rates: a perceptually even path from indigo over magenta and orange to pale yellow.
//!
//! The path is given in OKLCH (B. Ottosson, "A perceptual color space for image processing", 2020) with lightness
//! rising in even steps, so that equal steps of the scale look equal, and so that the order survives a grey print.

use std::sync::LazyLock;

/// A colour, 8 bits a channel, sRGB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rgb(pub u8, pub u8, pub u8);

impl Rgb {
    /// `#rrggbb`.
    pub fn hex(self) -> String {
        format!("#{:02x}{:02x}{:02x}", self.0, self.1, self.2)
    }

    /// The nearest of the 240 fixed colours of a 256-colour terminal.
    pub(crate) fn ansi256(self) -> u8 {
        const STEPS: [u8; 6] = [0, 95, 135, 175, 215, 255];
        let nearest = |v: u8| (0..6).min_by_key(|&i| STEPS[i].abs_diff(v)).unwrap_or(0);
        let (r, g, b) = (nearest(self.0), nearest(self.1), nearest(self.2));
        let cube = Rgb(STEPS[r], STEPS[g], STEPS[b]);
        let mean = (u16::from(self.0) + u16::from(self.1) + u16::from(self.2)) / 3;
        let grey_index = (mean.saturating_sub(3) / 10).min(23) as u8;
        let grey = Rgb(8 + 10 * grey_index, 8 + 10 * grey_index, 8 + 10 * grey_index);
        if self.distance(grey) < self.distance(cube) { 232 + grey_index } else { (16 + 36 * r + 6 * g + b) as u8 }
    }

    fn distance(self, other: Self) -> u32 {
        let d = |a: u8, b: u8| u32::from(a.abs_diff(b)).pow(2);
        d(self.0, other.0) + d(self.1, other.1) + d(self.2, other.2)
    }
}

/// Behind everything, and where nothing is mapped.
pub(crate) const BACKGROUND: Rgb = Rgb(0x10, 0x12, 0x18);
/// Memory that was observed and not accessed.
pub(crate) const COLD: Rgb = Rgb(0x22, 0x29, 0x3a);
/// Memory that could not be observed, and the stripes across it.
pub const BLIND: Rgb = Rgb(0x3d, 0x40, 0x46);
/// The stripes across [`BLIND`].
pub(crate) const BLIND_STRIPE: Rgb = Rgb(0x6b, 0x6f, 0x76);

/// Lightness, chroma and hue (degrees) of the path's corners, evenly spaced.
const PATH: [(f64, f64, f64); 6] = [
    (0.36, 0.130, 287.0),
    (0.47, 0.185, 312.0),
    (0.58, 0.215, 358.0),
    (0.69, 0.195, 395.0),
    (0.81, 0.160, 433.0),
    (0.96, 0.095, 465.0),
];

static TABLE: LazyLock<[Rgb; 256]> = LazyLock::new(|| std::array::from_fn(|i| on_path(i as f64 / 255.0)));

/// The colour of a level: 0 is [`COLD`], 1 to 255 run along the path.
pub fn colour(level: u8) -> Rgb {
    if level == 0 { COLD } else { TABLE[usize::from(level)] }
}

fn on_path(t: f64) -> Rgb {
    let at = t.clamp(0.0, 1.0) * (PATH.len() - 1) as f64;
    let i = (at as usize).min(PATH.len() - 2);
    let (a, b, f) = (PATH[i], PATH[i + 1], at - i as f64);
    let mix = |x: f64, y: f64| x + (y - x) * f;
    oklch(mix(a.0, b.0), mix(a.1, b.1), mix(a.2, b.2))
}

fn oklch(lightness: f64, chroma: f64, hue: f64) -> Rgb {
    let (sin, cos) = hue.to_radians().sin_cos();
    let (a, b) = (chroma * cos, chroma * sin);
    let l = (lightness + 0.396_337_777_4 * a + 0.215_803_757_3 * b).powi(3);
    let m = (lightness - 0.105_561_345_8 * a - 0.063_854_172_8 * b).powi(3);
    let s = (lightness - 0.089_484_177_5 * a - 1.291_485_548_0 * b).powi(3);
    Rgb(
        to_srgb(4.076_741_662_1 * l - 3.307_711_591_3 * m + 0.230_969_929_2 * s),
        to_srgb(-1.268_438_004_6 * l + 2.609_757_401_1 * m - 0.341_319_396_5 * s),
        to_srgb(-0.004_196_086_3 * l - 0.703_418_614_7 * m + 1.707_614_701_0 * s),
    )
}

fn to_srgb(linear: f64) -> u8 {
    let v = linear.clamp(0.0, 1.0);
    let gamma = if v <= 0.003_130_8 { 12.92 * v } else { 1.055 * v.powf(1.0 / 2.4) - 0.055 };
    (gamma * 255.0).round() as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Relative luminance, WCAG 2.
    fn luminance(c: Rgb) -> f64 {
        let lin = |v: u8| {
            let v = f64::from(v) / 255.0;
            if v <= 0.040_45 { v / 12.92 } else { ((v + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * lin(c.0) + 0.7152 * lin(c.1) + 0.0722 * lin(c.2)
    }

    #[test]
    fn hotter_is_always_lighter() {
        for level in 2..=255u8 {
            assert!(luminance(colour(level)) >= luminance(colour(level - 1)) * 0.995, "level {level}");
        }
        assert!(luminance(colour(255)) > 0.8);
    }

    #[test]
    fn the_rarest_access_differs_from_cold_and_unmapped() {
        for other in [COLD, BACKGROUND, BLIND, BLIND_STRIPE] {
            assert!(colour(1).distance(other) > 2000, "{:?} and {other:?}", colour(1));
        }
    }

    #[test]
    fn ansi_colours() {
        assert_eq!(Rgb(255, 255, 255).ansi256(), 231);
        assert_eq!(Rgb(8, 8, 8).ansi256(), 232);
        assert_eq!(Rgb(255, 0, 0).ansi256(), 196);
        assert_eq!(Rgb(120, 121, 119).ansi256(), 243);
    }
}
