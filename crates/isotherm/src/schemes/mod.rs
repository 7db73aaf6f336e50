//! From what the user writes to schemes: lines, files and ready-made ones.

mod damo_file;
pub mod fault;
pub mod file;
pub mod goal_text;
mod line;
mod metric;
pub mod node;
mod parsed;
pub mod preset;
mod settings;
mod toml_file;
pub mod value;

#[cfg(test)]
pub use line::parse as parse_line;
pub use metric::{MetricName, Written};
pub use settings::{MonitorSettings, TargetSettings};
pub use toml_file::to_toml;

use crate::args::monitor::MonitorArgs;
use crate::exit::Usage;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use fault::FileError;
use file::{parse_file, read_again, read_file};
use isotherm_core::attrs::{AttrsError, MonitorAttrs};
use isotherm_core::scheme::Scheme;
use isotherm_linux::cgroup::memory::Memcgs;
use isotherm_linux::roots::Roots;
use std::path::{Path, PathBuf};

/// Where schemes come from.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Origin {
    File(PathBuf),
    Line(String),
}

impl Origin {
    fn path(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Line(_) => None,
        }
    }
}

/// `-c FILE` and `--scheme LINE`, in the order in which they were given.
#[derive(Debug, Clone)]
pub struct SchemeArgs {
    origins: Vec<Origin>,
    /// All options of the command line, by clap's ids: what these say comes before what files say.
    given: Vec<String>,
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
    /// How to watch: what the command line says, and a file where that leaves the default.
    pub monitor: MonitorArgs,
    /// Whom to watch, where a file says so.
    pub target: Option<TargetSettings>,
}

impl SchemeArgs {
    /// Whether any of it comes from a file, so that it may change.
    pub fn reads_files(&self) -> bool {
        self.origins.iter().any(|o| o.path().is_some())
    }

    /// The files that it is read from.
    pub fn files(&self) -> Vec<PathBuf> {
        self.origins.iter().filter_map(Origin::path).map(Path::to_owned).collect()
    }

    /// Each file and each line alone, with its name: the file's without folder and ending, or the line itself.
    pub fn each(&self) -> Vec<(String, Self)> {
        let name = |origin: &Origin| match origin {
            Origin::File(path) => path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned(),
            Origin::Line(line) => line.split_whitespace().collect::<Vec<_>>().join(" "),
        };
        self.origins.iter().map(|o| (name(o), Self { origins: vec![o.clone()], ..self.clone() })).collect()
    }

    /// Reads everything anew for a run that goes on; `given`: what the command line says.
    pub fn reload(&self, given: &MonitorArgs) -> anyhow::Result<Tuning> {
        let mut loaded = self.load_by(given, read_again)?;
        find_groups(&mut loaded.schemes);
        Ok(Tuning { schemes: loaded.schemes, attrs: Some(loaded.monitor.attrs()?) })
    }

    /// Reads everything. Lines of numbers are in samples and intervals of `given`, what the command line says, unless a
    /// file sets those. What makes no sense is a usage error.
    pub fn load(&self, given: &MonitorArgs) -> anyhow::Result<Loaded> {
        self.load_by(given, read_file)
    }

    /// The same, where `read` tells the text of a file.
    fn load_by(&self, given: &MonitorArgs, read: fn(&Path) -> anyhow::Result<String>) -> anyhow::Result<Loaded> {
        let usage = |e: String| anyhow::Error::from(Usage(e));
        let mut texts = Vec::new();
        let mut attrs = given.attrs()?;
        let mut settings: Option<MonitorSettings> = None;
        let mut loaded = Loaded { schemes: Vec::new(), monitor: given.clone(), target: None };
        // Settings first: lines and samples depend on them, wherever they stand.
        for path in self.origins.iter().filter_map(Origin::path) {
            let name = path.display().to_string();
            let text = read(path)?;
            let parsed = parse_file(&name, &text, &attrs).map_err(|e| usage(e.to_string()))?;
            for (what, twice) in [
                ("monitor", settings.is_some() && parsed.monitor.is_some()),
                ("target", loaded.target.is_some() && parsed.target.is_some()),
            ] {
                if twice {
                    return Err(usage(format!("{name}: another file has a [{what}] table already; leave one out")));
                }
            }
            if let Some(of_file) = parsed.monitor {
                of_file.fill(&mut loaded.monitor, |name| self.given.iter().any(|given| given == name));
                attrs = loaded.monitor.attrs().map_err(|e| usage(format!("{name}: [monitor]: {e}")))?;
                settings = Some(of_file);
            }
            loaded.target = loaded.target.or(parsed.target);
            texts.push((name, text));
        }
        let mut texts = texts.into_iter();
        for origin in &self.origins {
            match (origin, origin.path().and_then(|_| texts.next())) {
                (Origin::Line(line), _) => {
                    loaded.schemes.push(line::parse(line, &attrs).map_err(|e| usage(e.to_string()))?);
                }
                (Origin::File(_), Some((name, text))) => {
                    let parsed = parse_file(&name, &text, &attrs).map_err(|e| usage(e.to_string()))?;
                    loaded.schemes.extend(parsed.schemes);
                }
                (Origin::File(_), None) => {}
            }
        }
        Ok(loaded)
    }
}

/// Writes control groups that schemes name as those of processes are told: in whatever way users write them, they are compared with
/// these. Says which are not there: a filter of one neither protects nor lets pass anything. They may come later, so that is no error.
pub fn find_groups(schemes: &mut [Scheme]) {
    let groups = Memcgs::new(&Roots::system());
    for (number, scheme) in schemes.iter_mut().enumerate() {
        let action = scheme.action;
        for path in scheme.groups_mut() {
            if let Err(why) = groups.open(path) {
                tracing::warn!("scheme {number} ({action}) is about the control group '{path}': {why}");
            }
            *path = groups.name(path);
        }
    }
}

/// Other schemes for a run that goes on, and how to watch if that is to change as well.
#[derive(Debug, Clone)]
pub struct Tuning {
    /// The schemes. At least one; all valid.
    pub schemes: Vec<Scheme>,
    /// Intervals and limits.
    pub attrs: Option<MonitorAttrs>,
}

impl Tuning {
    /// Reads the text of a file of any kind. `attrs` are those in force; the file's own come before them.
    pub fn from_text(name: &str, text: &str, attrs: &MonitorAttrs) -> Result<Self, FileError> {
        let mut parsed = parse_file(name, text, attrs)?;
        find_groups(&mut parsed.schemes);
        let attrs = parsed.monitor.map(|m| m.over(attrs));
        let fault = |why: AttrsError| FileError::of(name, why).at_key("[monitor]");
        attrs.map_or(Ok(()), |a| a.validate()).map_err(fault)?;
        Ok(Self { schemes: parsed.schemes, attrs })
    }
}

impl FromArgMatches for SchemeArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let flags = Flags::from_arg_matches(matches)?;
        let places = |id| matches.indices_of(id).into_iter().flatten();
        let files = places("files").zip(flags.files.into_iter().map(Origin::File));
        let lines = places("lines").zip(flags.lines.into_iter().map(Origin::Line));
        let mut origins: Vec<(usize, Origin)> = files.chain(lines).collect();
        origins.sort_by_key(|&(place, _)| place);
        let by_user = |id: &&clap::Id| matches.value_source(id.as_str()) == Some(ValueSource::CommandLine);
        let given = matches.ids().filter(by_user).map(ToString::to_string).collect();
        Ok(Self { origins: origins.into_iter().map(|(_, origin)| origin).collect(), given })
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

    #[derive(Debug, Parser)]
    struct Watching {
        #[command(flatten)]
        schemes: SchemeArgs,
        #[command(flatten)]
        monitor: MonitorArgs,
    }

    fn load(args: &[&str]) -> anyhow::Result<Vec<Action>> {
        let cli = Cli::try_parse_from([&["isotherm"], args].concat())?;
        Ok(cli.schemes.load(&MonitorArgs::defaults())?.schemes.iter().map(|s| s.action).collect())
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
    fn each_origin_stands_for_itself() {
        let cli =
            Cli::try_parse_from(["x", "--scheme", " 4K  max 0 0 5s max cold", "-c", "/tmp/a/tight.toml"]).unwrap();
        let each = cli.schemes.each();
        assert_eq!(each.iter().map(|e| e.0.as_str()).collect::<Vec<_>>(), ["4K max 0 0 5s max cold", "tight"]);
        assert!(each[1].1.reads_files() && !each[0].1.reads_files());
    }

    #[test]
    fn reading_what_has_not_changed_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.toml");
        std::fs::write(&path, "[monitor]\nupdate = \"5s\"\n[[scheme]]\naction = \"stat\"\n").unwrap();
        // Intervals that the file's depend on, and one that is said to be what it is anyway.
        for (given, update_us) in
            [(&[][..], 5_000_000), (&["--aggr", "2s"], 5_000_000), (&["--update", "1s"], 1_000_000)]
        {
            let args = [&["x", "-c", path.to_str().unwrap()], given].concat();
            let Watching { schemes, monitor } = Watching::try_parse_from(args).unwrap();
            let begun = schemes.load(&monitor).unwrap().monitor.attrs().unwrap();
            assert_eq!(begun.update_us, update_us, "{given:?}");
            assert_eq!(schemes.reload(&monitor).unwrap().attrs, Some(begun), "{given:?}");
        }
    }

    #[test]
    fn what_is_given_comes_before_a_file_also_where_it_is_the_default() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.toml");
        std::fs::write(&path, "[monitor]\nsample = \"10ms\"\nmin_regions = 30\n[[scheme]]\naction = \"stat\"\n")
            .unwrap();
        for (given, sample_us, min_regions) in [
            (&[][..], 10_000, 30),
            (&["--sample", "5ms"], 5_000, 30),
            (&["--min-regions", "10", "--sample", "5ms"], 5_000, 10),
        ] {
            let args = [&["x", "-c", path.to_str().unwrap()], given].concat();
            let Watching { schemes, monitor } = Watching::try_parse_from(args).unwrap();
            let attrs = schemes.load(&monitor).unwrap().monitor.attrs().unwrap();
            assert_eq!((attrs.sample_us, attrs.min_regions), (sample_us, min_regions), "{given:?}");
        }
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

    #[test]
    fn lines_of_numbers_follow_the_files_intervals() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, "[monitor]\naggr = \"1s\"\n[[scheme]]\naction = \"stat\"\n").unwrap();
        let cli = Cli::try_parse_from(["x", "--scheme", "0 0 0 0 10 0 2", "-c", path.to_str().unwrap()]).unwrap();
        let loaded = cli.schemes.load(&MonitorArgs::defaults()).unwrap();
        assert_eq!(loaded.schemes[0].pattern.age_us.min, 10_000_000);
        assert_eq!(loaded.monitor.aggr, std::time::Duration::from_secs(1));
        let twice = ["x", "-c", path.to_str().unwrap(), "-c", path.to_str().unwrap()];
        let error = Cli::try_parse_from(twice).unwrap().schemes.load(&MonitorArgs::defaults()).unwrap_err();
        assert!(error.to_string().contains("[monitor]"), "{error}");
    }
}
