//! What the kernel shows of a process's memory.

use std::fs;
use std::os::unix::fs::FileExt;

/// A figure (KiB) of the mapping of `pid` that begins at `start`.
pub fn smaps_kib(pid: u32, start: u64, field: &str) -> u64 {
    let text = area(pid, start);
    let value =
        text.lines().find_map(|l| l.strip_prefix(field)?.strip_prefix(':')?.trim().strip_suffix(" kB")?.parse().ok());
    value.unwrap_or_else(|| panic!("no {field} of {start:x} in smaps:\n{text}"))
}

/// Whether the mapping of `pid` that begins at `start` has a flag (`VmFlags`).
pub fn has_flag(pid: u32, start: u64, flag: &str) -> bool {
    let text = area(pid, start);
    let flags = text.lines().find_map(|l| l.strip_prefix("VmFlags:")).expect("VmFlags");
    flags.split_whitespace().any(|f| f == flag)
}

/// The lines of smaps about the mapping that begins at `start`.
fn area(pid: u32, start: u64) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap();
    let head = format!("{start:x}-");
    let from = text.find(&format!("\n{head}")).map(|i| i + 1);
    let from =
        from.or(text.starts_with(&head).then_some(0)).unwrap_or_else(|| panic!("no mapping at {start:x}\n{text}"));
    let text = &text[from..];
    let is_head = |l: &str| l.split_once('-').is_some_and(|(a, _)| u64::from_str_radix(a, 16).is_ok());
    let mut end = text.find('\n').unwrap() + 1;
    while let Some(len) = text[end..].find('\n') {
        if is_head(&text[end..end + len]) {
            break;
        }
        end += len + 1;
    }
    text[..end].to_owned()
}

/// Pages of a range that are in swap.
pub fn swapped_pages(pid: u32, start: u64, pages: u64) -> u64 {
    let file = fs::File::open(format!("/proc/{pid}/pagemap")).unwrap();
    let mut buf = vec![0; (pages * 8) as usize];
    file.read_exact_at(&mut buf, start / 4096 * 8).unwrap();
    buf.chunks_exact(8).filter(|e| e[7] >> 6 & 1 == 1).count() as u64
}

/// The state letter of a process.
pub fn state(pid: u32) -> char {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    text.lines().find_map(|l| l.strip_prefix("State:")?.trim().chars().next()).unwrap()
}
