//! `/proc/buddyinfo`: free memory by the size of its blocks.

/// Its path.
pub(crate) const FILE: &str = "/proc/buddyinfo";

/// Bytes in free blocks of 2 MiB and more, but for the zone for old devices, which the kernel hands out last.
pub(crate) fn free_huge(text: &str) -> u64 {
    let line = |l: &str| -> Option<u64> {
        // The zone's name, then a count for each order from 0.
        let (_, rest) = l.split_once("zone")?;
        let (zone, counts) = rest.trim().split_once(' ')?;
        let counts = counts.split_ascii_whitespace().map(|c| c.parse::<u64>().unwrap_or(0));
        (zone != "DMA").then(|| counts.enumerate().skip(9).map(|(order, n)| n << (order + 12)).sum())
    };
    text.lines().filter_map(line).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_2_mib_and_larger_ones_count() {
        let text = "Node 0, zone      DMA      1      1      1      1      1      1      1      1      1      3      2 \n\
                    Node 0, zone   Normal  64112  37212  18834  14896   8335   3653   1578   1189   1431    858   2477 \n";
        assert_eq!(free_huge(text), (858 << 21) + (2477 << 22));
        assert_eq!((free_huge(""), free_huge("Node 0, zone Normal x")), (0, 0));
    }
}
