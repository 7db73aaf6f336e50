//! Bodies for fuzzers and damage tests: each takes bytes from anywhere and panics if a promise of the readers is broken.

use crate::trace::{Format, Selection, Trace, from_reader};
use std::io::Cursor;

/// Requests taken of an input: a record of a few bytes can tell of billions.
const MOST_REQUESTS: u64 = 1 << 14;

/// Reads bytes as a trace of every format, and as what they look like; whole, and a sample of it.
pub fn traces(bytes: &[u8]) {
    for format in [Format::Auto, Format::Csv, Format::Oracle, Format::Lackey, Format::Isotherm] {
        let read = |sample_rate| {
            let selection = Selection { sample_rate, limit: Some(MOST_REQUESTS), manner: None };
            from_reader("bytes", Box::new(Cursor::new(bytes.to_vec())), format, selection, &mut |_| {})
        };
        let (whole, sample) = (read(None), read(Some(0.5)));
        if let Ok(whole) = &whole {
            check(whole);
            assert_eq!(whole.pages().len() as u64, whole.seen(), "all are kept");
        }
        match (&whole, &sample) {
            (Ok(whole), Ok(sample)) => {
                check(sample);
                assert_eq!(whole.seen(), sample.seen());
                let kept = |name| sample.names().contains(&name);
                let named = |trace: &Trace| -> Vec<u64> {
                    trace.pages().iter().map(|page| trace.names()[*page as usize]).collect()
                };
                let of_whole: Vec<u64> = named(whole).into_iter().filter(|name| kept(*name)).collect();
                assert_eq!(of_whole, named(sample), "all requests for a page are kept, or none");
            }
            (whole, sample) => assert_eq!(whole.is_ok(), sample.is_ok(), "{whole:?}, a sample of it {sample:?}"),
        }
    }
}

fn check(trace: &Trace) {
    assert!(trace.seen() > 0 && trace.seen() <= MOST_REQUESTS);
    let mut seen = 0;
    for &page in trace.pages() {
        assert!(page <= seen, "pages are numbered in order of appearance");
        seen += u32::from(page == seen);
    }
    assert_eq!(seen, trace.footprint(), "each page is asked for");
    let mut names = trace.names().to_vec();
    names.sort_unstable();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "two pages have a name");
    for at in 0..trace.pages().len() {
        let (group, groups) = (usize::from(trace.groups().of(at)), trace.groups().names().len());
        assert!(group < groups.max(1), "a group without a name");
        let manner = trace.manner(at);
        assert!(!manner.is_fd() || manner.is_file(), "what is read through a descriptor belongs to a file");
    }
}
