//! `isotherm report schemes`.

use super::files::Pictures;
use crate::output;
use anyhow::Context;
use isotherm_view::schemes::SchemeHistory;
use isotherm_view::{picture, schemes};
use std::fs::File;
use std::io::{self, BufReader};
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
#[command(mut_args(of_schemes))]
pub struct SchemesArgs {
    /// What `isotherm schemes --stats FILE` wrote ("-": standard input)
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    pictures: Pictures,
}

/// Pictures are of schemes here, not of targets.
fn of_schemes(arg: clap::Arg) -> clap::Arg {
    match arg.get_long() {
        Some("svg") => arg.help("Write a picture as SVG; of several schemes, one file each (F-0.svg, F-1.svg, …; F-0.1.svg where `ctl tune` gave scheme 0 another action)"),
        Some("png") => arg.help("Write a picture as PNG; of several schemes, one file each"),
        _ => arg,
    }
}

pub fn run(args: SchemesArgs) -> anyhow::Result<()> {
    let (name, read) = if args.file.as_os_str() == "-" {
        ("standard input".to_owned(), schemes::read(io::stdin().lock()))
    } else {
        let name = args.file.display().to_string();
        let file = File::open(&args.file).with_context(|| format!("cannot open {name}"))?;
        (name, schemes::read(BufReader::new(file)))
    };
    let (all, is_cut_off) = read.with_context(|| format!("cannot read {name}"))?;
    if is_cut_off {
        tracing::warn!("{name}: the last line is cut off and left out");
    }
    let names: Vec<String> = all.iter().map(SchemeHistory::name).collect();
    output::keep_apart(&[&args.file], &args.pictures.outputs(&names, "name a file")?)?;
    for history in &all {
        args.pictures.write(&picture::scheme(history), &history.name(), all.len())?;
    }
    if args.pictures.any() {
        return Ok(());
    }
    output::text_to_stdout(|out| schemes::write_text(&all, out))
}
