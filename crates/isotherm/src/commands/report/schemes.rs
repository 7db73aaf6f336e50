//! `isotherm report schemes`.

use super::Pictures;
use crate::output;
use anyhow::Context;
use isotherm_view::{picture, schemes};
use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub struct SchemesArgs {
    /// What `isotherm schemes --stats FILE` wrote
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    pictures: Pictures,
}

pub fn run(args: SchemesArgs) -> anyhow::Result<()> {
    let name = args.file.display();
    let file = File::open(&args.file).with_context(|| format!("cannot open {name}"))?;
    let all = schemes::read(BufReader::new(file)).with_context(|| format!("cannot read {name}"))?;
    for history in &all {
        let index = history.scheme.to_string();
        if let Some(path) = &args.pictures.svg {
            let file = Pictures::file(path, &index, all.len());
            output::write_file(&file, picture::scheme_svg(history).as_bytes())?;
        }
        if let Some(path) = &args.pictures.png {
            output::write_file(&Pictures::file(path, &index, all.len()), &picture::scheme_png(history)?)?;
        }
    }
    if args.pictures.any() {
        return Ok(());
    }
    output::text_to_stdout(|out| schemes::write_text(&all, out))
}
