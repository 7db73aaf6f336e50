//! `isotherm report heatmap`.

use super::Common;
use super::files::{CHOOSE_TARGET, Html, Pictures};
use super::record_file::RecordFile;
use crate::args::ranges;
use crate::exit::Usage;
use crate::output::{self, ColourWhen};
use isotherm_core::addr::AddrRange;
use isotherm_view::error::ViewError;
use isotherm_view::heat::axis::Layout;
use isotherm_view::heat::json;
use isotherm_view::heat::map::{HeatMap, HeatOptions};
use isotherm_view::heat::terminal::{self, Plan};
use isotherm_view::html::PageOptions;
use isotherm_view::overview::{Overview, TargetOverview};
use isotherm_view::{picture, plot};

#[derive(Debug, clap::Args)]
pub struct HeatmapArgs {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    pictures: Pictures,
    #[command(flatten)]
    html: Html,
    /// Only this time after the begin of the record, for example 5s-20s
    #[arg(long, value_name = "FROM-TO", value_parser = ranges::times)]
    time_range: Option<(u64, u64)>,
    /// Only these addresses (hexadecimal, as in /proc/PID/maps); nothing mapped in them is folded
    #[arg(long, value_name = "START-END", value_parser = ranges::addresses)]
    address_range: Option<AddrRange>,
    /// The same number of bytes in every row, also where little is hot
    #[arg(long)]
    linear: bool,
    /// With --json: at most so many rows of addresses
    #[arg(long, value_name = "N", default_value = "100", value_parser = clap::value_parser!(u16).range(1..))]
    rows: u16,
    /// With --json: so many columns of time
    #[arg(long, value_name = "N", default_value = "200", value_parser = clap::value_parser!(u16).range(1..))]
    cols: u16,
    /// Colours on the terminal
    #[arg(long, value_enum, default_value = "auto")]
    color: ColourWhen,
}

impl HeatmapArgs {
    fn options(&self, rows: usize, cols: usize) -> HeatOptions {
        HeatOptions {
            rows,
            cols,
            time_range: self.time_range,
            address_range: self.address_range,
            layout: self.layout(),
        }
    }

    fn layout(&self) -> Layout {
        if self.linear { Layout::Linear } else { Layout::Accessed }
    }
}

/// Cells of a map of numbers, at most: each takes 16 bytes.
const MOST_CELLS: u32 = 1 << 24;

pub fn run(args: HeatmapArgs) -> anyhow::Result<()> {
    if u32::from(args.rows) * u32::from(args.cols) > MOST_CELLS {
        let (rows, cols) = (args.rows, args.cols);
        return Err(
            Usage(format!("--rows {rows} times --cols {cols} are more than {MOST_CELLS} cells; give fewer")).into()
        );
    }
    let record = args.common.open()?;
    let overview = Overview::read(&record)?;
    let targets = overview.select(args.common.target)?;
    let names: Vec<String> = targets.iter().map(|t| t.info.target.to_string()).collect();
    let mut outputs = args.pictures.outputs(&names, CHOOSE_TARGET)?;
    outputs.extend(args.html.output());
    let is_written = !outputs.is_empty();
    args.common.keep_apart(&record, outputs)?;
    args.html.write(
        &record,
        &PageOptions {
            target: args.common.target,
            time_range: args.time_range,
            address_range: args.address_range,
            layout: args.layout(),
        },
    )?;
    let shown = Shown { record: &record, overview: &overview, targets: &targets };
    if args.pictures.any() {
        let (rows, cols) = plot::heatmap::resolution();
        shown.each(&args.options(rows, cols), |map| {
            let name = map.target.info.target.to_string();
            args.pictures.write(&picture::heatmap(map), &name, targets.len())
        })?;
    }
    if args.common.json {
        let options = args.options(args.rows.into(), args.cols.into());
        return output::to_stdout(|out| shown.each(&options, |map| json::write(map, out)));
    }
    if is_written { Ok(()) } else { print(&args, &shown) }
}

fn print(args: &HeatmapArgs, shown: &Shown<'_>) -> anyhow::Result<()> {
    let (width, height) = output::screen_size();
    let plan = Plan::new(width, height, output::colours(args.color));
    let mut is_first = true;
    output::text_to_stdout(|out| {
        shown.each(&args.options(plan.rows(), plan.cols), |map| {
            if !std::mem::take(&mut is_first) {
                writeln!(out)?;
            }
            Ok(write!(out, "{}", terminal::draw(map, &plan))?)
        })
    })
}

/// Targets that are left out are named up to here.
const MOST_NAMED: usize = 8;

/// What is drawn.
struct Shown<'a> {
    record: &'a RecordFile,
    overview: &'a Overview,
    targets: &'a [&'a TargetOverview],
}

impl Shown<'_> {
    /// Hands out the map of each target. One of which nothing was recorded there is left out with a warning; that there is none of any
    /// is an error.
    fn each<E: From<ViewError>>(
        &self,
        options: &HeatOptions,
        mut draw: impl FnMut(&HeatMap) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut left_out = Vec::new();
        for target in self.targets {
            match HeatMap::build(self.record, self.overview, target, options) {
                Ok(map) => draw(&map)?,
                Err(error) if error.is_of_one_target() => left_out.push(error),
                Err(error) => return Err(error.into()),
            }
        }
        if left_out.len() == self.targets.len()
            && let Some(error) = left_out.pop()
        {
            return Err(error.into());
        }
        left_out.iter().take(MOST_NAMED).for_each(|error| tracing::warn!("left out: {error}"));
        if left_out.len() > MOST_NAMED {
            tracing::warn!("{} more targets are left out for the same reason", left_out.len() - MOST_NAMED);
        }
        Ok(())
    }
}
