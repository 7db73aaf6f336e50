//! `/proc/PID/smaps`: resident and referenced bytes and the flags of each area.
//!
//! Reading it makes the kernel walk every page table entry: about 10 ms per resident GiB, in the reader's time, so it
//! is read only where nothing cheaper tells.

use super::dir::ProcessDir;
use super::error::ProcessError;
use super::lines::for_each_line;
use super::maps::MapsLine;
use super::status::kilobytes;
use isotherm_core::addr::AddrRange;

/// Figures of one area (one kernel VMA). Sizes in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    pub rss: u64,
    /// Resident with the accessed bit (or the page's referenced flag) set.
    pub referenced: u64,
    pub swap: u64,
    /// Resident hugetlb memory, which the kernel leaves out of `rss` and of `referenced`.
    pub hugetlb: u64,
    /// Part of `rss` in anonymous transparent huge pages: 512 pages that share one accessed bit.
    pub anon_huge: u64,
    /// `lo`: locked by mlock.
    pub locked: bool,
    /// `ht`: hugetlb pages.
    pub huge_tlb: bool,
    /// `pf` or `io`: page frames without struct page, or device memory.
    pub pfn_map: bool,
}

/// Calls `area` for every area in the text of an smaps file: its header line, then its figures.
///
/// Lines of unknown names are skipped (kernels differ); a header that cannot be parsed is an error and named.
pub(crate) fn for_each_area(
    reader: &mut impl std::io::Read,
    buf: &mut Vec<u8>,
    mut area: impl FnMut(MapsLine<'_>, Figures),
) -> Result<(), SmapsError> {
    let mut header: Vec<u8> = Vec::new();
    let mut figures = Figures::default();
    let mut bad: Option<String> = None;
    let mut flush = |header: &[u8], figures: Figures| match MapsLine::parse(header) {
        Some(line) => area(line, figures),
        None if header.is_empty() => {}
        None => bad = Some(String::from_utf8_lossy(header).into_owned()),
    };
    for_each_line(reader, buf, |line| {
        // Field names begin with a capital letter, header lines with a small hexadecimal digit.
        if !line.first().is_some_and(u8::is_ascii_uppercase) {
            flush(&header, std::mem::take(&mut figures));
            header.clear();
            header.extend_from_slice(line);
            return;
        }
        let Some(colon) = line.iter().position(|&b| b == b':') else { return };
        let value = &line[colon + 1..];
        match &line[..colon] {
            b"Rss" => figures.rss = kilobytes(value).unwrap_or(0),
            b"Referenced" => figures.referenced = kilobytes(value).unwrap_or(0),
            b"Swap" => figures.swap = kilobytes(value).unwrap_or(0),
            b"AnonHugePages" => figures.anon_huge = kilobytes(value).unwrap_or(0),
            b"Shared_Hugetlb" | b"Private_Hugetlb" => figures.hugetlb += kilobytes(value).unwrap_or(0),
            b"VmFlags" => {
                for flag in value.split(|&b| b == b' ') {
                    match flag {
                        b"lo" => figures.locked = true,
                        b"ht" => figures.huge_tlb = true,
                        b"pf" | b"io" => figures.pfn_map = true,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    })?;
    flush(&header, figures);
    bad.map_or(Ok(()), |line| Err(SmapsError::Header(line)))
}

/// Why the text of an smaps file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SmapsError {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A header line of unknown form.
    #[error("unknown line '{0}'")]
    Header(String),
}

/// Reads the file of one process. Nothing is called for a process without memory (a zombie).
pub fn read(dir: &ProcessDir, buf: &mut Vec<u8>, area: impl FnMut(MapsLine<'_>, Figures)) -> Result<(), ProcessError> {
    for_each_area(&mut dir.open("smaps")?, buf, area).map_err(|e| match e {
        SmapsError::Io(e) => dir.error("smaps", e),
        SmapsError::Header(line) => dir.malformed("smaps", line),
    })
}

/// The flags of the areas that differ from plain memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FlaggedRange {
    pub range: AddrRange,
    pub locked: bool,
    /// hugetlb pages.
    pub huge_tlb: bool,
    /// Page frames without struct page, or device memory.
    pub pfn_map: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SAMPLE: &str = include_str!("../../tests/data/smaps-locked.txt");

    #[test]
    fn figures_and_flags_belong_to_their_area() {
        let mut areas = Vec::new();
        for_each_area(&mut SAMPLE.as_bytes(), &mut Vec::new(), |line, f| areas.push((line.range, f))).unwrap();
        let total: u64 = areas.iter().map(|(_, f)| f.rss).sum();
        assert_eq!(areas.len(), 5);
        assert_eq!(total, (12 + 3072 + 1024 + 132) << 10);
        let locked: Vec<_> = areas.iter().filter(|(_, f)| f.locked).collect();
        assert_eq!(locked.len(), 1);
        assert_eq!((locked[0].0.len(), locked[0].1.referenced), (1 << 20, 512 << 10));
        assert!(areas[4].1.pfn_map && !areas[3].1.pfn_map);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "([0-9a-f]{1,6}-[0-9a-f]{1,6} rw-p 0 0:0 0 ?|Rss: [0-9 kB]{0,30}|VmFlags:[a-z ]{0,9}|.{0,20}|\n){0,30}") {
            let mut last = 0;
            let _ = for_each_area(&mut text.as_bytes(), &mut Vec::new(), |line, _| last = line.range.end);
            prop_assert!(last <= 0xff_ffff);
        }
    }

    #[test]
    fn a_foreign_header_is_named_and_the_rest_still_read() {
        let text = "1000-2000 rw-p 00000000 00:00 0\nRss: 4 kB\nwhat is this\nRss: 8 kB\n";
        let mut rss = 0;
        let error = for_each_area(&mut text.as_bytes(), &mut Vec::new(), |_, f| rss += f.rss).unwrap_err();
        assert_eq!((error.to_string().as_str(), rss), ("unknown line 'what is this'", 4096));
    }
}
