//! Which CPUs there are.

use crate::roots::Roots;
use std::io;

/// The CPUs that are switched on: `0-3,8`.
pub(crate) fn online(roots: &Roots) -> io::Result<Vec<u32>> {
    let text = std::fs::read_to_string(roots.path("/sys/devices/system/cpu/online"))?;
    let number = |n: &str| n.parse::<u32>().map_err(io::Error::other);
    let mut cpus = Vec::new();
    for part in text.trim().split(',').filter(|p| !p.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        cpus.extend(number(first)?..=number(last)?);
    }
    Ok(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_tree::tree;

    #[test]
    fn cpus_that_are_switched_off_are_left_out() {
        let cpus = |text: &str| online(&tree(&[("sys/devices/system/cpu/online", text)]).roots).ok();
        assert_eq!(cpus("0-3,8\n"), Some(vec![0, 1, 2, 3, 8]));
        assert_eq!(cpus("0\n"), Some(vec![0]));
        assert_eq!(cpus("x\n"), None);
    }
}
