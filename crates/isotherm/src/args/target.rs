//! `TARGET`: which processes to watch.

use crate::exit::{CommandStatus, Usage};
use clap::builder::NonEmptyStringValueParser;
use isotherm_linux::targets::{Command, CommandEnd, Streams, TargetSpec};
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

/// How long a command that we started may take to end after SIGTERM.
pub const GRACE: Duration = Duration::from_secs(5);

/// Which processes: `--pid N`…, `--name NAME`…, `--cgroup PATH`…, `--all`, or `-- COMMAND ARG...`.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Target")]
pub struct TargetArgs {
    /// Watch this process (repeatable)
    #[arg(long = "pid", value_name = "N")]
    pub pids: Vec<u32>,
    /// Watch the processes that the targets fork and execute, too
    #[arg(long)]
    pub children: bool,
    /// Watch all processes of this name, now and later: as `ps -e` shows it, or the program's (repeatable)
    #[arg(long = "name", value_name = "NAME", value_parser = NonEmptyStringValueParser::new(), conflicts_with_all = ["pids", "children"])]
    pub names: Vec<String>,
    /// Watch all processes of this control group and of those in it: a path below the cgroup mount, or a full path
    /// (repeatable)
    #[arg(long = "cgroup", value_name = "PATH", conflicts_with_all = ["pids", "names", "children"])]
    pub cgroups: Vec<PathBuf>,
    /// Watch all processes
    #[arg(long, conflicts_with_all = ["pids", "names", "cgroups", "children"])]
    pub all: bool,
    /// Run this command and watch it
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = ["pids", "names", "cgroups", "all"])]
    pub command: Vec<OsString>,
    /// What the command reads and writes.
    #[arg(skip)]
    pub streams: Streams,
}

/// What [`TargetArgs`] ask for.
#[derive(Debug)]
pub struct Target {
    /// For the engine.
    pub spec: TargetSpec,
    /// The command that we started, if that is the target.
    pub command: Option<StartedCommand>,
}

impl TargetArgs {
    /// Whether any target was named.
    pub fn is_given(&self) -> bool {
        self.all || !self.command.is_empty() || !self.pids.is_empty() || self.is_listed()
    }

    /// The same; `ours`: whether we write to standard output what programs read. Then what a command says goes to our
    /// standard error.
    pub fn keeping_stdout(&self, ours: bool) -> Self {
        let streams = if ours { Streams::Aside } else { self.streams };
        Self { streams, ..self.clone() }
    }

    /// Whether it is names or control groups.
    fn is_listed(&self) -> bool {
        !self.names.is_empty() || !self.cgroups.is_empty()
    }

    /// Whether it is all processes of the control groups that they are in.
    pub fn are_groups(&self) -> bool {
        self.all || !self.cgroups.is_empty()
    }

    /// Turns the arguments into a target. A command is made ready but not started. Without a target: a usage error.
    pub fn resolve(&self) -> anyhow::Result<Target> {
        let children = self.children;
        if !self.command.is_empty() {
            let command = Command::prepare_with(&self.command, self.streams)?;
            let program = self.command[0].to_string_lossy().into_owned();
            let started = StartedCommand { command: command.clone(), program };
            return Ok(Target { spec: TargetSpec::Command { command, children }, command: Some(started) });
        }
        let wrong = |text: &str| Err(Usage(text.into()).into());
        let spec = if self.all {
            TargetSpec::All
        } else if !self.cgroups.is_empty() {
            TargetSpec::Cgroups(self.cgroups.clone())
        } else if !self.names.is_empty() {
            TargetSpec::Names(self.names.clone())
        } else if self.pids.is_empty() {
            return wrong("no target: give --pid N, --name NAME, --cgroup PATH, --all, or -- COMMAND ARG...");
        } else if self.pids.contains(&0) {
            return wrong("--pid 0 names no process");
        } else {
            TargetSpec::Pids { pids: self.pids.clone(), children }
        };
        Ok(Target { spec, command: None })
    }
}

/// A command that Isotherm runs as its target.
#[derive(Debug)]
pub struct StartedCommand {
    command: Command,
    program: String,
}

impl StartedCommand {
    /// Ends the command if it still runs and collects it. To be called once watching is over. Fails with a
    /// [`CommandStatus`] where it ended by itself with another status than 0.
    pub fn finish(&self) -> anyhow::Result<()> {
        self.command.try_end()?;
        if self.command.is_running() {
            tracing::info!("ending '{}' (pid {}), which still runs", self.program, self.command.pid());
        }
        let Some(end) = self.command.finish(GRACE)? else { return Ok(()) };
        match describe(&self.program, end) {
            None => {}
            Some(text) if end.terminated => tracing::warn!("{text}"),
            Some(text) => return Err(CommandStatus { code: shell_status(end.status), text }.into()),
        }
        Ok(())
    }
}

/// What is worth telling about a command's end; `None` for one that succeeded.
fn describe(program: &str, end: CommandEnd) -> Option<String> {
    let CommandEnd { status, terminated } = end;
    match (status.code(), status.signal()) {
        (Some(0), _) => None,
        (Some(code), _) => Some(format!("'{program}' ended with exit status {code}")),
        (None, Some(signal)) if terminated && signal == SIGTERM => None,
        (None, Some(signal)) => Some(format!("'{program}' was ended by signal {signal}")),
        (None, None) => Some(format!("'{program}' ended: {status}")),
    }
}

/// A status as a shell tells it in `$?`: 128 and the signal's number where one ended the command.
pub fn shell_status(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

const SIGTERM: i32 = 15;

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, clap::Parser)]
    struct Cli {
        #[command(flatten)]
        target: TargetArgs,
    }

    fn resolve(args: &[&str]) -> anyhow::Result<Target> {
        Cli::try_parse_from([&["isotherm"], args].concat())?.target.resolve()
    }

    #[test]
    fn each_kind_of_target_is_understood() {
        let target = resolve(&["--pid", "5", "--pid", "6", "--children"]).unwrap();
        assert!(matches!(target.spec, TargetSpec::Pids { pids, children: true } if pids == [5, 6]));
        let target = resolve(&["--cgroup", "/a/b", "--cgroup", "c"]).unwrap();
        assert!(matches!(target.spec, TargetSpec::Cgroups(paths) if paths == ["/a/b", "c"].map(PathBuf::from)));
        let target = resolve(&["--name", "redis-server", "--name", "java"]).unwrap();
        assert!(matches!(target.spec, TargetSpec::Names(names) if names == ["redis-server", "java"]));
        assert!(matches!(resolve(&["--all"]).unwrap().spec, TargetSpec::All));
        let target = resolve(&["--", "sh", "-c", "exit"]).unwrap();
        assert!(matches!(target.spec, TargetSpec::Command { children: false, .. }));
        target.command.unwrap().command.finish(Duration::ZERO).unwrap();
    }

    #[test]
    fn no_target_and_conflicting_ones_are_usage_errors() {
        for args in [&[][..], &["--pid", "0"], &["--children"]] {
            assert!(resolve(args).unwrap_err().is::<Usage>(), "{args:?}");
        }
        for args in [
            &["--pid", "5", "--cgroup", "x"][..],
            &["--pid", "5", "--", "sh"],
            &["--cgroup", "x", "--", "sh"],
            &["--cgroup", ""],
            &["--name", ""],
            &["--all", "--pid", "5"],
            &["--all", "--children"],
            &["--name", "sh", "--cgroup", "x"],
            &["--name", "sh", "--", "sh"],
            &["--pid", "-3"],
            &["--pid", "self"],
            &["--pid", "99999999999"],
        ] {
            let error = resolve(args).unwrap_err().downcast::<clap::Error>().unwrap();
            assert_eq!(error.exit_code(), 2, "{args:?}");
        }
    }

    #[test]
    fn only_an_end_that_surprises_is_told() {
        let end = |wait_status, terminated| CommandEnd { status: ExitStatus::from_raw(wait_status), terminated };
        assert_eq!(describe("x", end(0, false)), None);
        assert_eq!(describe("x", end(SIGTERM, true)), None);
        assert_eq!(describe("x", end(7 << 8, false)).unwrap(), "'x' ended with exit status 7");
        assert_eq!(describe("x", end(9, true)).unwrap(), "'x' was ended by signal 9");
        assert_eq!((shell_status(end(7 << 8, false).status), shell_status(end(9, false).status)), (7, 137));
    }
}
