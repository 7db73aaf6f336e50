//! `/proc/vmstat`: events since boot.

pub(crate) const FILE: &str = "/proc/vmstat";

/// What a counter of pages is called, and which kernel has it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageCounter {
    /// Its fields; those that a kernel has are added up.
    pub(crate) fields: &'static [&'static str],
    /// The options that it needs.
    pub(crate) options: &'static str,
}

/// Pages read back from swap.
pub(crate) const SWAP_IN: PageCounter =
    PageCounter { fields: &["pswpin"], options: "CONFIG_SWAP and CONFIG_VM_EVENT_COUNTERS" };

/// Pages that came back soon after they had been evicted. Before 5.9 there was one field for all of them.
pub(crate) const REFAULT: PageCounter = PageCounter {
    fields: &["workingset_refault_anon", "workingset_refault_file", "workingset_refault"],
    options: "CONFIG_VM_EVENT_COUNTERS",
};

/// The counter's pages; `None` where no field of it is there.
pub(crate) fn pages(text: &str, counter: PageCounter) -> Option<u64> {
    let values = text
        .lines()
        .filter_map(|l| l.split_once(' '))
        .filter(|(name, _)| counter.fields.contains(name))
        .filter_map(|(_, value)| value.trim().parse::<u64>().ok());
    values.fold(None, |sum, value| Some(sum.unwrap_or(0).saturating_add(value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_new_and_old_kernels() {
        let new = "pswpin 7\nworkingset_refault_anon 4\nworkingset_refault_file 6\nworkingset_activate_anon 9\n";
        assert_eq!((pages(new, SWAP_IN), pages(new, REFAULT)), (Some(7), Some(10)));
        assert_eq!(pages("workingset_refault 3\n", REFAULT), Some(3));
        assert_eq!(pages("workingset_refault x\npswpin\n", REFAULT), None);
    }
}
