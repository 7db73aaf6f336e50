//! `isotherm report wss` and `isotherm report regions`.

use super::Common;
use super::files::{CHOOSE_TARGET, Html, Pictures};
use super::record_file::RecordFile;
use crate::args::units;
use crate::exit::Usage;
use crate::output;
use isotherm_view::error::ViewError;
use isotherm_view::html::PageOptions;
use isotherm_view::overview::Overview;
use isotherm_view::picture::{self, SeriesPicture};
use isotherm_view::series::table::{self, Order, TableOptions};
use isotherm_view::series::{self, Measure, Series, SeriesOptions};

#[derive(Debug, clap::Args)]
#[command(mut_args(not_of_the_page))]
pub struct WssArgs {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    table: TableArgs,
    #[command(flatten)]
    pictures: Pictures,
    #[command(flatten)]
    html: Html,
    /// Count only regions accessed at least at this rate (share of sampling intervals); without it, pages count where
    /// the record tells of them
    #[arg(long, value_name = "P", default_value = "0%", value_parser = units::share)]
    min_rate: f64,
}

/// The page shows the whole record, so these options would change nothing there.
fn not_of_the_page(arg: clap::Arg) -> clap::Arg {
    match arg.get_long() {
        Some("html") => arg.conflicts_with_all(["range", "percentiles", "sort", "skip", "min_rate"]),
        _ => arg,
    }
}

#[derive(Debug, clap::Args)]
pub struct RegionsArgs {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    table: TableArgs,
    #[command(flatten)]
    pictures: Pictures,
}

#[derive(Debug, clap::Args)]
struct TableArgs {
    /// Percentiles from START to STOP in steps
    #[arg(long, num_args = 3, value_names = ["START", "STOP", "STEP"])]
    range: Option<Vec<f64>>,
    /// These percentiles
    #[arg(long, value_name = "P,…", value_delimiter = ',', conflicts_with = "range")]
    percentiles: Option<Vec<f64>>,
    /// Along size (percentiles) or along time
    #[arg(long, value_enum, default_value = "size")]
    sort: Sort,
    /// Leave out the first N moments of each target (default: none of pages; of regions a tenth, at most 20)
    #[arg(long, value_name = "N")]
    skip: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Sort {
    Size,
    Time,
}

impl TableArgs {
    fn options(&self) -> Result<TableOptions, Usage> {
        let percentiles = match (&self.range, &self.percentiles) {
            (Some(range), _) => steps(range)?,
            (_, Some(list)) => list.clone(),
            _ => TableOptions::default().percentiles,
        };
        if let Some(bad) = percentiles.iter().find(|p| !(0.0..=100.0).contains(*p)) {
            return Err(Usage(format!("{bad} is no percentile; give 0 to 100")));
        }
        let order = if self.sort == Sort::Time { Order::Time } else { Order::Size };
        Ok(TableOptions { percentiles, order })
    }
}

/// `START STOP STEP` as percentiles; what lies above 100 is left out, so that damo's `0 101 5` works as well.
fn steps(range: &[f64]) -> Result<Vec<f64>, Usage> {
    let &[start, stop, step] = range else { return Err(Usage("--range takes START STOP STEP".into())) };
    if !(start >= 0.0 && step >= 0.001 && stop >= start) {
        return Err(Usage(format!("--range {start} {stop} {step}: give START <= STOP and a STEP of at least 0.001")));
    }
    let count = ((stop.min(100.0) - start) / step + 1e-9).floor() as usize;
    Ok((0..=count).map(|i| start + i as f64 * step).filter(|p| *p <= 100.0).collect())
}

pub fn run_wss(args: WssArgs) -> anyhow::Result<()> {
    let measure = Measure::WorkingSet { min_rate: args.min_rate };
    run(&args.common, &args.table, &args.pictures, Some(&args.html), measure)
}

pub fn run_regions(args: RegionsArgs) -> anyhow::Result<()> {
    run(&args.common, &args.table, &args.pictures, None, Measure::Regions)
}

fn run(
    common: &Common,
    args: &TableArgs,
    pictures: &Pictures,
    html: Option<&Html>,
    measure: Measure,
) -> anyhow::Result<()> {
    let table = args.options()?;
    let record = common.open()?;
    let options = SeriesOptions { measure, target: common.target, skip: args.skip };
    let drawn = pictures.any().then(|| Drawn::read(&record, &options)).transpose()?;
    let mut outputs = match &drawn {
        Some(drawn) => pictures.outputs(&drawn.names(), CHOOSE_TARGET)?,
        None => Vec::new(),
    };
    outputs.extend(html.and_then(Html::output));
    let is_written = !outputs.is_empty();
    common.keep_apart(&record, outputs)?;
    if let Some(html) = html {
        html.write(&record, &PageOptions { target: common.target, ..Default::default() })?;
    }
    if let Some(drawn) = drawn {
        drawn.write(measure, &table, pictures)?;
    }
    match common.json {
        true => output::to_stdout(|out| table::write_json(&record, &options, &table, out)),
        false if is_written => Ok(()),
        false => output::text_to_stdout(|out| table::write_text(&record, &options, &table, out)),
    }
}

/// What is drawn.
struct Drawn {
    overview: Overview,
    all: Vec<Series>,
}

impl Drawn {
    fn read(record: &RecordFile, options: &SeriesOptions) -> Result<Self, ViewError> {
        Ok(Self { overview: Overview::read(record)?, all: series::read(record, options)? })
    }

    /// Of each picture, what tells its file from the others.
    fn names(&self) -> Vec<String> {
        self.all.iter().map(|one| one.target.map_or("all".to_owned(), |target| target.to_string())).collect()
    }

    fn write(&self, measure: Measure, table: &TableOptions, pictures: &Pictures) -> anyhow::Result<()> {
        for (one, name) in self.all.iter().zip(self.names()) {
            let target = self.overview.targets.iter().find(|t| Some(t.info.target) == one.target);
            let picture = SeriesPicture {
                title: measure.title(),
                subtitle: &target.map_or("all targets together".to_owned(), |t| t.title()),
                base_ns: self.overview.start_ns,
                bytes: measure != Measure::Regions,
                by_size: table.order == Order::Size,
            };
            pictures.write(&picture::series(&one.points, &picture), &name, self.all.len())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_include_their_end() {
        assert_eq!(steps(&[0.0, 100.0, 25.0]).ok(), Some(vec![0.0, 25.0, 50.0, 75.0, 100.0]));
        assert_eq!(steps(&[0.0, 101.0, 50.0]).ok(), Some(vec![0.0, 50.0, 100.0]));
        assert_eq!(steps(&[5.0, 5.0, 1.0]).ok(), Some(vec![5.0]));
        for bad in [[0.0, 100.0, 0.0], [10.0, 5.0, 1.0], [0.0, 100.0, f64::NAN], [-5.0, 5.0, 1.0]] {
            assert!(steps(&bad).is_err(), "{bad:?}");
        }
    }
}
