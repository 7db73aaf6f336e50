//! Before anything is called cold: see that accesses are seen, and that their absence is seen too, on pages of our own.

use super::space::{Observer, ProcessSpace, SpaceError};
use crate::mm::scratch::Scratch;
use crate::proc::Process;
use crate::source::selftest::SelfTestError;
use isotherm_core::bits::Window;
use isotherm_core::mask::{self, NO_PAGES};
use isotherm_core::source::Clear;

const PAGES: u16 = 64;
/// Every third page is touched.
const STRIDE: usize = 3;
/// Pages that were mapped a moment ago may wait in a per-CPU list, where the kernel does not clear them. Each attempt
/// uses new ones.
const ATTEMPTS: u32 = 5;

/// Touches pages of our own and leaves others alone; fails with the reason if the source does not tell them apart.
pub(super) fn run(observer: &mut Observer) -> Result<(), SelfTestError> {
    let pid = std::process::id();
    let process = Process::open(pid).map_err(SelfTestError::failed)?;
    let mut last = String::new();
    for _ in 0..ATTEMPTS {
        let mut space = ProcessSpace::new(observer.walker(), pid);
        match attempt(observer, &mut space, &process)? {
            None => return Ok(()),
            Some(wrong) => last = wrong,
        }
    }
    Err(SelfTestError::Wrong(last))
}

/// `Some` says what was seen wrongly.
fn attempt(
    observer: &mut Observer,
    space: &mut ProcessSpace,
    process: &Process,
) -> Result<Option<String>, SelfTestError> {
    let explain = |e| match e {
        SpaceError::Gone | SpaceError::Replaced => SelfTestError::failed("the self-test cannot find its own memory"),
        SpaceError::Failed(why) => SelfTestError::Failed(why),
    };
    let pages =
        Scratch::new(PAGES as usize).map_err(|e| SelfTestError::Failed(format!("cannot map test pages: {e}")))?;
    (0..PAGES as usize).for_each(|i| pages.touch(i));
    let mut window = [Window::new(pages.addr(0), PAGES)];
    observer.arm(space, process, &mut window).map_err(explain)?;
    if window[0].seen.accessed != PAGES {
        return Ok(Some(format!("of {PAGES} pages just written, {} were seen as accessed", window[0].seen.accessed)));
    }
    let mut single: Vec<Window> = (0..PAGES as usize).map(|i| Window::new(pages.addr(i), 1)).collect();
    observer.look(space, process, &mut single).map_err(explain)?;
    let untouched = single.iter().filter(|w| w.seen.accessed > 0).count();
    if untouched > 0 {
        return Ok(Some(format!("of {PAGES} pages left alone, {untouched} were seen as accessed")));
    }
    (0..PAGES as usize).step_by(STRIDE).for_each(|i| pages.touch(i));
    observer.look(space, process, &mut single).map_err(explain)?;
    let wrong = single.iter().enumerate().filter(|(i, w)| (w.seen.accessed > 0) != (i % STRIDE == 0)).count();
    if wrong > 0 {
        return Ok(Some(format!("of {PAGES} pages, a third of them touched, {wrong} were reported wrongly")));
    }
    let mut seen = NO_PAGES;
    let range = [window[0].range()];
    observer
        .scan(space, process, &range, Clear::Nothing, &mut |t| seen = mask::or(&seen, &t.accessed))
        .map_err(explain)?;
    let want = (PAGES as usize).div_ceil(STRIDE) as u32;
    let got = mask::count(&seen);
    Ok((got != want).then(|| format!("a copy of the whole table shows {got} accessed pages instead of {want}")))
}
