//! Generations in the text form of `/sys/kernel/debug/lru_gen`.

use super::lruvec::Lruvec;
use std::fmt::Write;

/// A memory's name: `memcg` with its number and path.
pub fn memcg_line(id: u16, path: &str) -> String {
    format!("memcg {id:>5} {path}\n")
}

/// A memory's generations on one node at the time `now`, ns: number, age in ms, pages of anonymous memory and of files.
pub fn generations(lruvec: &Lruvec, node: u32, now: u64) -> String {
    let mut text = format!(" node {node:>5}\n");
    for seq in lruvec.oldest(100)..=lruvec.max_seq() {
        let age = lruvec.born(seq).map_or(0, |birth| now.saturating_sub(birth) / 1_000_000);
        let (anon, file) = (lruvec.size(seq, 0), lruvec.size(seq, 1));
        let _ = writeln!(text, " {seq:>10} {age:>10} {anon:>10}  {file:>10} ");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lru::Variant;

    #[test]
    fn the_form_is_the_kernels() {
        let lruvec = Lruvec::new(3, 0, Variant::V6_14, 64, 1_000_000);
        let text = memcg_line(3, "/a") + &generations(&lruvec, 0, 8_000_000);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "memcg     3 /a");
        assert_eq!(lines[1], " node     0");
        assert_eq!(lines[2], "          0          7          0           0 ");
        assert_eq!(lines.len(), 6);
        assert!(lines[5].starts_with("          3"));
    }
}
