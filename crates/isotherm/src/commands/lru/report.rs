//! `isotherm lru report`.

use super::engine::{EngineName, KernelTarget};
use super::live::Processes;
use crate::args::target::TargetArgs;
use crate::args::units;
use crate::exit::Usage;
use crate::stderr::printable_lines;
use anyhow::Context;
use isotherm_core::keeper::kernel::KernelMemory;
use isotherm_core::keeper::lru_gen;
use isotherm_core::keeper::memory::Generation;
use isotherm_core::source::AccessSource;
use isotherm_core::units::{format_size, format_time};
use isotherm_linux::clock::monotonic_ns;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

/// Show generations: how much memory was last used how long ago.
///
/// The youngest generation holds what was used since it was created; the sizes of the younger ones are an estimate of
/// the working set. Page tables are walked for --duration, a generation each --interval; what `lru age` or an earlier
/// report kept is shown at once where no --duration is given. With --engine kernel the kernel's own generations are
/// shown.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How long to watch [default: 4s, or what is known already]; not for the kernel's generations
    #[arg(long, value_name = "T", value_parser = units::time)]
    duration: Option<Duration>,
    /// Time between two generations
    #[arg(long, value_name = "T", default_value = "1s", value_parser = units::time)]
    interval: Duration,
    /// Show at most so many generations; the last holds everything older
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u64).range(2..=200))]
    generations: u64,
    /// Print a JSON line per process
    #[arg(long, conflicts_with = "kernel_text")]
    json: bool,
    /// Print the text form of /sys/kernel/debug/lru_gen
    #[arg(long)]
    kernel_text: bool,
    /// Who keeps the generations
    #[arg(long, value_enum, default_value = "auto")]
    engine: EngineName,
    #[command(flatten)]
    target: TargetArgs,
}

impl Args {
    /// Who keeps the generations. The kernel's are not watched for a time, so where that is wanted they are ours.
    const fn engine(&self) -> EngineName {
        match self.engine {
            EngineName::Auto if self.duration.is_some() => EngineName::User,
            engine => engine,
        }
    }
}

/// One process or control group.
#[derive(Debug, Serialize)]
struct Row {
    memcg: String,
    pid: Option<u32>,
    #[serde(skip)]
    name: String,
    /// Memory node, where the kernel keeps the generations.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<u32>,
    #[serde(skip)]
    id: u32,
    generations: Vec<Generation>,
}

pub fn run(args: Args) -> anyhow::Result<()> {
    if args.interval.is_zero() {
        return Err(Usage("--interval must not be 0".into()).into());
    }
    if args.duration.is_some_and(|d| d < args.interval) {
        return Err(Usage("--duration must be at least one --interval".into()).into());
    }
    let (rows, finished) = match args.engine().kernel(&args.target)? {
        Some(_) if args.duration.is_some() => {
            let why = "--duration is for generations of Isotherm's own: leave it out (`isotherm lru age` creates one of the \
                       kernel's), or give --engine user";
            return Err(Usage(why.into()).into());
        }
        Some(kernel) => (of_kernel(&kernel, args.generations)?, Ok(())),
        None => of_processes(&args)?,
    };
    let text = if args.json {
        json(&rows)?
    } else {
        printable_lines(&if args.kernel_text { kernel_text(&rows) } else { table(&rows) })
    };
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write to standard output")?;
    finished
}

/// A line for each.
fn json(rows: &[Row]) -> serde_json::Result<String> {
    rows.iter().map(|row| Ok(serde_json::to_string(row)? + "\n")).collect()
}

fn of_kernel(kernel: &KernelTarget, most: u64) -> anyhow::Result<Vec<Row>> {
    let row = |KernelMemory { id, path, node, generations }| Row {
        memcg: path,
        pid: None,
        name: String::new(),
        node: Some(node),
        id,
        generations: youngest(generations, most),
    };
    Ok(kernel.memories()?.into_iter().map(row).collect())
}

/// The `most` youngest generations; the last of them holds those below.
fn youngest(mut generations: Vec<Generation>, most: u64) -> Vec<Generation> {
    let below = generations.len().saturating_sub(most as usize);
    let (anon, file) = generations.drain(..below).fold((0, 0), |sum, g| (sum.0 + g.anon_bytes, sum.1 + g.file_bytes));
    if let Some(oldest) = generations.first_mut() {
        oldest.anon_bytes += anon;
        oldest.file_bytes += file;
    }
    generations
}

/// The rows, and how the command ended that was watched.
fn of_processes(args: &Args) -> anyhow::Result<(Vec<Row>, anyhow::Result<()>)> {
    let mut processes = Processes::open(&args.target.keeping_stdout(true))?;
    match args.duration {
        None if processes.known => {}
        duration => processes.watch(args.interval, duration.unwrap_or(Duration::from_secs(4).max(args.interval)))?,
    }
    // Ages are reported as of this moment: what the look finds used was used before or after it, but is young at any
    // rate.
    let now = monotonic_ns();
    processes.refresh()?;
    let mut rows: Vec<Row> = processes
        .all
        .values()
        .map(|(member, memory)| Row {
            memcg: member.memcg.clone(),
            pid: Some(member.pid),
            name: member.name.clone(),
            node: None,
            id: 0,
            generations: memory.generations(None, args.generations as usize, now),
        })
        .collect();
    rows.sort_by(|a, b| (&a.memcg, a.pid).cmp(&(&b.memcg, b.pid)));
    let may_gain = processes.live.source.may_gain_targets();
    let finished = processes.finish();
    if rows.is_empty() {
        if !may_gain {
            anyhow::bail!("every target has ended; nothing is left to show");
        }
        // Such as a control group that is empty for now.
        say!("no process belongs to the target now");
    }
    Ok((rows, finished))
}

/// Generations of one control group, its processes together.
///
/// Each process creates its own at times of its own. Of the generations so far below the youngest the last created one gives
/// the time; what the processes have goes to the oldest of these that is no older than it: so all that is in a generation
/// had not been used for its age, as in the generations of one process.
fn together(rows: &[&Row]) -> Vec<Generation> {
    let count = rows.iter().map(|row| row.generations.len()).max().unwrap_or(0);
    let max_seq = rows.iter().filter_map(|row| Some(row.generations.last()?.seq)).max().unwrap_or(0);
    // The youngest first.
    let mut sum: Vec<Generation> = (0..count)
        .map(|i| {
            let ages = rows.iter().filter_map(|row| Some(row.generations.iter().rev().nth(i)?.age_ms));
            let age_ms = ages.min().unwrap_or(0);
            Generation { seq: max_seq.saturating_sub(i as u64), age_ms, anon_bytes: 0, file_bytes: 0 }
        })
        .collect();
    for row in rows {
        for (i, g) in row.generations.iter().rev().enumerate() {
            let is_later = |at: usize, best: usize| sum[at].age_ms <= g.age_ms && sum[at].age_ms > sum[best].age_ms;
            let at = (i + 1..count).fold(i, |best, at| if is_later(at, best) { at } else { best });
            sum[at].anon_bytes += g.anon_bytes;
            sum[at].file_bytes += g.file_bytes;
        }
    }
    sum.reverse();
    sum
}

/// By control group, in order of their paths; the kernel's numbers, or ours where it has none.
fn groups(rows: &[Row]) -> BTreeMap<&str, Vec<&Row>> {
    let mut groups: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
    rows.iter().for_each(|row| groups.entry(&row.memcg).or_default().push(row));
    groups
}

fn kernel_text(rows: &[Row]) -> String {
    let mut out = String::new();
    for (number, (memcg, rows)) in (1u32..).zip(groups(rows)) {
        let id = rows.iter().map(|r| r.id).find(|&id| id != 0).unwrap_or(number);
        out += &lru_gen::memcg_line(id, memcg);
        let mut nodes: BTreeMap<u32, Vec<&Row>> = BTreeMap::new();
        rows.iter().for_each(|row| nodes.entry(row.node.unwrap_or(0)).or_default().push(row));
        for (node, rows) in nodes {
            out += &lru_gen::node_lines(&together(&rows), node);
        }
    }
    out
}

fn table(rows: &[Row]) -> String {
    let mut out = String::new();
    for (memcg, rows) in groups(rows) {
        for row in &rows {
            let who = match (row.pid, row.node) {
                (Some(pid), _) => format!("pid {pid} {}", row.name),
                (None, Some(node)) => format!("node {node}"),
                (None, None) => String::new(),
            };
            let memcg = if memcg.is_empty() { "(no control group)" } else { memcg };
            out += &format!("{memcg}: {}\n", who.trim_end());
            lines(&mut out, &row.generations);
        }
        if rows.len() > 1 && rows[0].pid.is_some() {
            out += &format!("{memcg}: all {} processes (shared pages count for each)\n", rows.len());
            lines(&mut out, &together(&rows));
        }
    }
    out
}

fn lines(out: &mut String, generations: &[Generation]) {
    *out += &format!(
        "  {:>10} {:>10} {:>10} {:>10} {:>12}\n",
        "generation", "created", "anonymous", "files", "this or younger"
    );
    let mut younger: u64 = generations.iter().map(Generation::bytes).sum();
    for g in generations {
        let ago = format!("{} ago", format_time(g.age_ms.saturating_mul(1_000_000)));
        *out += &format!(
            "  {:>10} {ago:>10} {:>10} {:>10} {:>12}\n",
            g.seq,
            format_size(g.anon_bytes),
            format_size(g.file_bytes),
            format_size(younger)
        );
        younger -= g.bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(memcg: &str, pid: u32, sizes: &[(u64, u64)]) -> Row {
        let one = |&(seq, pages): &(u64, u64)| Generation { seq, age_ms: 5, anon_bytes: pages << 12, file_bytes: 0 };
        let generations = sizes.iter().map(one).collect();
        Row { memcg: memcg.into(), pid: Some(pid), name: "x".into(), node: None, id: 0, generations }
    }

    #[test]
    fn json_has_what_the_contract_names() {
        let text = serde_json::to_string(&row("/a", 7, &[(3, 1), (4, 2)])).unwrap();
        let expected = "{\"memcg\":\"/a\",\"pid\":7,\"generations\":[{\"seq\":3,\"age_ms\":5,\"anon_bytes\":4096,\"file_bytes\":0},\
            {\"seq\":4,\"age_ms\":5,\"anon_bytes\":8192,\"file_bytes\":0}]}";
        assert_eq!(text, expected);
    }

    #[test]
    fn the_kernels_form_adds_the_processes_of_a_group_up() {
        let rows = [row("/a", 7, &[(3, 1), (4, 2)]), row("/a", 8, &[(4, 10)]), row("/b", 9, &[(1, 1)])];
        let read = lru_gen::parse(&kernel_text(&rows)).unwrap();
        assert_eq!((read.len(), &*read[0].path, &*read[1].path), (2, "/a", "/b"));
        let sizes: Vec<_> = read[0].nodes[0].1.iter().map(|g| (g.seq, g.anon_bytes >> 12)).collect();
        assert_eq!(sizes, [(3, 1), (4, 12)]);
    }

    #[test]
    fn what_is_in_a_sum_had_not_been_used_for_its_age() {
        let with_ages = |pid: u32, sizes: &[(u64, u64, u64)]| {
            let mut row = row("/a", pid, &[]);
            row.generations.extend(sizes.iter().map(|&(seq, age_ms, pages)| Generation {
                seq,
                age_ms,
                anon_bytes: pages << 12,
                file_bytes: 0,
            }));
            row
        };
        // One that was looked at again and again, one that was looked at long ago, and one that has just come.
        let rows = [
            with_ages(7, &[(5, 3000, 1), (6, 2000, 2), (7, 1000, 4), (8, 0, 8)]),
            with_ages(8, &[(1, 60_000, 16), (2, 50_000, 32)]),
            with_ages(9, &[(0, 500, 64)]),
        ];
        let sum = together(&rows.each_ref());
        let found: Vec<_> = sum.iter().map(|g| (g.seq, g.age_ms, g.anon_bytes >> 12)).collect();
        assert_eq!(found, [(5, 3000, 1 + 16 + 32), (6, 2000, 2), (7, 1000, 4), (8, 0, 8 + 64)]);
        for g in &sum {
            let old = |o: &Generation| o.age_ms >= g.age_ms;
            let bytes = |of: &[Generation]| of.iter().filter(|o| old(o)).map(Generation::bytes).sum::<u64>();
            assert!(bytes(&sum) <= rows.iter().map(|row| bytes(&row.generations)).sum());
        }
        let own = together(&[&rows[0]]);
        assert_eq!(own, rows[0].generations, "of one it is that");
    }

    #[test]
    fn what_is_below_the_generations_shown_is_in_the_oldest() {
        let all = row("/a", 7, &[(3, 1), (4, 2), (5, 4), (6, 8)]).generations;
        let of = |most| -> Vec<_> { youngest(all.clone(), most).iter().map(|g| (g.seq, g.anon_bytes >> 12)).collect() };
        assert_eq!(of(2), [(5, 1 + 2 + 4), (6, 8)]);
        assert_eq!((of(4).len(), of(200).len()), (4, 4));
    }

    #[test]
    fn the_table_tells_working_sets() {
        let text = table(&[row("/a", 7, &[(3, 256), (4, 512)])]);
        assert!(text.starts_with("/a: pid 7 x\n"), "{text}");
        assert!(text.contains("3.00 MiB") || text.contains("3 MiB"), "{text}");
    }
}
