//! The files that a report writes: pictures and a page.

use super::record_file::RecordFile;
use crate::exit::Usage;
use crate::output::{self, is_stdout};
use isotherm_files::apart::Output;
use isotherm_view::html::{self, PageOptions};
use isotherm_view::picture::Picture;
use std::path::PathBuf;

/// Pictures to write instead of printing.
#[derive(Debug, clap::Args)]
pub(super) struct Pictures {
    /// Write a picture as SVG; of several targets, one file each (F-0.svg, F-1.svg, …)
    #[arg(long, value_name = "F")]
    svg: Option<PathBuf>,
    /// Write a picture as PNG; of several targets, one file each
    #[arg(long, value_name = "F")]
    png: Option<PathBuf>,
}

/// What to do where several pictures cannot go to one place.
pub(super) const CHOOSE_TARGET: &str = "choose one with --target, or name a file";

impl Pictures {
    pub(super) fn any(&self) -> bool {
        self.svg.is_some() || self.png.is_some()
    }

    /// Where pictures of these names go. Standard output takes one only; `remedy` says what to do then.
    pub(super) fn outputs(&self, names: &[String], remedy: &str) -> Result<Vec<Output>, Usage> {
        let mut outputs = Vec::new();
        for (option, path) in [("--svg", &self.svg), ("--png", &self.png)] {
            let Some(path) = path else { continue };
            if is_stdout(path) && names.len() > 1 {
                let count = names.len();
                return Err(Usage(format!("{option} - takes one picture, and there are {count}: {remedy}")));
            }
            outputs.extend(names.iter().map(|name| Output::new(option, output::one_of(path, name, names.len()))));
        }
        Ok(outputs)
    }

    /// Writes the picture of `name`, one of `count` of a kind.
    pub(super) fn write(&self, picture: &Picture<'_>, name: &str, count: usize) -> anyhow::Result<()> {
        if let Some(path) = &self.svg {
            output::write_file(&output::one_of(path, name, count), picture.svg().as_bytes())?;
        }
        if let Some(path) = &self.png {
            output::write_file(&output::one_of(path, name, count), &picture.png()?)?;
        }
        Ok(())
    }
}

/// A page to write instead of printing.
#[derive(Debug, clap::Args)]
pub(super) struct Html {
    /// Write one HTML file with everything: summary, heatmap to zoom into, working-set curve
    #[arg(long, value_name = "F")]
    html: Option<PathBuf>,
}

impl Html {
    pub(super) fn any(&self) -> bool {
        self.html.is_some()
    }

    /// Where the page goes.
    pub(super) fn output(&self) -> Option<Output> {
        self.html.as_ref().map(|path| Output::new("--html", path))
    }

    /// Writes the page if it was asked for.
    pub(super) fn write(&self, record: &RecordFile, options: &PageOptions) -> anyhow::Result<()> {
        match &self.html {
            Some(path) => output::write_file(path, html::page(record, options)?.as_bytes()),
            None => Ok(()),
        }
    }
}
