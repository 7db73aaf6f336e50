//! Generations in the text form of `/sys/kernel/debug/lru_gen`.

use super::kernel::KernelMemory;
use super::memory::Generation;
use crate::addr::PAGE_SIZE;
use std::fmt::Write;

/// A memory's name: `memcg` with its number and path.
pub fn memcg_line(id: u32, path: &str) -> String {
    format!("memcg {id:>5} {path}\n")
}

/// A memory's generations on one node, the oldest first: number, age in ms, pages of anonymous memory and of files.
pub fn node_lines(generations: &[Generation], node: u32) -> String {
    let mut text = format!(" node {node:>5}\n");
    for g in generations {
        let (anon, file) = (g.anon_bytes / PAGE_SIZE, g.file_bytes / PAGE_SIZE);
        let _ = writeln!(text, " {:>10} {:>10} {anon:>10}  {file:>10} ", g.seq, g.age_ms);
    }
    text
}

/// Tiers of a generation in `lru_gen_full`.
const TIERS: u64 = 4;

/// A memory's generations on one node as `lru_gen_full` shows them: also those before `min_seq`, marked as gone. The
/// figures of tiers are marked as having no value, as the kernel marks those that it does not count. `walked`: how many
/// pages the last walk found, and how many of them used, which stands with the youngest.
pub fn full_node_lines(generations: &[Generation], min_seq: u64, node: u32, walked: Option<(u64, u64)>) -> String {
    let mut text = format!(" node {node:>5}\n");
    let none = format!("{:>11}x", 0);
    let max_seq = generations.last().map(|g| g.seq);
    for g in generations {
        let mark = if g.seq < min_seq { 'x' } else { ' ' };
        let (anon, file) = (g.anon_bytes / PAGE_SIZE, g.file_bytes / PAGE_SIZE);
        let _ = writeln!(text, " {:>10} {:>10} {anon:>10}{mark} {file:>10}{mark}", g.seq, g.age_ms);
        for tier in 0..TIERS {
            let _ = writeln!(text, "            {tier:>10}{}", none.repeat(6));
        }
        let _ = match walked.filter(|_| Some(g.seq) == max_seq) {
            Some((all, used)) => writeln!(text, "{:22} {all:>10}T {used:>10}Y{}", "", none.repeat(2)),
            None => writeln!(text, "{:22}{}", "", none.repeat(4)),
        };
    }
    text
}

/// A line that is not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, {text:?}, is not in the form of lru_gen")]
pub struct LruGenError {
    line: usize,
    text: String,
}

/// A memory as the kernel shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelMemcg {
    /// Its number, which commands name it by.
    pub id: u32,
    /// Its path; empty where the kernel has none.
    pub path: String,
    /// Its generations on each node, the oldest first.
    pub nodes: Vec<(u32, Vec<Generation>)>,
}

impl KernelMemcg {
    /// Node by node.
    pub fn into_memories(self) -> impl Iterator<Item = KernelMemory> {
        let Self { id, path, nodes } = self;
        nodes.into_iter().map(move |(node, generations)| KernelMemory { id, path: path.clone(), node, generations })
    }
}

/// Reads the text form. What cannot be understood is reported with its line; lines of `lru_gen_full` that have no
/// counterpart here are passed over.
pub fn parse(text: &str) -> Result<Vec<KernelMemcg>, LruGenError> {
    let mut memcgs: Vec<KernelMemcg> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let wrong = || LruGenError { line: number + 1, text: line.to_owned() };
        let mut words = line.split_ascii_whitespace();
        match words.next() {
            None => {}
            Some("memcg") => {
                let id = words.next().and_then(|w| w.parse().ok()).ok_or_else(wrong)?;
                // Paths may hold blanks: everything behind the number.
                let rest = line.trim_start().trim_start_matches("memcg").trim_start();
                let path = rest.split_once(' ').map_or("", |(_, path)| path).to_owned();
                memcgs.push(KernelMemcg { id, path, nodes: Vec::new() });
            }
            Some("node") => {
                let node = words.next().and_then(|w| w.parse().ok()).ok_or_else(wrong)?;
                memcgs.last_mut().ok_or_else(wrong)?.nodes.push((node, Vec::new()));
            }
            Some(first) => {
                let Some(node) = memcgs.last_mut().and_then(|m| m.nodes.last_mut()) else { return Err(wrong()) };
                let sizes: Vec<&str> = words.collect();
                // Four numbers, the sizes with a mark behind them in lru_gen_full.
                let [age, anon, file] = sizes[..] else { continue };
                let size = |text: &str| text.trim_end_matches('x').parse::<u64>().ok();
                let (Ok(seq), Ok(age_ms)) = (first.parse(), age.parse()) else { continue };
                let (Some(anon), Some(file)) = (size(anon), size(file)) else { continue };
                let (anon_bytes, file_bytes) = (anon.saturating_mul(PAGE_SIZE), file.saturating_mul(PAGE_SIZE));
                node.1.push(Generation { seq, age_ms, anon_bytes, file_bytes });
            }
        }
    }
    Ok(memcgs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_is_the_kernels() {
        let generations = [0, 1, 2, 3].map(|seq| Generation { seq, age_ms: 7, anon_bytes: 0, file_bytes: 0 });
        let text = memcg_line(3, "/a") + &node_lines(&generations, 0);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "memcg     3 /a");
        assert_eq!(lines[1], " node     0");
        assert_eq!(lines[2], "          0          7          0           0 ");
        assert_eq!(lines.len(), 6);
        assert!(lines[5].starts_with("          3"));
    }

    #[test]
    fn the_full_form_marks_what_has_no_value() {
        let one = |seq| Generation { seq, age_ms: 70 - seq, anon_bytes: seq << 12, file_bytes: 0 };
        let text = full_node_lines(&[one(4), one(5), one(6), one(7)], 6, 0, Some((20, 3)));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 1 + 4 * 6);
        assert_eq!(lines[1], "          4         66          4x          0x");
        assert_eq!(lines[13], "          6         64          6           0 ");
        assert_eq!(lines[2], format!("                     0{}", "          0x".repeat(6)));
        assert_eq!(lines[6], format!("                      {}", "          0x".repeat(4)));
        assert_eq!(lines[24], "                               20T          3Y          0x          0x");
        let read = parse(&(memcg_line(1, "/") + &text)).unwrap();
        assert_eq!(read[0].nodes[0].1.iter().map(|g| g.seq).collect::<Vec<_>>(), [4, 5, 6, 7]);
    }

    #[test]
    fn what_is_written_is_read_again() {
        let one = |seq| Generation { seq, age_ms: 70 - seq, anon_bytes: seq << 12, file_bytes: 5 << 12 };
        let generations = vec![one(4), one(5), one(6)];
        let text = memcg_line(3, "/a b/c") + &node_lines(&generations, 0) + &node_lines(&generations[1..], 1);
        let read = parse(&(memcg_line(1, "") + &text)).unwrap();
        assert_eq!(read[0], KernelMemcg { id: 1, path: String::new(), nodes: vec![] });
        let nodes = vec![(0, generations.clone()), (1, generations[1..].to_vec())];
        assert_eq!(read[1], KernelMemcg { id: 3, path: "/a b/c".into(), nodes });
    }

    #[test]
    fn the_full_form_is_read_and_nonsense_is_refused() {
        let full = "memcg     1 /\n node     0\n          0       1234          7x         0 \n\
            \x20           0          0r         3e          0p          0           0           0 \n";
        assert_eq!(parse(full).unwrap()[0].nodes[0].1.len(), 1);
        assert_eq!(parse("").unwrap(), []);
        for bad in ["memcg x /\n", " node 0\n", " 1 2 3 4\n", "memcg 1 /\n node x\n"] {
            assert!(parse(bad).unwrap_err().to_string().starts_with("line "), "{bad}");
        }
    }
}
