//! Looking at windows and arming them.
//!
//! Arming reads all windows, clears the bits that are set, and reads those windows again: a bit that is still set
//! belongs to a page that cannot be cleared, or that was accessed in these microseconds; `sharing` tells which. Reading
//! costs about 0.1 us a window, a tenth of what clearing costs, so every arm is verified.

use super::plan::Wanted;
use super::pte;
use super::space::{Observer, ProcessSpace, SpaceError, page_index, span_base};
use super::walker::{Mapped, Span, SpanView};
use crate::proc::Process;
use isotherm_core::addr::{self, AddrRange, TABLE_SPAN};
use isotherm_core::bits::{Seen, Window};
use isotherm_core::mask::{self, NO_PAGES, PageMask};
use std::time::Instant;

/// A window's pages as sets over the 512 pages of its table.
#[derive(Debug, Clone, Copy)]
struct State {
    base: u64,
    span: PageMask,
    present: PageMask,
    accessed: PageMask,
    leaf_shift: u8,
    /// The read failed, or the entry is one that clearing would split: nothing can be said.
    blind: bool,
}

impl State {
    fn of(window: &Window, view: SpanView<'_>) -> Self {
        let first = page_index(window.start);
        let span = mask::span_mask(first, first + window.pages as usize);
        let none = Self {
            base: span_base(window.start),
            span,
            present: NO_PAGES,
            accessed: NO_PAGES,
            leaf_shift: 12,
            blind: false,
        };
        match view.mapped {
            Mapped::Nothing { .. } => none,
            Mapped::Unreadable => Self { present: span, blind: true, ..none },
            // There is no way to clear an entry of 1 GiB without splitting it.
            Mapped::Leaf { shift, .. } if shift > 21 => Self { present: span, leaf_shift: shift, blind: true, ..none },
            Mapped::Leaf { shift, entry } => {
                let accessed = if pte::is_leaf_accessed(entry) { span } else { NO_PAGES };
                Self { present: span, accessed, leaf_shift: shift, ..none }
            }
            Mapped::Table => {
                let (present, accessed) = pte::window_masks(first, view.entries);
                Self { present, accessed, ..none }
            }
        }
    }

    fn seen(&self, known_blind: &PageMask) -> Seen {
        let blind = if self.blind { self.present } else { mask::and(&self.present, known_blind) };
        let count = |m: &PageMask| mask::count(m) as u16;
        Seen {
            present: count(&self.present),
            accessed: count(&mask::and_not(&self.accessed, &blind)),
            blind: count(&blind),
            leaf_shift: self.leaf_shift,
        }
    }
}

/// What a window shows if every page of it can be observed; `None` where that is not so. The usual case, and several
/// times cheaper than a [`State`].
fn seen_of_observable(window: &Window, view: SpanView<'_>) -> Option<Seen> {
    let (present, accessed, leaf_shift) = match view.mapped {
        Mapped::Nothing { .. } => (0, 0, 12),
        Mapped::Leaf { shift: 21, entry } => {
            (window.pages, if pte::is_leaf_accessed(entry) { window.pages } else { 0 }, 21)
        }
        Mapped::Table => {
            let (present, accessed) = pte::counts(view.entries);
            (present, accessed, 12)
        }
        Mapped::Leaf { .. } | Mapped::Unreadable => return None,
    };
    Some(Seen { present, accessed, blind: 0, leaf_shift })
}

/// A window whose bits are being cleared.
#[derive(Debug)]
struct Armed {
    window: usize,
    state: State,
}

impl Observer {
    /// See [`isotherm_core::source::AccessSource::look`].
    pub fn look(
        &mut self,
        space: &mut ProcessSpace,
        process: &Process,
        windows: &mut [Window],
    ) -> Result<(), SpaceError> {
        self.each_view(space, process, windows, |_, space, window, view| {
            let observable = !space.may_be_blind(span_base(window.start));
            window.seen = observable.then(|| seen_of_observable(window, view)).flatten().unwrap_or_else(|| {
                let state = State::of(window, view);
                state.seen(&space.blind(state.base))
            });
            Ok(())
        })
    }

    /// See [`isotherm_core::source::AccessSource::arm`].
    pub fn arm(
        &mut self,
        space: &mut ProcessSpace,
        process: &Process,
        windows: &mut [Window],
    ) -> Result<(), SpaceError> {
        let now = Instant::now();
        let (mut armed, mut ranges, mut large) = (Vec::new(), Vec::new(), Vec::new());
        let mut index = 0;
        self.each_view(space, process, windows, |this, space, window, view| {
            index += 1;
            if !space.may_be_blind(span_base(window.start))
                && let Some(seen) = seen_of_observable(window, view).filter(|s| s.accessed == 0)
            {
                window.seen = seen;
                return Ok(());
            }
            let state = State::of(window, view);
            let blind = space.fresh_blind(state.base, now);
            window.seen = state.seen(&blind);
            if window.seen.accessed > 0 {
                let wanted = mask::and_not(&state.accessed, &blind);
                this.plan_window(space, window, &state, view, &wanted, &mut ranges, &mut large)?;
                armed.push(Armed { window: index - 1, state });
            }
            Ok(())
        })?;
        if armed.is_empty() {
            return Ok(());
        }
        self.plan_large(space, process, large, &mut ranges, now)?;
        addr::normalize(&mut ranges);
        self.clear(space, process, |_, _| ranges.clone())?;
        self.verify(space, process, windows, &armed, now)
    }

    /// Reads all windows, batch by batch.
    fn each_view(
        &mut self,
        space: &mut ProcessSpace,
        process: &Process,
        windows: &mut [Window],
        mut each: impl FnMut(&Self, &mut ProcessSpace, &mut Window, SpanView<'_>) -> Result<(), SpaceError>,
    ) -> Result<(), SpaceError> {
        let spans: Vec<Span> = windows.iter().map(|w| Span { start: w.start, pages: w.pages }).collect();
        let mut at = 0;
        while at < spans.len() {
            let n = self.read(space, process, &spans[at..])?;
            let mut bits = 0;
            for (i, window) in windows[at..at + n].iter_mut().enumerate() {
                each(self, space, window, self.span(i))?;
                bits += if window.seen.leaf_shift > 12 { 1 } else { u64::from(window.seen.present) };
            }
            self.pages_read += bits;
            at += n;
        }
        Ok(())
    }

    /// Adds the ranges that clear the pages `wanted` of one window. Pages in large folios go to `large` instead, by
    /// table.
    #[allow(clippy::too_many_arguments, reason = "two outputs of one decision")]
    fn plan_window(
        &self,
        space: &mut ProcessSpace,
        window: &Window,
        state: &State,
        view: SpanView<'_>,
        wanted: &PageMask,
        ranges: &mut Vec<AddrRange>,
        large: &mut Vec<(u64, PageMask)>,
    ) -> Result<(), SpaceError> {
        if state.leaf_shift > 12 {
            // A huge entry lies inside one area always: the kernel splits it before it lets an area end inside.
            ranges.push(AddrRange::new(state.base, state.base + TABLE_SPAN));
            return Ok(());
        }
        let first = page_index(window.start);
        let question =
            self.frames().question(&space.small, window.start, view.entries, &mask::shift_down(wanted, first));
        let sizes = self
            .frames()
            .answer(&mut space.small, &[question])
            .map_err(|e| SpaceError::Failed(format!("cannot read /proc/kpageflags: {e}")))?[0];
        let in_large = mask::and(wanted, &mask::shift_up(&sizes.large, first));
        if in_large != NO_PAGES {
            large.push((state.base, in_large));
        }
        // Between two pages, old small pages and holes may be passed over.
        let small = mask::and_not(wanted, &in_large);
        let vacant = mask::and_not(&state.span, &state.present);
        let allowed = mask::or(&vacant, &mask::shift_up(&sizes.small, first));
        let wanted = Wanted { base: state.base, pages: small, allowed, set: state.accessed };
        wanted.cover(self.rates(), |_| false, ranges);
        Ok(())
    }

    /// Adds the ranges that clear pages in large folios.
    fn plan_large(
        &mut self,
        space: &mut ProcessSpace,
        process: &Process,
        mut large: Vec<(u64, PageMask)>,
        ranges: &mut Vec<AddrRange>,
        now: Instant,
    ) -> Result<(), SpaceError> {
        if large.is_empty() {
            return Ok(());
        }
        large.sort_unstable_by_key(|l| l.0);
        large.dedup_by(|b, a| {
            let same = a.0 == b.0;
            if same {
                a.1 = mask::or(&a.1, &b.1);
            }
            same
        });
        space.areas.refresh(process.dir(), now);
        let spans: Vec<Span> = large.iter().map(|l| Span { start: l.0, pages: 512 }).collect();
        let mut at = 0;
        while at < spans.len() {
            let n = self.read(space, process, &spans[at..])?;
            for (i, (base, wanted)) in large[at..at + n].iter().enumerate() {
                let view = self.span(i);
                // If it is no table any more, the pages have been joined or unmapped: nothing to clear.
                if view.mapped == Mapped::Table {
                    let clear = self.whole_folios(space, *base, view.entries, wanted, now)?;
                    let wanted = Wanted { base: *base, pages: clear, allowed: NO_PAGES, set: NO_PAGES };
                    wanted.cover(self.rates(), |a| space.areas.begins_at(a), ranges);
                }
            }
            at += n;
        }
        Ok(())
    }

    /// Reads windows again after clearing, and corrects what was seen in them by what could not be cleared.
    fn verify(
        &mut self,
        space: &mut ProcessSpace,
        process: &Process,
        windows: &mut [Window],
        armed: &[Armed],
        now: Instant,
    ) -> Result<(), SpaceError> {
        let mut again: Vec<Window> = armed.iter().map(|a| windows[a.window]).collect();
        let mut index = 0;
        self.each_view(space, process, &mut again, |this, space, window, view| {
            let after = State::of(window, view);
            let before = &armed[index].state;
            index += 1;
            let still_set = mask::and(&after.accessed, &before.accessed);
            if still_set == NO_PAGES {
                return Ok(());
            }
            if let Mapped::Leaf { entry, .. } = view.mapped {
                Self::judge_leaf(this.frames(), space, process, after.base, entry, now);
            } else {
                let entries = (page_index(window.start), view.entries);
                Self::judge(this.frames(), space, process, after.base, &still_set, entries, now);
            }
            Ok(())
        })?;
        let mut last_leaf = None;
        for Armed { window, state } in armed {
            let seen = state.seen(&space.blind(state.base));
            windows[*window].seen = seen;
            self.pages_cleared += match state.leaf_shift {
                12 => seen.accessed as u64,
                _ if seen.accessed == 0 || last_leaf == Some(state.base) => 0,
                _ => 1,
            };
            last_leaf = (state.leaf_shift > 12).then_some(state.base);
        }
        Ok(())
    }
}
