use super::*;
use crate::addr::PAGE_SIZE;

const BLOCK: u64 = TABLE_SPAN;
const BASE: u64 = 64 * BLOCK;

/// A mapping of `blocks` blocks.
fn mapping(blocks: u64) -> AddrRange {
    AddrRange::new(BASE, BASE + blocks * BLOCK)
}

fn whole(start: u64, blocks: u64) -> AddrRange {
    AddrRange::new(start * BLOCK, (start + blocks) * BLOCK)
}

fn part(from: u64, to: u64, huge: bool) -> Populated {
    Populated { range: AddrRange::new(BASE + from, BASE + to), huge }
}

/// Of a mapping of 100 blocks that is filled from the front: `full` blocks of base pages, then `huge` huge ones.
fn filled(full: u64, huge: u64) -> Fill {
    let end = full * BLOCK;
    Fill::of(mapping(100), &[part(0, end, false), part(end, end + huge * BLOCK, true)])
}

/// The same of 200 blocks.
fn front(full: u64, huge: u64) -> Fill {
    let end = full * BLOCK;
    Fill::of(mapping(200), &[part(0, end, false), part(end, end + huge * BLOCK, true)])
}

fn look(filling: &mut Filling, mapping: AddrRange, fill: &Fill) -> Verdict {
    filling.look(mapping, fill, None, |_| false)
}

/// Of a process that has filled 200 blocks.
fn trusted() -> Filling {
    let mut filling = Filling::default();
    look(&mut filling, whole(500, 200), &Fill { full: 200, ..Fill::default() });
    filling.begin(&[], 0);
    filling
}

/// What a sample comes to of which nearly nothing, or nearly all, was never written.
fn sampled(filling: &mut Filling, mapping: AddrRange, fill: &Fill, sparse: bool) -> bool {
    filling.sampled(mapping, fill, vec![BASE], &[if sparse { 0.9 } else { 0.1 }], None)
}

#[test]
fn who_fills_densely_gets_huge_pages_ahead() {
    let mut filling = Filling::default();
    assert_eq!(look(&mut filling, mapping(100), &filled(0, 0)), Verdict::Leave);
    assert_eq!(look(&mut filling, mapping(100), &filled(1, 0)), Verdict::Leave);
    assert_eq!(look(&mut filling, mapping(100), &filled(2, 0)), Verdict::Ask);
    assert_eq!(look(&mut filling, mapping(100), &filled(2, 0)), Verdict::Leave, "asked for once");
    // One more was filled with base pages before the request took effect.
    assert_eq!(look(&mut filling, mapping(100), &filled(3, 7)), Verdict::Leave);
    let Verdict::Sample(blocks) = look(&mut filling, mapping(100), &filled(3, 8)) else { panic!() };
    assert!(blocks.iter().all(|b| (BASE + 3 * BLOCK..BASE + 11 * BLOCK).contains(b)), "{blocks:x?}");
    assert!(!sampled(&mut filling, mapping(100), &filled(3, 8), false));
    assert_eq!(look(&mut filling, mapping(100), &filled(3, 8)), Verdict::Leave);
}

#[test]
fn nothing_is_asked_for_what_is_sparse_or_has_no_room() {
    let mut filling = Filling::default();
    // One page in each block, and a dense beginning that turns sparse soon.
    let sparse: Vec<_> = (0..50).map(|i| part(i * BLOCK, i * BLOCK + 4096, false)).collect();
    assert_eq!(look(&mut filling, mapping(100), &Fill::of(mapping(100), &sparse)), Verdict::Leave);
    let mut turns = vec![part(0, 4 * BLOCK, false)];
    turns.extend((5..20).map(|i| part(i * BLOCK, i * BLOCK + 4096, false)));
    assert_eq!(look(&mut filling, mapping(100), &Fill::of(mapping(100), &turns)), Verdict::Leave);
    // At several places at a time, each halfway: a heap.
    let heap = |pages: u64| Fill { full: 8, partial: 6, partial_pages: 6 * pages, empty: 86, ..Fill::default() };
    assert_eq!(look(&mut filling, mapping(100), &heap(210)), Verdict::Leave);
    assert_eq!(look(&mut Filling::default(), mapping(100), &heap(214)), Verdict::Ask);
    // Every second page, everywhere: a table that is filled at random.
    let random: Vec<_> = (0..512 * 10).map(|i| part(i * 8192, i * 8192 + 4096, false)).collect();
    assert_eq!(look(&mut filling, mapping(100), &Fill::of(mapping(100), &random)), Verdict::Leave);
    assert_eq!(look(&mut filling, mapping(100), &filled(99, 0)), Verdict::Leave);
    assert_eq!(look(&mut filling, mapping(100), &filled(97, 3)), Verdict::Leave);
}

#[test]
fn what_turned_out_sparse_is_taken_back_and_more_is_wanted_then() {
    let mut filling = Filling::default();
    assert_eq!(look(&mut filling, mapping(100), &filled(2, 0)), Verdict::Ask);
    assert!(matches!(look(&mut filling, mapping(100), &filled(2, 10)), Verdict::Sample(_)));
    assert!(sampled(&mut filling, mapping(100), &filled(2, 10), true));
    filling.stands(mapping(100), &filled(2, 10));
    assert!(matches!(look(&mut filling, mapping(100), &filled(2, 11)), Verdict::Sample(_)), "again");
    assert!(sampled(&mut filling, mapping(100), &filled(2, 10), true));
    assert_eq!(look(&mut filling, mapping(100), &filled(5, 10)), Verdict::Leave);
    let other = AddrRange::new(BASE << 8, (BASE << 8) + 100 * BLOCK);
    let of_other = |full| Fill { full, empty: 100 - full, ..Fill::default() };
    assert_eq!(look(&mut filling, other, &of_other(7)), Verdict::Leave);
    assert_eq!(look(&mut filling, other, &of_other(8)), Verdict::Ask);
    // The first has doubled, densely.
    assert_eq!(look(&mut filling, mapping(100), &filled(24, 10)), Verdict::Ask);
}

#[test]
fn what_was_filled_before_the_request_is_collapsed_once_as_much_was_found_dense() {
    let asked = |full| {
        let mut filling = Filling::default();
        assert_eq!(look(&mut filling, mapping(200), &front(full, 0)), Verdict::Ask);
        assert!(matches!(look(&mut filling, mapping(200), &front(full, 8)), Verdict::Sample(_)));
        filling
    };
    let mut filling = asked(20);
    assert!(!sampled(&mut filling, mapping(200), &front(20, 8), false));
    assert_eq!(look(&mut filling, mapping(200), &front(20, 15)), Verdict::Leave, "less than there was");
    filling.begin(&[BASE], 1);
    let mut verdicts: Vec<_> = (0..2).map(|_| look(&mut filling, mapping(200), &front(20, 21))).collect();
    if let Some(Verdict::Sample(_)) = verdicts.first() {
        assert!(!sampled(&mut filling, mapping(200), &front(20, 21), false));
        verdicts.push(look(&mut filling, mapping(200), &front(20, 21)));
    }
    assert_eq!(verdicts.iter().filter(|v| **v == Verdict::Collapse).count(), 1, "{verdicts:?}");
    // Few are not worth a call; more than 64 may take the process too long; and what is sparse is left alone.
    for (full, is_sparse, until) in [(7, false, 193), (65, false, 135), (20, true, 36)] {
        let mut filling = asked(full);
        assert_eq!(sampled(&mut filling, mapping(200), &front(full, 8), is_sparse), is_sparse);
        for huge in 9..until {
            match look(&mut filling, mapping(200), &front(full, huge)) {
                Verdict::Sample(_) => assert!(!sampled(&mut filling, mapping(200), &front(full, huge), false)),
                verdict => assert_ne!(verdict, Verdict::Collapse, "{full} {huge}"),
            }
        }
    }
}

#[test]
fn what_a_heap_has_filled_before_a_request_is_collapsed_where_the_rest_of_it_is_dense() {
    let second = whole(1000, 30);
    let fill = |full, huge: u64| {
        let huge = (0..huge).map(|i| second.end - (i + 1) * BLOCK).rev().collect();
        Fill { full, huge, empty: 30 - full, ..Fill::default() }
    };
    let verdicts = |sparse: bool| {
        let mut filling = Filling::default();
        assert_eq!(look(&mut filling, mapping(200), &front(2, 0)), Verdict::Ask);
        assert!(matches!(look(&mut filling, mapping(200), &front(2, 40)), Verdict::Sample(_)));
        assert!(!sampled(&mut filling, mapping(200), &front(2, 40), false));
        if sparse {
            let third = whole(2000, 100);
            let fill = |full, huge: u64| Fill {
                full,
                huge: (0..huge).map(|i| third.start + (10 + i) * BLOCK).collect(),
                empty: 100 - full - huge,
                ..Fill::default()
            };
            assert_eq!(look(&mut filling, third, &fill(2, 0)), Verdict::Ask);
            assert!(matches!(look(&mut filling, third, &fill(2, 8)), Verdict::Sample(_)));
            assert!(sampled(&mut filling, third, &fill(2, 8), true));
        }
        (1..3).for_each(|now| {
            filling.begin(&[BASE, second.start], now);
            look(&mut filling, mapping(200), &front(2, 40));
        });
        assert_eq!(look(&mut filling, second, &fill(20, 0)), Verdict::Ask);
        filling.begin(&[BASE, second.start], AGAIN_NS);
        [20, 21].map(|_| look(&mut filling, second, &fill(20, 4)))
    };
    assert_eq!(verdicts(false), [Verdict::Collapse, Verdict::Leave]);
    assert_eq!(verdicts(true), [Verdict::Leave, Verdict::Leave], "some of it was not");
}

#[test]
fn what_was_full_at_once_is_collapsed_if_it_lasts_and_the_time_for_it_was_earned() {
    let full = |blocks| Fill { full: blocks, ..Fill::default() };
    let mut filling = trusted();
    let [small, large, last] = [whole(1000, 8), whole(2000, 20), whole(3000, 5)];
    let mut round = |now_ns: u64| {
        filling.begin(&[small.start, large.start, last.start], now_ns);
        let verdicts = [(small, 8), (large, 20), (last, 5)].map(|(m, blocks)| look(&mut filling, m, &full(blocks)));
        (verdicts, filling.settles_ns())
    };
    let (leave, collapse) = (Verdict::Leave, Verdict::Collapse);
    let all_left = [leave.clone(), leave.clone(), leave.clone()];
    // A block for each 50 ms since the beginning.
    assert_eq!(round(1_000_000_000), (all_left.clone(), Some(1_100_000_000)));
    assert_eq!(round(1_099_999_999), (all_left.clone(), Some(1_100_000_000)), "it may go at once");
    assert_eq!(round(1_100_000_000), ([collapse.clone(), leave.clone(), leave.clone()], Some(1_400_000_000)));
    assert_eq!(round(1_399_999_999), (all_left.clone(), Some(1_400_000_000)));
    assert_eq!(round(1_400_000_000), ([leave.clone(), collapse, leave], None));
    assert_eq!(round(9_000_000_000), (all_left, None), "once, and fewer blocks are not worth it");
    // What was there at the first look is left alone, and so is what is larger than what is filled between two.
    let mut attached = Filling::default();
    let (old, huge) = (whole(5000, 100), whole(6000, 129));
    for now in 1..20 {
        let starts = [old.start, huge.start];
        attached.begin(if now < 3 { &starts[..1] } else { &starts }, now * 1_000_000_000);
        assert_eq!(look(&mut attached, old, &full(100)), Verdict::Leave);
        if now > 2 {
            assert_eq!(look(&mut attached, huge, &full(129)), Verdict::Leave);
        }
    }
    assert!(attached.proven > TRUSTED);
    // Who has shown nothing, or has something sparse, has nothing collapsed.
    let mut unknown = Filling::default();
    let mut sparse = trusted();
    sparse.taken_back = 1;
    for filling in [&mut unknown, &mut sparse] {
        for now in 1..4 {
            filling.begin(&[small.start], now * 1_000_000_000);
            assert_eq!(look(filling, small, &full(8)), Verdict::Leave);
        }
    }
}

/// Of a mapping of 100 blocks: so many huge ones, then so many with half of their pages, then full ones.
fn collapsed(huge: u64, half: u64) -> Fill {
    let huge = (0..huge).map(|i| BASE + i * BLOCK).collect::<Vec<_>>();
    let full = 100 - huge.len() as u64 - half;
    Fill { full, partial: half, partial_pages: 256 * half, huge, ..Fill::default() }
}

#[test]
fn what_could_not_be_collapsed_is_tried_again_and_not_forever() {
    let mut filling = trusted();
    let mut at = |ms: u64, fill: &Fill| {
        filling.begin(&[BASE], ms * 1_000_000);
        let verdict = look(&mut filling, mapping(100), fill);
        if let Verdict::Sample(_) = verdict {
            assert!(!sampled(&mut filling, mapping(100), fill, false));
        }
        assert_eq!(verdict == Verdict::AskAndCollapse, ms == 0, "the request stands");
        (verdict == Verdict::Collapse, filling.settles_ns().map(|ns| ns / 1_000_000))
    };
    assert_eq!(at(0, &collapsed(0, 100)), (false, Some(50)));
    assert_eq!(at(49, &collapsed(60, 40)), (false, Some(50)));
    assert_eq!(at(50, &collapsed(60, 40)), (true, Some(100)));
    // More of the same blocks are filled with base pages: that is no other mapping.
    assert_eq!(at(100, &collapsed(60, 10)), (true, Some(200)));
    assert_eq!(at(200, &collapsed(80, 10)), (true, Some(400)));
    assert_eq!(at(400, &collapsed(80, 10)), (true, Some(500)), "whether it has got denser comes first");
    assert_eq!(at(500, &collapsed(80, 10)), (false, Some(800)));
    assert_eq!(at(800, &collapsed(90, 0)), (true, Some(1600)));
    assert_eq!(at(1600, &collapsed(100, 0)), (false, None), "nothing is left");
    assert_eq!(at(9000, &collapsed(90, 10)), (false, None));
}

#[test]
fn what_stays_refused_is_left() {
    let mut filling = trusted();
    assert_eq!(look(&mut filling, mapping(100), &collapsed(0, 100)), Verdict::AskAndCollapse);
    let mut tries = 0;
    for ms in (0..20_000).step_by(10) {
        filling.begin(&[BASE], ms * 1_000_000);
        match look(&mut filling, mapping(100), &collapsed(60, 40)) {
            Verdict::Collapse => tries += 1,
            Verdict::Sample(_) => assert!(!sampled(&mut filling, mapping(100), &collapsed(60, 40), false)),
            _ => {}
        }
    }
    assert_eq!(tries, 7);
    assert_eq!(filling.settles_ns(), None);
    let mut filling = trusted();
    assert_eq!(look(&mut filling, mapping(100), &collapsed(0, 100)), Verdict::AskAndCollapse);
    filling.begin(&[BASE], AGAIN_NS);
    assert_eq!(filling.look(mapping(100), &collapsed(60, 40), None, |_| true), Verdict::Leave, "they are expensive");
}

#[test]
fn blocks_that_the_kernel_collapses_meanwhile_hide_nothing() {
    let mut filling = Filling::default();
    let (begin, end) = (8 * BLOCK, 100 * BLOCK);
    assert_eq!(look(&mut filling, mapping(100), &filled(8, 0)), Verdict::Ask);
    let mut samples = 0;
    for i in 1..40 {
        // One more of the first blocks is collapsed each time, and the others fill.
        let base = part(i.min(8) * BLOCK, begin, false);
        let huge = part(begin, (begin + i * BLOCK).min(end), true);
        let populated = [part(0, i.min(8) * BLOCK, true), base, huge];
        let fill = Fill::of(mapping(100), &populated[..]);
        match look(&mut filling, mapping(100), &fill) {
            Verdict::Sample(_) => samples += 1,
            Verdict::Leave => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(samples >= 4, "{samples}");
}

#[test]
fn another_mapping_at_the_same_place_is_asked_for_anew() {
    let mut filling = Filling::default();
    assert_eq!(look(&mut filling, mapping(100), &filled(6, 0)), Verdict::Ask);
    assert_eq!(look(&mut filling, mapping(100), &filled(1, 0)), Verdict::Leave, "begun anew");
    assert_eq!(look(&mut filling, mapping(100), &filled(3, 0)), Verdict::Ask);
    assert_eq!(look(&mut filling, mapping(100), &filled(40, 0)), Verdict::Ask, "filled with base pages all the same");
    filling.begin(&[], 0);
    assert_eq!(look(&mut filling, mapping(100), &filled(40, 0)), Verdict::Ask);
}

#[test]
fn a_process_that_always_fills_what_it_maps_need_not_show_it_each_time() {
    let empty = |blocks: u64| Fill { empty: blocks, ..Fill::default() };
    let mut filling = Filling::default();
    let old = Fill { full: 40, ..Fill::default() };
    assert_eq!(look(&mut filling, whole(0, 40), &old), Verdict::Leave);
    assert_eq!(look(&mut filling, whole(100, 20), &empty(20)), Verdict::Leave, "not before the round has ended");
    filling.begin(&[0], 0);
    assert_eq!(look(&mut filling, whole(100, 20), &empty(20)), Verdict::Ask);
    assert_eq!(look(&mut filling, whole(200, 21), &empty(21)), Verdict::Leave, "more than half of it");
    assert_eq!(look(&mut filling, whole(300, 8), &empty(8)), Verdict::Leave, "it may be a stack");
    let scattered = Fill { partial: 3, empty: 17, ..Fill::default() };
    assert_eq!(look(&mut filling, whole(400, 20), &scattered), Verdict::Leave);
    // One that was filled in vain, and nothing is asked for at sight any more.
    let huge = |n: u64| Fill { empty: 20 - n, huge: (100..100 + n).map(|b| b * BLOCK).collect(), ..Fill::default() };
    assert!(matches!(look(&mut filling, whole(100, 20), &huge(8)), Verdict::Sample(_)));
    assert!(sampled(&mut filling, whole(100, 20), &huge(8), true));
    assert_eq!(look(&mut filling, whole(500, 20), &empty(20)), Verdict::Leave);
}

#[test]
fn where_one_of_a_length_was_filled_wholly_the_next_is_asked_for_at_sight() {
    let (mut filling, empty) = (Filling::default(), Fill { empty: 15, ..Fill::default() });
    let full = Fill { full: 15, ..Fill::default() };
    assert_eq!(look(&mut filling, whole(0, 15), &empty), Verdict::Leave);
    assert_eq!(look(&mut filling, whole(0, 15), &Fill { full: 14, empty: 1, ..Fill::default() }), Verdict::Leave);
    assert_eq!(look(&mut filling, whole(100, 15), &empty), Verdict::Leave, "not filled wholly");
    assert_eq!(look(&mut filling, whole(0, 15), &full), Verdict::Leave);
    assert_eq!(look(&mut filling, whole(200, 16), &Fill { empty: 16, ..Fill::default() }), Verdict::Leave);
    assert_eq!(look(&mut filling, whole(300, 15), &Fill { partial: 3, empty: 12, ..empty.clone() }), Verdict::Leave);
    assert_eq!(look(&mut filling, whole(100, 15), &empty), Verdict::Ask);
    let other = whole(600, 15);
    assert_eq!(look(&mut filling, other, &empty), Verdict::Leave, "the first of them is still open");
    // It is filled with huge pages, gone, and there again.
    let huge = |n: u64| Fill { empty: 15 - n, huge: (100..100 + n).map(|b| b * BLOCK).collect(), ..Fill::default() };
    assert!(matches!(look(&mut filling, whole(100, 15), &huge(15)), Verdict::Sample(_)));
    assert!(!sampled(&mut filling, whole(100, 15), &huge(15), false));
    assert_eq!(look(&mut filling, other, &empty), Verdict::Ask, "and was dense, too");
    filling.begin(&[], 0);
    assert_eq!(look(&mut filling, whole(100, 15), &empty), Verdict::Ask);
    // What has turned out to be sparse once is not trusted again, though others are filled.
    assert!(matches!(look(&mut filling, whole(100, 15), &huge(12)), Verdict::Sample(_)));
    assert!(!sampled(&mut filling, whole(100, 15), &huge(12), true), "it may be filled all over");
    assert_eq!(look(&mut filling, whole(100, 15), &huge(13)), Verdict::Leave, "not yet");
    filling.begin(&[100 * BLOCK], SETTLES_NS);
    assert_eq!(look(&mut filling, whole(100, 15), &huge(13)), Verdict::Sample(vec![BASE]));
    assert!(sampled(&mut filling, whole(100, 15), &huge(13), true), "it is not");
    assert_eq!(look(&mut filling, whole(400, 15), &full), Verdict::Leave);
    assert_eq!(look(&mut filling, whole(500, 15), &empty), Verdict::Leave);
}

#[test]
fn nothing_is_asked_for_while_huge_pages_are_expensive() {
    let mut filling = Filling::default();
    assert_eq!(filling.look(mapping(100), &filled(2, 0), None, |_| true), Verdict::Leave);
    assert_eq!(look(&mut filling, mapping(100), &filled(3, 0)), Verdict::Ask);
    assert!(!filling.has_paused());
    assert_eq!(filling.look(mapping(100), &filled(3, 4), None, |_| true), Verdict::TakeBack);
    assert!(filling.has_paused());
    assert_eq!(filling.look(mapping(100), &filled(20, 4), None, |_| true), Verdict::Leave);
    assert_eq!(look(&mut filling, mapping(100), &filled(40, 4)), Verdict::Ask);
    // One that is full already is left as it is, and a paused one gets its flag back although it is.
    assert_eq!(filling.look(mapping(100), &filled(40, 60), None, |_| true), Verdict::Sample(filling_blocks(44, 100)));
    assert_eq!(filling.look(mapping(100), &filled(40, 58), None, |_| true), Verdict::TakeBack);
    assert_eq!(look(&mut filling, mapping(100), &filled(42, 58)), Verdict::Ask);
    assert!(!filling.has_paused());
}

#[test]
fn what_a_trusted_process_fills_all_over_is_collapsed_once_a_quarter_of_it_is_there() {
    let even = |blocks: u64, pages: u64| {
        let part = |i| part(i * BLOCK, i * BLOCK + pages * PAGE_SIZE, false);
        Fill::of(mapping(blocks), &(0..blocks).map(part).collect::<Vec<_>>())
    };
    let many = mapping(100);
    let mut filling = trusted();
    assert_eq!(look(&mut filling, many, &even(100, 127)), Verdict::Leave);
    assert_eq!(look(&mut filling, mapping(15), &even(15, 300)), Verdict::Leave, "it may be a stack");
    let larger = |pages| look(&mut trusted(), mapping(101), &even(101, pages));
    assert_eq!(larger(255), Verdict::Leave, "more than half of what it has filled");
    assert_eq!(larger(256), Verdict::AskAndCollapse);
    assert_eq!(look(&mut Filling::default(), many, &even(100, 300)), Verdict::Leave, "not trusted");
    assert_eq!(filling.look(many, &even(100, 128), None, |_| true), Verdict::Leave, "expensive");
    assert_eq!(look(&mut filling, many, &even(100, 128)), Verdict::AskAndCollapse);
    let collapsed = Fill { huge: (0..100).map(|i| BASE + i * BLOCK).collect(), ..Fill::default() };
    assert_eq!(look(&mut filling, many, &collapsed), Verdict::Leave, "not called sparse");
    // Another one at the same address, that had pages in all blocks before it was seen for the first time.
    assert_eq!(look(&mut filling, many, &even(100, 20)), Verdict::Leave);
    assert_eq!(
        look(&mut filling, many, &even(100, 128)),
        Verdict::AskAndCollapse,
        "though the request seemed to stand"
    );
    // Some of it is given back to the kernel.
    assert_eq!(look(&mut filling, many, &collapsed), Verdict::Leave);
    let holes = Fill { huge: collapsed.huge[..60].to_vec(), partial: 40, partial_pages: 6000, ..Fill::default() };
    assert_eq!(look(&mut filling, many, &holes), Verdict::Leave);
    // Half of its blocks alone are in use, or it is full already.
    let mut half = even(50, 300);
    half.add(Fill { empty: 50, ..Fill::default() });
    assert_eq!(look(&mut trusted(), many, &half), Verdict::Leave);
    assert_eq!(look(&mut trusted(), many, &filled(100, 0)), Verdict::Leave);
    assert_eq!(look(&mut Filling::default(), many, &even(100, 400)), Verdict::Leave, "it has filled nothing yet");
    // So scattered that only some of its blocks are looked into.
    let cut = Fill { partial: 10, partial_pages: 2000, empty: 90, ..Fill::default() };
    let of_sample = |pages| trusted().look(many, &cut, Some(&even(8, pages)), |_| false);
    assert_eq!((of_sample(127), of_sample(128)), (Verdict::Leave, Verdict::AskAndCollapse));
    // Most of it is there: what was not looked at is not room.
    let cut = Fill { full: 20, partial: 10, partial_pages: 4500, empty: 70, ..Fill::default() };
    assert_eq!(look(&mut Filling::default(), many, &cut), Verdict::Ask);
    assert_eq!(Filling::default().look(many, &cut, Some(&even(8, 450)), |_| false), Verdict::Leave);
}

#[test]
fn less_is_needed_for_what_stands_than_for_a_new_request() {
    let mut filling = Filling::default();
    let scarce = |stands: bool| !stands;
    assert_eq!(filling.look(mapping(100), &filled(2, 0), None, scarce), Verdict::Leave);
    assert_eq!(look(&mut filling, mapping(100), &filled(3, 0)), Verdict::Ask);
    assert_eq!(filling.look(mapping(100), &filled(3, 4), None, scarce), Verdict::Leave, "it stands");
    assert_eq!(filling.look(mapping(100), &filled(3, 4), None, |_| true), Verdict::TakeBack);
    assert_eq!(filling.look(mapping(100), &filled(9, 4), None, scarce), Verdict::Leave, "and does no longer");
}

/// What a sample of the blocks `from..to` looks into.
fn filling_blocks(from: u64, to: u64) -> Vec<u64> {
    (0..SAMPLES as u64).map(|i| BASE + (from + i * (to - from) / SAMPLES as u64) * BLOCK).collect()
}

#[test]
fn samples_get_rarer_once_they_were_dense_often() {
    let (mut filling, mut samples) = (Filling::default(), 0);
    let whole = AddrRange::new(BASE, BASE + 10_000 * BLOCK);
    for huge in 0..4000 {
        let end = 2 * BLOCK;
        let fill = Fill::of(whole, &[part(0, end, false), part(end, end + huge * BLOCK, true)]);
        if matches!(look(&mut filling, whole, &fill), Verdict::Sample(_)) {
            samples += 1;
            sampled(&mut filling, whole, &fill, false);
        }
    }
    assert!((8..16).contains(&samples), "{samples}");
}

#[test]
fn what_is_filled_all_over_gets_denser_or_is_taken_back() {
    let many = mapping(100);
    let thin = |pages: u64| Fill { partial: 60, partial_pages: 60 * pages, empty: 40, ..Fill::default() };
    let huge = Fill { huge: (0..100).map(|i| BASE + i * BLOCK).collect(), ..Fill::default() };
    let known = || {
        let mut filling = Filling::default();
        assert_eq!(look(&mut filling, whole(500, 100), &Fill { full: 100, ..Fill::default() }), Verdict::Leave);
        filling.begin(&[], 0);
        filling
    };
    assert_eq!(look(&mut Filling::default(), many, &thin(5)), Verdict::Leave, "nothing is known of its length");
    let few = Fill { partial: 49, partial_pages: 49, empty: 51, ..Fill::default() };
    assert_eq!(look(&mut known(), many, &few), Verdict::Leave, "used at some places");
    let mut filling = known();
    assert_eq!(look(&mut filling, many, &thin(5)), Verdict::AskAndCollapse, "at sight");
    assert_eq!(filling.settles_ns(), Some(AGAIN_NS), "what could not be collapsed");
    filling.begin(&[BASE], SETTLES_NS - 1);
    assert_eq!(look(&mut filling, many, &huge), Verdict::Leave, "all could");
    assert_eq!(filling.settles_ns(), Some(SETTLES_NS));
    let settle = |filling: &mut Filling, zero: f64| {
        loop {
            filling.begin(&[BASE], filling.settles_ns().unwrap());
            match look(filling, many, &huge) {
                Verdict::Sample(blocks) => return filling.sampled(many, &huge, blocks, &[zero; 4], None),
                verdict => assert_eq!(verdict, Verdict::Leave),
            }
        }
    };
    assert!(!settle(&mut filling, 0.90), "denser than at first");
    assert!(!settle(&mut filling, 0.85));
    assert!(!settle(&mut filling, 0.74) && filling.settles_ns().is_none(), "dense");
    let mut filling = known();
    assert_eq!(look(&mut filling, many, &thin(5)), Verdict::AskAndCollapse);
    assert!(!settle(&mut filling, 0.90));
    assert!(settle(&mut filling, 0.89), "nobody goes on with it");
    assert_eq!(look(&mut filling, whole(700, 100), &thin(5)), Verdict::Leave, "nor is the next one trusted");
}

#[test]
fn zeros_that_were_written_are_not_sparse() {
    let huge = filled(3, 8);
    let sample = |of_full| {
        let mut filling = Filling::default();
        assert_eq!(look(&mut filling, mapping(100), &filled(3, 0)), Verdict::Ask);
        let Verdict::Sample(blocks) = look(&mut filling, mapping(100), &huge) else { panic!() };
        filling.sampled(mapping(100), &huge, blocks, &[1.0; 4], of_full)
    };
    assert_eq!(huge.last_full, Some(BASE + 2 * BLOCK));
    assert!(!sample(Some(0.9)), "so were those that were filled page by page");
    assert!(sample(Some(0.1)) && sample(None));
}
