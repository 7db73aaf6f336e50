//! Whole pictures as files: SVG and PNG.

use crate::draw::raster::Raster;
use crate::draw::svg::Svg;
use crate::error::ViewError;
use crate::heat::map::HeatMap;
use crate::heat::palette::BACKGROUND;
use crate::plot::{heatmap, series};
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
