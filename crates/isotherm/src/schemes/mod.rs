//! From what the user writes to schemes: lines, files and ready-made ones.

mod fault;
mod line;
mod metric;
mod toml_file;
mod value;

use crate::exit::Usage;
use anyhow::Context;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use isotherm_core::attrs::MonitorAttrs;
use isotherm_core::scheme::Scheme;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Where schemes come from.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Origin {
    File(PathBuf),
    Line(String),
}

/// `-c FILE` and `--scheme LINE`, in the order in which they were given.
#[derive(Debug, Clone)]
pub struct SchemeArgs {
    origins: Vec<Origin>,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Schemes")]
#[group(id = "schemes", required = true, multiple = true)]
struct Flags {
    /// Read schemes from this file: TOML, damo's JSON, or scheme lines (repeatable)
    #[arg(short = 'c', long = "config", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// A scheme in seven columns: least and largest size, access rate in %, age, and the action, for example
    /// "4K null null 5 5s null pageout" (repeatable)
    #[arg(long = "scheme", value_name = "LINE")]
    lines: Vec<String>,
}

/// What was read.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The schemes, in the order in which they were given. At least one; all valid.
    pub schemes: Vec<Scheme>,
}

impl SchemeArgs {
    /// Reads everything. Lines of numbers are in samples and intervals of `attrs`. What makes no sense is a usage error.
    pub fn load(&self, attrs: &MonitorAttrs) -> anyhow::Result<Loaded> {
        let mut schemes = Vec::new();
        for origin in &self.origins {
            match origin {
                Origin::Line(line) => schemes.push(line::parse(line, attrs).map_err(|e| Usage(e.to_string()))?),
                Origin::File(path) => schemes.extend(load_file(path)?),
            }
        }
        Ok(Loaded { schemes })
    }
}

/// More than any scheme file has; a device or a core dump given by mistake is not read to its end.
const LONGEST_FILE: u64 = 1 << 20;

fn load_file(path: &Path) -> anyhow::Result<Vec<Scheme>> {
    let name = path.display();
    let mut bytes = Vec::new();
    let file = File::open(path).with_context(|| format!("cannot read {name}"))?;
    file.take(LONGEST_FILE + 1).read_to_end(&mut bytes).with_context(|| format!("cannot read {name}"))?;
    if bytes.len() as u64 > LONGEST_FILE {
        return Err(Usage(format!("{name} is longer than 1 MiB, so it is no scheme file")).into());
    }
    let text = String::from_utf8(bytes).map_err(|_| Usage(format!("{name} is no text, so it is no scheme file")))?;
    let schemes = toml_file::parse(&name.to_string(), &text).map_err(|e| Usage(e.to_string()))?;
    if schemes.is_empty() {
        return Err(Usage(format!("{name} holds no scheme; docs/schemes.md shows one")).into());
    }
    Ok(schemes)
}

impl FromArgMatches for SchemeArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let flags = Flags::from_arg_matches(matches)?;
        let places = |id| matches.indices_of(id).into_iter().flatten();
        let files = places("files").zip(flags.files.into_iter().map(Origin::File));
        let lines = places("lines").zip(flags.lines.into_iter().map(Origin::Line));
        let mut origins: Vec<(usize, Origin)> = files.chain(lines).collect();
        origins.sort_by_key(|&(place, _)| place);
        Ok(Self { origins: origins.into_iter().map(|(_, origin)| origin).collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for SchemeArgs {
    fn augment_args(command: Command) -> Command {
        Flags::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Flags::augment_args_for_update(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use isotherm_core::scheme::action::Action;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        schemes: SchemeArgs,
    }

    fn load(args: &[&str]) -> anyhow::Result<Vec<Action>> {
        let cli = Cli::try_parse_from([&["isotherm"], args].concat())?;
        Ok(cli.schemes.load(&MonitorAttrs::default())?.schemes.iter().map(|s| s.action).collect())
    }

    #[test]
    fn files_and_lines_keep_their_order() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let two = write("two.toml", "[[scheme]]\naction = \"pageout\"\n[[scheme]]\naction = \"stat\"\n");
        let one = write("one.toml", "[[scheme]]\naction = \"cold\"\n");
        let (cold, hot) = ("4K max 0 0 5s max nohugepage", "2M max 5 max min max hugepage");
        let read = load(&["--scheme", cold, "-c", &two, "--scheme", hot, "-c", &one]).unwrap();
        assert_eq!(read, [Action::NoHugePage, Action::PageOut, Action::Stat, Action::HugePage, Action::Cold]);
    }

    #[test]
    fn no_scheme_and_bad_ones_are_usage_errors() {
        let error = load(&[]).unwrap_err().downcast::<clap::Error>().unwrap();
        assert_eq!(error.exit_code(), 2);
        assert!(load(&["--scheme", "4K max"]).unwrap_err().is::<Usage>());
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.toml");
        std::fs::write(&path, "[[scheme]]\naction = 5\n").unwrap();
        let error = load(&["-c", path.to_str().unwrap()]).unwrap_err();
        assert!(error.is::<Usage>() && error.to_string().contains("x.toml, line 2"), "{error}");
        std::fs::write(&path, "").unwrap();
        let error = load(&["-c", path.to_str().unwrap()]).unwrap_err();
        assert!(error.is::<Usage>() && error.to_string().contains("no scheme"), "{error}");
        let error = load(&["-c", dir.path().join("none").to_str().unwrap()]).unwrap_err();
        assert!(!error.is::<Usage>() && format!("{error:#}").contains("none"), "{error}");
    }
}
