//! A page comes into memory.

use super::flags::Flags;
use super::lruvec::Lruvec;
use super::pages::Pages;
use super::shadow::Shadow;
use super::{Access, Channel, Hit, PageKind, tier};

impl Lruvec {
    /// Adds a page that is not in memory, at its first access. Its entry in the page tables is the caller's matter.
    pub(crate) fn fault_in(&mut self, pages: &mut Pages, page: u32, access: Access, track_dirty: bool) -> Hit {
        let old = pages.flags(page);
        let shadow = old.has(Flags::SHADOW).then(|| Shadow::unpack(pages.shadow(page)));
        let mapped = access.channel == Channel::Mapped;
        let mut flags = Flags::default();
        flags.set_memcg(self.id);
        flags.set(Flags::RESIDENT | if access.kind == PageKind::File { Flags::FILE } else { 0 });
        if let Some(shadow) = shadow {
            if access.kind == PageKind::Anon {
                flags.set(Flags::SWAPCACHE);
            }
            self.refault(&mut flags, shadow, mapped);
        }
        if mapped {
            flags.set(Flags::ACTIVE);
        }
        if access.write && track_dirty {
            flags.set(Flags::DIRTY);
            flags.clear(Flags::SWAPCACHE);
        }
        *pages.flags_mut(page) = flags;
        self.add(pages, page, false);
        if !mapped {
            tier::touch(self.variant, pages.flags_mut(page));
        }
        if shadow.is_some() { Hit::Refault } else { Hit::Miss }
    }
}
