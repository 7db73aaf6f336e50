//! Memory that its program unmaps after it was paged out.

use crate::run::{P, Run, S, page_out, pages};

#[test]
fn what_is_unmapped_after_it_went_is_not_out_any_more_and_does_not_come_back() {
    let mut run = Run::new(&[pages(0, 2048), pages(4096, 6144)], &[], vec![page_out()]);
    run.run(5 * S);
    assert_eq!((run.out(), run.stats().effect.saved_now), (4096 * P, 4096 * P));
    run.world.borrow_mut().mappings.truncate(1);
    run.run(12 * S);
    assert_eq!(run.stats().effect.saved_now, 2048 * P);
    // Other memory is mapped at these addresses, and used.
    run.world.borrow_mut().mappings.push(pages(4096, 6144));
    run.world.borrow_mut().hot.push(pages(4096, 6144));
    run.run(12 * S);
    let effect = run.stats().effect;
    assert_eq!((effect.out, effect.back_60s, effect.saved_now), (4096 * P, 0, 2048 * P), "{effect:?}");
}
