//! Names of mappings, as people know them.

use isotherm_core::addr::AddrRange;
use isotherm_core::mapping::{Mapping, MappingKind};
use std::borrow::Cow;
use unicode_width::UnicodeWidthStr;

/// A mapping's name in full: its own, or what kind of memory a nameless one is.
pub fn full(mapping: &Mapping) -> &str {
    match (mapping.name.as_str(), mapping.kind) {
        ("", MappingKind::Anon) => "anon",
        ("", MappingKind::File) => "file",
        ("", MappingKind::Shmem) => "shared",
        ("", MappingKind::Hugetlb) => "hugetlb",
        ("", MappingKind::Special) => "special",
        (name, _) => name,
    }
}

/// What a mapping's row in a table goes by: its name in full; the addresses of anonymous memory that has none, since
/// nothing else tells it from other such.
pub fn row(mapping: &Mapping) -> Cow<'_, str> {
    match (mapping.name.as_str(), mapping.kind) {
        ("", MappingKind::Anon) => addresses(&mapping.range).into(),
        _ => full(mapping).into(),
    }
}

/// Addresses as /proc/PID/maps writes them.
pub fn addresses(range: &AddrRange) -> String {
    format!("{:x}-{:x}", range.start, range.end)
}

/// A name without its folders: `/usr/lib/libc.so.6` becomes `libc.so.6`.
pub fn short(name: &str) -> &str {
    if name.starts_with('/') { name.rsplit('/').find(|part| !part.is_empty()).unwrap_or(name) } else { name }
}

/// Columns that a text takes on a terminal: some characters, those of Chinese for example, take two, some none.
pub fn width(text: &str) -> usize {
    text.width()
}

/// A text cut to `width` columns, with an ellipsis where something is missing.
pub fn fit(text: &str, width: usize) -> String {
    if self::width(text) <= width {
        return text.to_owned();
    }
    if width == 0 {
        return String::new();
    }
    let ends = text.char_indices().map(|(start, c)| start + c.len_utf8());
    let end = ends.take_while(|&end| self::width(&text[..end]) < width).last().unwrap_or(0);
    format!("{}…", &text[..end])
}

/// The same with the end kept: of paths that says most.
pub fn fit_end(text: &str, width: usize) -> String {
    if self::width(text) <= width {
        return text.to_owned();
    }
    if width == 0 {
        return String::new();
    }
    let starts = text.char_indices().rev().map(|(start, _)| start);
    let start = starts.take_while(|&start| self::width(&text[start..]) < width).last().unwrap_or(text.len());
    format!("…{}", &text[start..])
}

/// A text with blanks behind it, `width` columns in all; longer ones stay as they are.
pub fn left(text: &str, width: usize) -> String {
    format!("{text}{:blanks$}", "", blanks = width.saturating_sub(self::width(text)))
}

/// The same with the blanks before it.
pub fn right(text: &str, width: usize) -> String {
    format!("{:blanks$}{text}", "", blanks = width.saturating_sub(self::width(text)))
}

/// The mapping that holds most of `range`; `mappings` are sorted and disjoint.
pub(crate) fn mapping_of<'a>(mappings: &'a [Mapping], range: &AddrRange) -> Option<&'a Mapping> {
    let first = mappings.partition_point(|m| m.range.end <= range.start);
    mappings[first..]
        .iter()
        .take_while(|m| m.range.start < range.end)
        .filter_map(|m| m.range.intersect(range).map(|common| (common.len(), m)))
        // The first of several equals: later ones only win by more bytes.
        .fold(None, |best: Option<(u64, &Mapping)>, next| match best {
            Some(b) if b.0 >= next.0 => Some(b),
            _ => Some(next),
        })
        .map(|(_, m)| m)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_where_they_say_least() {
        assert_eq!((fit("/a/b/cd", 5), fit_end("/a/b/cd", 5)), ("/a/b…".to_owned(), "…b/cd".to_owned()));
        for width in 0..9 {
            let cut = [fit("/a/b/cd", width), fit_end("/a/b/cd", width)].map(|text| text.chars().count());
            assert_eq!(cut, [width.min(7); 2]);
        }
    }

    #[test]
    fn columns_are_counted_and_not_characters() {
        let wide = "\u{4e2d}\u{6587}\u{540d}";
        assert_eq!((width(wide), width("e\u{301}")), (6, 1));
        for columns in 0..8 {
            for cut in [fit(wide, columns), fit_end(wide, columns)] {
                assert!(width(&cut) <= columns && columns <= width(&cut) + 1 || columns > 6, "{columns}: {cut}");
            }
        }
        assert_eq!((fit(wide, 5), fit_end(wide, 5)), ("\u{4e2d}\u{6587}…".into(), "…\u{6587}\u{540d}".into()));
        assert_eq!((left(wide, 8), right(wide, 8)), (format!("{wide}  "), format!("  {wide}")));
        assert_eq!((left(wide, 3), right("ab", 2)), (wide.to_owned(), "ab".to_owned()));
    }

    #[test]
    fn the_largest_overlap_names_a_range() {
        let mut heap = Mapping::anon(0x1000, 0x3000);
        heap.name = "[heap]".into();
        let list = [heap, Mapping::anon(0x3000, 0x9000)];
        let name = |s, e| mapping_of(&list, &AddrRange::new(s, e)).map(full);
        assert_eq!(name(0x0, 0x2000), Some("[heap]"));
        assert_eq!(name(0x2000, 0x5000), Some("anon"));
        assert_eq!(name(0x2000, 0x4000), Some("[heap]"), "the first of equals");
        assert_eq!(name(0x9000, 0xa000), None);
        assert_eq!(name(0x0, 0x1000), None);
    }

    #[test]
    fn short_names() {
        assert_eq!(short("/usr/lib/x86_64-linux-gnu/libc.so.6"), "libc.so.6");
        assert_eq!(short("[heap]"), "[heap]");
        assert_eq!(short("/"), "/");
        assert_eq!(fit("libcrypto.so.3", 8), "libcryp…");
        assert_eq!(fit("abc", 3), "abc");
        assert_eq!(fit("abc", 0), "");
    }
}
