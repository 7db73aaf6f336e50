//! `isotherm lru report`.

use super::engine::{EngineName, KernelTarget};
use super::live::Processes;
use crate::args::target::TargetArgs;
use crate::args::units;
use crate::exit::Usage;
use crate::stderr::printable_lines;
use isotherm_core::keeper::kernel::KernelMemory;
use isotherm_core::keeper::lru_gen;
use isotherm_core::keeper::memory::Generation;
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
    /// How long to watch [default: 4s, or what is known already]
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
    let (rows, finished) = match args.engine.kernel(&args.target)? {
        Some(kernel) => (of_kernel(&kernel)?, Ok(())),
        None => of_processes(&args)?,
    };
    let mut out = std::io::stdout().lock();
    if args.json {
        for row in &rows {
            serde_json::to_writer(&mut out, row)?;
            out.write_all(b"\n")?;
        }
    } else if args.kernel_text {
        out.write_all(printable_lines(&kernel_text(&rows)).as_bytes())?;
    } else {
        out.write_all(printable_lines(&table(&rows)).as_bytes())?;
    }
    finished
}

fn of_kernel(kernel: &KernelTarget) -> anyhow::Result<Vec<Row>> {
    let row = |KernelMemory { id, path, node, generations }| Row {
        memcg: path,
        pid: None,
        name: String::new(),
        node: Some(node),
        id,
        generations,
    };
    Ok(kernel.memories()?.into_iter().map(row).collect())
}

/// The rows, and how the command ended that was watched.
fn of_processes(args: &Args) -> anyhow::Result<(Vec<Row>, anyhow::Result<()>)> {
    let mut processes = Processes::open(&args.target)?;
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
    let finished = processes.finish();
    if rows.is_empty() {
        anyhow::bail!("every target has ended; nothing is left to show");
    }
    Ok((rows, finished))
}

/// Generations of one control group, its processes together: those as far below the youngest are one.
fn together<'a>(rows: impl Iterator<Item = &'a Row>) -> Vec<Generation> {
    let mut sum: Vec<Generation> = Vec::new();
    for row in rows {
        for (i, g) in row.generations.iter().rev().enumerate() {
            match sum.get_mut(i) {
                Some(s) => {
                    s.seq = s.seq.max(g.seq);
                    s.age_ms = s.age_ms.max(g.age_ms);
                    s.anon_bytes += g.anon_bytes;
                    s.file_bytes += g.file_bytes;
                }
                None => sum.push(*g),
            }
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
            out += &lru_gen::node_lines(&together(rows.into_iter()), node);
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
            lines(&mut out, &together(rows.into_iter()));
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
    fn the_table_tells_working_sets() {
        let text = table(&[row("/a", 7, &[(3, 256), (4, 512)])]);
        assert!(text.starts_with("/a: pid 7 x\n"), "{text}");
        assert!(text.contains("3.00 MiB") || text.contains("3 MiB"), "{text}");
    }
}
