//! What of the kernel's types is needed to find and read its page [descriptors](super::descriptors).

use crate::bpf::btf::{Btf, BtfError, Struct};

/// Offsets, a size and a flag.
#[derive(Debug, Clone, Copy)]
pub(super) struct Types {
    /// Type id of `bpf_iter_task`.
    pub attach_btf_id: u32,
    /// Offset of `task_struct.stack`.
    pub task_stack: u64,
    /// Offset of `task_struct.stack_vm_area`.
    pub task_stack_area: u64,
    /// Offset of `vm_struct.pages`.
    pub area_pages: u64,
    /// Bytes of `struct page`.
    pub page_size: u64,
    /// `PG_head`, as a mask.
    pub head: u64,
}

impl Types {
    /// Reads them. An error where the kernel keeps them differently (older than 4.9, or with CONFIG_VMAP_STACK=n).
    /// `task`: `task_struct`.
    pub fn of(btf: &Btf, task: Struct<'_>, attach_btf_id: u32) -> Result<Self, BtfError> {
        let page = btf.structure("page")?;
        // Both words are read at once.
        if (page.offset("flags")?, page.offset("compound_head")?) != (0, 8) {
            return Err(BtfError::Missing("page.compound_head behind page.flags".into()));
        }
        let head = btf.enum_value("pageflags", "PG_head")?;
        Ok(Self {
            attach_btf_id,
            task_stack: task.offset("stack")?.into(),
            task_stack_area: task.offset("stack_vm_area")?.into(),
            area_pages: btf.structure("vm_struct")?.offset("pages")?.into(),
            page_size: page.size()?.into(),
            head: 1u64.checked_shl(head).ok_or_else(|| BtfError::Missing("pageflags.PG_head below 64".into()))?,
        })
    }
}
