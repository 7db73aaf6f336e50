//! `isotherm ps`.

use crate::args::monitor::{MonitorArgs, pages_only};
use crate::args::target::TargetArgs;
use crate::args::units;
use crate::commands::node;
use crate::exit::Usage;
use crate::groups::Groups;
use crate::output::{screen_size, text_to_stdout, to_stdout};
use crate::progress::Progress;
use crate::session::{Ended, Session};
use isotherm_core::context::Operator;
use isotherm_core::event::{Event, Subscriber, SubscriberError};
use isotherm_core::target::TargetEnd;
use isotherm_core::units::{format_time, nanos};
use isotherm_linux::clock::monotonic_ns;
use isotherm_linux::targets::Streams;
use isotherm_view::machine::{Columns, Machine, MachineBuilder, Order, write_json, write_table};
use std::collections::HashMap;
use std::time::Duration;

/// For how long it watches where nobody says otherwise.
const LOOK: Duration = Duration::from_secs(10);
/// Beyond the time asked for, how long figures for that time are waited for: the first look at many processes takes its time.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the rows are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum By {
    Process,
    Cgroup,
}

/// What comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Sort {
    /// What has not been accessed for longest
    Cold,
    /// What was accessed
    WorkingSet,
    /// What is resident
    Rss,
    Name,
}

/// The times that figures are known for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Age {
    #[value(name = "1s")]
    Second,
    #[value(name = "10s")]
    TenSeconds,
    #[value(name = "1m", alias = "60s")]
    Minute,
    #[value(name = "5m", alias = "300s")]
    FiveMinutes,
    #[value(name = "30m")]
    HalfAnHour,
}

impl Age {
    const fn time(self) -> Duration {
        Duration::from_secs(match self {
            Self::Second => 1,
            Self::TenSeconds => 10,
            Self::Minute => 60,
            Self::FiveMinutes => 300,
            Self::HalfAnHour => 1800,
        })
    }
}

/// Show who holds memory that nobody uses.
///
/// Asks the `isotherm node` that runs here. Without one, or with a target, an option of the monitor or --duration, it watches
/// for a while itself: all processes, or those of the target. Lists them or their control groups by what they have not
/// accessed. Cold memory is what was not accessed for the longest of 1 s, 10 s, 1 min, 5 min and 30 min that the node has
/// watched for, or that --duration holds; --age asks for a shorter one. What cannot be observed is neither cold nor used. With --json processes, groups and the total are a line each, if
/// --by does not choose. Needs page tables or idle page tracking (`isotherm doctor`): with less, --source refs or damon,
/// nothing is known of single pages.
#[derive(Debug, clap::Args)]
#[command(mut_args(pages_only))]
pub struct Args {
    /// Watch for this long instead of asking a node [default: 10s where no node runs]
    #[arg(long, value_name = "T", value_parser = units::time)]
    duration: Option<Duration>,
    /// Tell COLD from USED by this time (default: the longest that is known)
    #[arg(long, value_name = "T")]
    age: Option<Age>,
    /// What to list (default: process)
    #[arg(long, value_name = "WHAT")]
    by: Option<By>,
    /// What comes first
    #[arg(long, value_name = "FIGURE", default_value = "cold")]
    sort: Sort,
    /// Print lines of JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    monitor: MonitorArgs,
}

struct Watching {
    target: TargetArgs,
    groups: Groups,
    machine: MachineBuilder,
    /// Where processes were when they came: of one that has ended the kernel does not tell it.
    came_in: HashMap<u32, String>,
    /// What was known when the last of all processes ended.
    last: Option<Machine>,
    progress: Progress,
}

impl Watching {
    fn of(target: TargetArgs) -> Self {
        let (machine, progress) = (MachineBuilder::default(), Progress::new());
        Self { target, groups: Groups::read(), machine, came_in: HashMap::new(), last: None, progress }
    }

    fn now(&self) -> Machine {
        let groups = Groups::read();
        self.machine.finish(|pid| groups.path_of(pid), |path| groups.swapped(path, &self.target)).extended()
    }
}

impl Subscriber for Watching {
    fn event(&mut self, event: &Event) -> Result<(), SubscriberError> {
        match event {
            Event::Target(info) => {
                let path = info.pid.and_then(|pid| Some((pid, self.groups.path_of(pid)?)));
                self.came_in.extend(path);
            }
            Event::End { target, why: TargetEnd::Exited, .. } if self.machine.is_last(*target) => {
                self.last = Some(self.machine.finish(|pid| self.came_in.get(&pid).cloned(), |_| None).extended());
            }
            _ => {}
        }
        self.machine.event(event)?;
        self.progress.event(event)
    }
}

impl Operator for Watching {}

pub fn run(args: Args) -> anyhow::Result<()> {
    if args.duration.is_some_and(|d| d < Duration::from_secs(1)) {
        return Err(Usage("--duration must be a second at least: nothing can be said of a shorter time".into()).into());
    }
    if args.monitor.physical {
        return Err(Usage("--physical knows no processes; leave it out".into()).into());
    }
    if let (Some(age), Some(duration)) = (args.age.map(Age::time), args.duration)
        && age > duration
    {
        return Err(Usage(format!(
            "--age {} is longer than --duration {}: watch for as long at least",
            format_time(nanos(age)),
            format_time(nanos(duration))
        ))
        .into());
    }
    let by_itself = args.duration.is_some() || args.target.is_given() || args.monitor != MonitorArgs::defaults();
    let node = if by_itself { None } else { node::known().inspect_err(|why| why.warn()).ok() };
    match node {
        Some((node, mut known)) => {
            let cost = known.machine.cost;
            if let Some(age_ns) = args.age.map(|age| nanos(age.time())) {
                known.machine.most_age_ns = Some(age_ns);
                anyhow::ensure!(
                    known.machine.longest_ns() == Some(age_ns),
                    "isotherm node (pid {node}) has watched for {}, too short to tell what was not accessed for {}; ask for a shorter --age",
                    format_time(known.watched_ns),
                    format_time(age_ns)
                );
            }
            show(&args, known.machine)?;
            if !args.json {
                let cost = cost.map_or_else(|| "too short to tell".to_owned(), |cost| cost.words());
                say!("watched by isotherm node (pid {node}) for {}; cost: {cost}", format_time(known.watched_ns));
            }
            Ok(())
        }
        None => look(&args),
    }
}

/// Watches for a while.
fn look(args: &Args) -> anyhow::Result<()> {
    let age = args.age.map(Age::time);
    let duration = args.duration.or(age.map(|age| age.max(LOOK))).unwrap_or(LOOK);
    let all = args.target.all || !args.target.is_given();
    // Our standard output is for the answer.
    let target = TargetArgs { all, streams: Streams::Aside, ..args.target.clone() };
    let mut session = Session::open_for_pages(&target, &args.monitor)?;
    let mut watching = Watching::of(target);
    let age_ns = nanos(duration);
    let enough_ns = monotonic_ns().saturating_add(age_ns);
    let result = session.run(Some(duration.saturating_add(PATIENCE)), &mut watching, |watching, _| {
        // Where nobody is nothing will be known.
        let waits = || watching.machine.has_processes() && !watching.machine.is_known_for(age_ns);
        Ok(monotonic_ns() < enough_ns || waits())
    });
    watching.progress.clear();
    // Before a command of ours is ended: its group is gone then.
    let now = watching.now();
    let finished = session.finish();
    let ended = result?;
    let Watching { last, progress, .. } = watching;
    let last = last.filter(|last| ended == Ended::TargetsGone && last.total.pages().is_some());
    if last.is_some() {
        tracing::info!("every target has ended; this is what was known last");
    }
    let mut machine = last.unwrap_or(now);
    machine.most_age_ns = Some(age.map_or(age_ns, nanos));
    if machine.total.pages().is_none() {
        // A command's own failure says more.
        finished?;
        return Err(match ended {
            Ended::Interrupted => anyhow::anyhow!("interrupted before anything was known"),
            Ended::TargetsGone => anyhow::anyhow!(
                "every target ended before anything was known of it, which takes a second or two; `isotherm record` (or \
                 `isotherm record -- COMMAND`) and `isotherm report` show programs that run for a shorter time"
            ),
            _ if machine.processes.is_empty() => {
                anyhow::anyhow!("there is no process to be watched{}", places(&args.target))
            }
            _ => anyhow::anyhow!(
                "nothing is known yet of any process after {}: look longer (--duration), or give more time to watching ({}; --cpu-budget)",
                format_time(progress.elapsed_ns()),
                progress.budget_words()
            ),
        });
    }
    show(args, machine)?;
    if !args.json {
        say!("cost: {}", progress.cost_words());
    }
    finished
}

/// Where it was looked for processes.
fn places(target: &TargetArgs) -> String {
    let groups: Vec<String> = target.cgroups.iter().map(|group| format!("'{}'", group.display())).collect();
    if groups.is_empty() { String::new() } else { format!(" in the control group {}", groups.join(", ")) }
}

fn show(args: &Args, mut machine: Machine) -> anyhow::Result<()> {
    let groups = Groups::read();
    machine.sort(match args.sort {
        Sort::Cold => Order::Cold,
        Sort::WorkingSet => Order::WorkingSet,
        Sort::Rss => Order::Rss,
        Sort::Name => Order::Name,
    });
    if args.json {
        let wanted = (args.by != Some(By::Cgroup), args.by != Some(By::Process));
        return to_stdout(|out| write_json(&machine, wanted, |row| groups.more(row), out));
    }
    let columns = if args.by == Some(By::Cgroup) { Columns::Groups } else { Columns::Processes };
    text_to_stdout(|out| {
        write_table(&machine, columns, screen_size().0, |row| groups.label(row), |row| groups.unmapped_cache(row), out)
    })
}
