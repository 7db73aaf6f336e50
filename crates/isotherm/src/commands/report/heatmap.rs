//! `isotherm report heatmap`.

use super::record_file::RecordFile;
use super::{Common, Html, Pictures};
use crate::args::ranges;
use crate::exit::Usage;
use crate::output::{self, ColourWhen};
use isotherm_core::addr::AddrRange;
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
    args.html.write(
        &record,
        &PageOptions {
            target: args.common.target,
            time_range: args.time_range,
            address_range: args.address_range,
            layout: args.layout(),
        },
    )?;
    if args.pictures.any() || args.html.html.is_some() {
        let (rows, cols) = plot::heatmap::resolution();
        for target in &targets {
            let map = HeatMap::build(&record, &overview, target, &args.options(rows, cols))?;
            args.pictures.write(&picture::heatmap(&map), &target.info.target.to_string(), targets.len())?;
        }
        return Ok(());
    }
    if args.common.json {
        return output::to_stdout(|out| {
            for target in targets {
                let options = args.options(args.rows.into(), args.cols.into());
                json::write(&HeatMap::build(&record, &overview, target, &options)?, out)?;
            }
            Ok(())
        });
    }
    print(&args, &record, &overview, &targets)
}

fn print(
    args: &HeatmapArgs,
    record: &RecordFile,
    overview: &Overview,
    targets: &[&TargetOverview],
) -> anyhow::Result<()> {
    let (width, height) = output::screen_size();
    let plan = Plan::new(width, height, output::colours(args.color));
    output::text_to_stdout(|out| {
        for (i, target) in targets.iter().enumerate() {
            let map = HeatMap::build(record, overview, target, &args.options(plan.rows(), plan.cols))?;
            if i > 0 {
                writeln!(out)?;
            }
            write!(out, "{}", terminal::draw(&map, &plan))?;
        }
        Ok(())
    })
}
