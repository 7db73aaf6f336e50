use super::process::Process;
use super::sample::Sampler;
use crate::mm::mapping::Mapping;
use crate::mm::pagemap::Pagemap;
use isotherm_core::addr::{AddrRange, PAGE_SIZE, TABLE_SPAN};
use rustix::mm::Advice;

const BLOCKS: u64 = 6;

/// Memory of this process in whole blocks, without huge pages.
fn blocks() -> (Mapping, AddrRange) {
    let memory = Mapping::aligned((BLOCKS * TABLE_SPAN) as usize, TABLE_SPAN as usize).unwrap();
    let range = memory.range();
    memory.advise(range, Advice::LinuxNoHugepage).unwrap();
    (memory, range)
}

fn write(memory: &Mapping, page: u64, byte: u8) {
    memory.write((page - memory.range().start) as usize, &[byte]);
}

#[test]
fn what_was_never_written_is_told_from_what_was() {
    let (memory, range) = blocks();
    let mut sampler = Sampler::default();
    for i in 0..512 {
        // A quarter holds something, the others were written with zeros or not at all.
        write(&memory, range.start + i * PAGE_SIZE, u8::from(i % 4 == 0));
    }
    let part = sampler.zero_part(std::process::id(), range.start).unwrap();
    assert!((0.7..0.8).contains(&part), "{part}");
    let gone = memory.range().end + (1 << 40);
    assert!(sampler.zero_part(std::process::id(), gone / TABLE_SPAN * TABLE_SPAN).is_err());
}

#[test]
fn what_was_filled_at_the_last_look_is_found_again_without_looking() {
    let (memory, range) = blocks();
    let pagemap = Pagemap::open(std::process::id()).unwrap();
    let mut process = Process::open(std::process::id()).unwrap();
    let mut same = |what: &str| {
        let mut whole = Vec::new();
        match pagemap.populated(range, usize::MAX, &mut whole) {
            Err(e) => assert_eq!(e.raw_os_error(), Some(libc::ENOTTY), "before Linux 6.7"),
            Ok(()) => {
                process.scan(&pagemap, range).unwrap();
                assert_eq!(process.populated, whole, "{what}");
            }
        }
    };
    same("nothing there");
    for page in 0..BLOCKS * 512 {
        // Every twentieth page of the last block is left out.
        if page < (BLOCKS - 1) * 512 || page % 20 > 0 {
            write(&memory, range.start + page * PAGE_SIZE, 1);
        }
        if page % 700 == 0 || page % 512 == 511 {
            same("filled");
        }
    }
    // Another mapping at the same place has not been filled up to there.
    let filled = AddrRange::new(range.start, range.end - TABLE_SPAN);
    memory.advise(filled, Advice::LinuxDontNeed).unwrap();
    same("dropped");
}
