//! The VMM's own memory map: the text of QEMU's `info mtree -f`.

use super::layout::{Layout, LayoutError, LayoutPart};
use isotherm_core::addr::AddrRange;

/// A part of the address space that is memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region {
    /// Where the guest sees it.
    pub addr: AddrRange,
    /// What it is called: the id of the memory backend.
    pub name: String,
    /// Where it begins in that.
    pub offset: u64,
    /// Where the VMM itself has it in its address space, if it tells.
    pub host: Option<u64>,
}

/// The memory in the flat view of the address space `memory`.
pub fn parse(text: &str) -> Result<Vec<Region>, LayoutError> {
    // A view belongs to the address spaces that are named above its regions.
    let (mut ours, mut in_head, mut found) = (false, false, None);
    for line in text.lines() {
        let trimmed = line.trim();
        if trimmed.starts_with("FlatView #") {
            (ours, in_head) = (false, true);
        } else if in_head && trimmed.starts_with("AS \"memory\"") {
            ours = true;
        } else if let Some(region) = region(trimmed) {
            in_head = false;
            if ours {
                found.get_or_insert_with(Vec::new).extend(region?);
            }
        }
    }
    found.ok_or_else(|| LayoutError::Map("it has no address space \"memory\"".into()))
}

/// `START-END (prio P, KIND): NAME [@OFFSET] …`; `None` for other lines, `Some(Ok(None))` for what is no memory.
fn region(line: &str) -> Option<Result<Option<Region>, LayoutError>> {
    let (range, rest) = line.split_once(" (prio ")?;
    let (start, last) = range.split_once('-')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let last = u64::from_str_radix(last, 16).ok()?;
    let (kind, rest) = rest.split_once("): ")?;
    if kind.split_once(", ")?.1 != "ram" {
        return Some(Ok(None));
    }
    let bad = || Some(Err(LayoutError::Map(format!("in the line {line:?}"))));
    let Some(end) = last.checked_add(1).filter(|end| start < *end) else { return bad() };
    let mut words: Vec<&str> = rest.split(' ').collect();
    // Accelerators are named at the end.
    while words.len() > 1 && words.last().is_some_and(|w| !w.starts_with('@')) {
        words.pop();
    }
    let offset = match words.last().and_then(|w| w.strip_prefix('@')) {
        None => 0,
        Some(hex) => match u64::from_str_radix(hex, 16) {
            Ok(offset) => {
                words.pop();
                offset
            }
            Err(_) => return bad(),
        },
    };
    // With spaces in the name and no offset, the first word is all that is left of it; then it is nobody's.
    let name = words.join(" ");
    // Newer QEMUs name backends by their whole path.
    let name = name.strip_prefix("/objects/").unwrap_or(&name).to_owned();
    Some(Ok(Some(Region { addr: AddrRange::new(start, end), name, offset, host: None })))
}

/// A memory backend of the VMM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backend {
    pub id: String,
    /// Bytes.
    pub size: u64,
}

/// Which file, and where in it, the VMM has mapped so many bytes of its address space from an address on.
pub(crate) type Locate<'a> = &'a dyn Fn(u64, u64) -> Option<(usize, u64)>;

/// The layout of files of these sizes. A part whose place the VMM has reported is where it has mapped a file there,
/// or in none of them. Otherwise a backend is the only file of its size; of two that look alike none is touched.
pub fn layout(
    regions: &[Region],
    backends: &[Backend],
    sizes: &[u64],
    locate: Locate<'_>,
) -> Result<Layout, LayoutError> {
    let mut pieces = Vec::new();
    for region in regions {
        let Some(backend) = backends.iter().find(|b| b.id == region.name) else { continue };
        if let Some(host) = region.host {
            // Memory that is the VMM's alone is in no file.
            let Some((file, offset)) = locate(host, region.addr.len()) else { continue };
            pieces.push(LayoutPart { addr: region.addr, file, offset });
            continue;
        }
        let alike = backends.iter().filter(|b| b.size == backend.size).count();
        let mut files = sizes.iter().enumerate().filter(|(_, size)| **size == backend.size);
        let (Some((file, _)), None, 1) = (files.next(), files.next(), alike) else { continue };
        pieces.push(LayoutPart { addr: region.addr, file, offset: region.offset });
    }
    if pieces.is_empty() {
        return Err(LayoutError::Map(
            "no memory backend of the VMM is one of the files that it holds open and has mapped shared".into(),
        ));
    }
    Layout::new(pieces, sizes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const Q35: &str = r#"FlatView #0
 AS "I/O", root: io
 Root memory region: io
  0000000000000000-0000000000000007 (prio 0, i/o): dma-chan

FlatView #1
 AS "memory", root: system
 AS "cpu-memory-0", root: system
 Root memory region: system
  0000000000000000-000000000009ffff (prio 0, ram): m
  00000000000a0000-00000000000bffff (prio 1, i/o): vga-lowmem
  00000000000c0000-00000000000dffff (prio 1, rom): pc.rom
  00000000000f0000-00000000000fffff (prio 1, rom): pc.bios @0000000000030000
  0000000000100000-000000007fffffff (prio 0, ram): m @0000000000100000 KVM
  00000000fec00000-00000000fec00fff (prio 0, i/o): ioapic
  0000000100000000-000000017fffffff (prio 0, ram): /objects/m @0000000080000000

FlatView #2
 AS "other", root: x
  0000000000000000-0000000000ffffff (prio 0, ram): m @0000000040000000
"#;

    #[test]
    fn only_the_machines_memory_counts() {
        let regions = parse(Q35).unwrap();
        let m = |start, end, offset| Region { addr: AddrRange::new(start, end), name: "m".into(), offset, host: None };
        let expected =
            [m(0, 0xa0000, 0), m(0x10_0000, 0x8000_0000, 0x10_0000), m(0x1_0000_0000, 0x1_8000_0000, 0x8000_0000)];
        assert_eq!(regions, expected);
        let backends = [Backend { id: "m".into(), size: 4 << 30 }];
        let layout = layout(&regions, &backends, &[123, 4 << 30], NOWHERE).unwrap();
        let piece = layout.find(AddrRange::new(0x1_0020_0000, 0x1_0040_0000)).unwrap();
        assert_eq!((piece[0].file, piece[0].offset), (1, 0x8020_0000));
        assert_eq!(layout.find(AddrRange::new(0, 0x20_0000)), None, "what devices cover is no memory");
    }

    const NOWHERE: Locate<'static> = &|_, _| None;

    #[test]
    fn backends_that_look_alike_are_told_by_where_they_are_mapped() {
        let region = |start: u64, name: &str, host| Region {
            addr: AddrRange::new(start << 30, (start + 1) << 30),
            name: name.into(),
            offset: 0,
            host: Some(host),
        };
        let regions = [region(0, "a", 100), region(4, "b", 200), region(5, "private", 300)];
        let backends = ["a", "b", "private"].map(|id| Backend { id: id.into(), size: 1 << 30 });
        let locate = |host, len| match (host, len) {
            (100, 0x4000_0000) => Some((1, 0)),
            (200, 0x4000_0000) => Some((0, 0)),
            _ => None,
        };
        let layout = layout(&regions, &backends, &[1 << 30, 1 << 30], &locate).unwrap();
        let file = |gib: u64| layout.find(AddrRange::new(gib << 30, (gib << 30) + 4096)).map(|p| p[0].file);
        assert_eq!((file(0), file(4), file(5)), (Some(1), Some(0), None));
    }

    #[test]
    fn nothing_is_guessed() {
        let regions = parse(Q35).unwrap();
        let backend = |id: &str, size| Backend { id: id.into(), size };
        assert!(
            layout(&regions, &[backend("m", 4 << 30)], &[4 << 30, 4 << 30], NOWHERE).is_err(),
            "two files of that size"
        );
        assert!(layout(&regions, &[backend("m", 4 << 30), backend("n", 4 << 30)], &[4 << 30], NOWHERE).is_err());
        assert!(layout(&regions, &[backend("x", 4 << 30)], &[4 << 30], NOWHERE).is_err());
        assert!(layout(&regions, &[backend("m", 2 << 30)], &[2 << 30], NOWHERE).is_err(), "parts beyond the file");
        assert!(parse("").is_err());
        assert!(parse("FlatView #0\n AS \"memory\", root: system\n  5-1 (prio 0, ram): m\n").is_err());
        assert!(parse(&Q35.replace("@0000000080000000", "@zz")).is_err());
    }
}
