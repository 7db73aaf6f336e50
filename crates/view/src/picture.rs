//! Whole pictures as files: SVG and PNG.

use crate::draw::Canvas;
use crate::draw::raster::Raster;
use crate::draw::svg::Svg;
use crate::error::ViewError;
use crate::heat::map::HeatMap;
use crate::heat::palette::BACKGROUND;
use crate::plot::{heatmap, schemes, series, tradeoff};
use crate::schemes::SchemeHistory;
use crate::series::Point;
pub use series::SeriesPicture;
use std::fmt;

type Draw<'a> = Box<dyn Fn(&mut dyn Canvas) + 'a>;

/// A picture, to be written as SVG or as PNG.
pub struct Picture<'a> {
    size: (f64, f64),
    title: String,
    draw: Draw<'a>,
}

impl fmt::Debug for Picture<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Picture").field("title", &self.title).finish_non_exhaustive()
    }
}

impl Picture<'_> {
    /// As SVG.
    pub fn svg(&self) -> String {
        let mut svg = Svg::new(self.size.0, self.size.1, BACKGROUND, &self.title);
        (self.draw)(&mut svg);
        svg.finish()
    }

    /// As PNG.
    pub fn png(&self) -> Result<Vec<u8>, ViewError> {
        let mut raster = Raster::new(self.size.0 as usize, self.size.1 as usize, BACKGROUND);
        (self.draw)(&mut raster);
        raster.png()
    }
}

/// A heatmap. The map has at most the rows and columns of [`heatmap::resolution`].
pub fn heatmap(map: &HeatMap) -> Picture<'_> {
    let title = format!("Heatmap of {}", map.target.title());
    Picture { size: heatmap::SIZE, title, draw: Box::new(|canvas| heatmap::draw(canvas, map)) }
}

/// A series.
pub fn series<'a>(points: &'a [Point], picture: &'a SeriesPicture<'_>) -> Picture<'a> {
    let title = picture.title.to_owned();
    Picture { size: series::SIZE, title, draw: Box::new(|canvas| series::draw(canvas, points, picture)) }
}

/// What a scheme did.
pub fn scheme(history: &SchemeHistory) -> Picture<'_> {
    let draw = |canvas: &mut dyn Canvas| schemes::draw(canvas, history);
    Picture { size: schemes::size(history), title: history.title(), draw: Box::new(draw) }
}

/// Runtime against memory.
pub fn tradeoff(t: &tradeoff::Tradeoff) -> Picture<'_> {
    Picture { size: tradeoff::SIZE, title: t.title.clone(), draw: Box::new(|canvas| tradeoff::draw(canvas, t)) }
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
        let names = elements(&heatmap(&map()).svg());
        assert_eq!(names[0], "svg");
        assert_eq!(names.iter().filter(|n| *n == "image").count(), 5, "cells, scale and three swatches");
        let points: Vec<Point> = (0..50).map(|i| Point { time_ns: i * 1000, value: i % 7 }).collect();
        for (bytes, by_size) in [(true, false), (false, true)] {
            let picture = SeriesPicture { title: "Size & <more>", subtitle: "\"x\"", base_ns: 0, bytes, by_size };
            assert!(elements(&series(&points, &picture).svg()).contains(&"path".to_owned()));
            assert!(elements(&series(&[], &picture).svg()).contains(&"text".to_owned()), "nothing to show is shown");
        }
    }

    #[test]
    fn a_tradeoff_shows_each_point() {
        let point =
            |runtime, memory| tradeoff::TradeoffPoint { runtime, memory, label: "<a>".into(), best: memory < 0.6 };
        let points = vec![point(1.0, 0.9), point(1.2, 0.5), point(f64::NAN, 0.1)];
        let picture = tradeoff::Tradeoff { title: "a & b".into(), points, limit: Some(1.05) };
        let svg = tradeoff(&picture).svg();
        assert_eq!(elements(&svg)[0], "svg");
        assert_eq!(svg.matches("&lt;a&gt;").count(), 2, "what is no number is left out");
        let none = tradeoff::Tradeoff { points: Vec::new(), ..picture };
        assert!(tradeoff(&none).svg().contains("nothing was measured"));
    }

    #[test]
    fn png_has_the_size_of_the_picture() {
        let png = heatmap(&map()).png().expect("encodes");
        let reader = png::Decoder::new(std::io::Cursor::new(&png)).read_info().expect("a PNG");
        let info = reader.info();
        assert_eq!((f64::from(info.width), f64::from(info.height)), heatmap::SIZE);
    }
}
