//! Whole pictures as files: SVG and PNG.

use crate::draw::raster::Raster;
use crate::draw::svg::Svg;
use crate::error::ViewError;
use crate::heat::map::HeatMap;
use crate::heat::palette::BACKGROUND;
use crate::plot::{heatmap, schemes, series, tradeoff};
use crate::schemes::SchemeHistory;
use crate::series::Point;
pub use series::SeriesPicture;

/// A heatmap as SVG. The map has at most the rows and columns of [`heatmap::resolution`].
pub fn heatmap_svg(map: &HeatMap) -> String {
    let mut svg = Svg::new(heatmap::SIZE.0, heatmap::SIZE.1, BACKGROUND, &format!("Heatmap of {}", map.target.title()));
    heatmap::draw(&mut svg, map);
    svg.finish()
}

/// A heatmap as PNG.
pub fn heatmap_png(map: &HeatMap) -> Result<Vec<u8>, ViewError> {
    let mut raster = Raster::new(heatmap::SIZE.0 as usize, heatmap::SIZE.1 as usize, BACKGROUND);
    heatmap::draw(&mut raster, map);
    raster.png()
}

/// A series as SVG.
pub fn series_svg(points: &[Point], picture: &SeriesPicture) -> String {
    let mut svg = Svg::new(series::SIZE.0, series::SIZE.1, BACKGROUND, picture.title);
    series::draw(&mut svg, points, picture);
    svg.finish()
}

/// A series as PNG.
pub fn series_png(points: &[Point], picture: &SeriesPicture) -> Result<Vec<u8>, ViewError> {
    let mut raster = Raster::new(series::SIZE.0 as usize, series::SIZE.1 as usize, BACKGROUND);
    series::draw(&mut raster, points, picture);
    raster.png()
}

/// What a scheme did, as SVG.
pub fn scheme_svg(history: &SchemeHistory) -> String {
    let (width, height) = schemes::size(history);
    let mut svg = Svg::new(width, height, BACKGROUND, &history.title());
    schemes::draw(&mut svg, history);
    svg.finish()
}

/// What a scheme did, as PNG.
pub fn scheme_png(history: &SchemeHistory) -> Result<Vec<u8>, ViewError> {
    let (width, height) = schemes::size(history);
    let mut raster = Raster::new(width as usize, height as usize, BACKGROUND);
    schemes::draw(&mut raster, history);
    raster.png()
}

/// Runtime against memory, as SVG.
pub fn tradeoff_svg(t: &tradeoff::Tradeoff) -> String {
    let mut svg = Svg::new(tradeoff::SIZE.0, tradeoff::SIZE.1, BACKGROUND, &t.title);
    tradeoff::draw(&mut svg, t);
    svg.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heat::axis::Layout;
    use crate::heat::map::HeatOptions;
    use crate::overview::Overview;
    use crate::testdata::small_record;
    use isotherm_core::event::Event;

    fn map() -> HeatMap {
        let mut events = small_record(20);
        for event in &mut events {
            match event {
                Event::Target(t) => t.name = "a <b> & \"c\" \u{1}'d'".into(),
                Event::Mappings { mappings, .. } => mappings[0].name = "[<heap> & more]".into(),
                _ => {}
            }
        }
        let overview = Overview::read(&events).expect("has snapshots");
        let (rows, cols) = heatmap::resolution();
        let options = HeatOptions { rows, cols, time_range: None, address_range: None, layout: Layout::Accessed };
        HeatMap::build(&events, &overview, &overview.targets[0], &options).expect("has snapshots")
    }

    /// Checks that tags are balanced, attributes quoted and special characters escaped; returns the elements' names.
    fn elements(xml: &str) -> Vec<String> {
        let (mut open, mut names): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
        let mut rest = xml.trim();
        while !rest.is_empty() {
            let (text, tag) = rest.split_once('<').expect("a tag");
            assert!(!text.contains('>'), "{text}");
            for entity in text.split('&').skip(1) {
                let name = entity.split_once(';').expect("an entity ends").0;
                assert!(["amp", "lt", "gt", "quot", "#39"].contains(&name), "{name}");
            }
            let (tag, after) = tag.split_once('>').expect("a tag ends");
            assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
            rest = after;
            if let Some(closed) = tag.strip_prefix('/') {
                assert_eq!(open.pop().as_deref(), Some(closed));
                continue;
            }
            let name = tag.split([' ', '/']).next().unwrap_or("").to_owned();
            if !tag.ends_with('/') {
                open.push(name.clone());
            }
            names.push(name);
            assert!(!open.is_empty() || rest.is_empty(), "one root");
        }
        assert!(open.is_empty());
        names
    }

    #[test]
    fn svg_is_well_formed() {
        let names = elements(&heatmap_svg(&map()));
        assert_eq!(names[0], "svg");
        assert_eq!(names.iter().filter(|n| *n == "image").count(), 5, "cells, scale and three swatches");
        let points: Vec<Point> = (0..50).map(|i| Point { time_ns: i * 1000, value: i % 7 }).collect();
        for (bytes, by_size) in [(true, false), (false, true)] {
            let picture = SeriesPicture { title: "Size & <more>", subtitle: "\"x\"", base_ns: 0, bytes, by_size };
            assert!(elements(&series_svg(&points, &picture)).contains(&"path".to_owned()));
            assert!(elements(&series_svg(&[], &picture)).contains(&"text".to_owned()), "nothing to show is shown");
        }
    }

    #[test]
    fn a_tradeoff_shows_each_point() {
        let point =
            |runtime, memory| tradeoff::TradeoffPoint { runtime, memory, label: "<a>".into(), best: memory < 0.6 };
        let points = vec![point(1.0, 0.9), point(1.2, 0.5), point(f64::NAN, 0.1)];
        let picture = tradeoff::Tradeoff { title: "a & b".into(), points, limit: Some(1.05) };
        let svg = tradeoff_svg(&picture);
        assert_eq!(elements(&svg)[0], "svg");
        assert_eq!(svg.matches("&lt;a&gt;").count(), 2, "what is no number is left out");
        let none = tradeoff::Tradeoff { points: Vec::new(), ..picture };
        assert!(tradeoff_svg(&none).contains("nothing was measured"));
    }

    #[test]
    fn png_has_the_size_of_the_picture() {
        let png = heatmap_png(&map()).expect("encodes");
        let reader = png::Decoder::new(std::io::Cursor::new(&png)).read_info().expect("a PNG");
        let info = reader.info();
        assert_eq!((f64::from(info.width), f64::from(info.height)), heatmap::SIZE);
    }
}
