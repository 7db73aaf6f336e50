//! Whether the guest's balloon already tells the host which memory is free (free page reporting).

use crate::roots::Roots;

/// Device number of a balloon in `/sys/bus/virtio/devices/*/device`.
const BALLOON: &str = "0x0005";
/// Bit of free page reporting among a balloon's features (linux/virtio_balloon.h).
const REPORTING: usize = 5;

/// A virtio balloon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Balloon {
    /// Its name, such as `virtio0`.
    pub name: String,
    /// Whether a driver uses it.
    pub driven: bool,
    /// Whether guest and host have agreed on free page reporting.
    pub reporting: bool,
}

impl Balloon {
    /// Whether it reports free pages now.
    pub fn reports(&self) -> bool {
        self.driven && self.reporting
    }
}

/// The balloons of this machine.
pub fn balloons(roots: &Roots) -> Vec<Balloon> {
    const DEVICES: &str = "/sys/bus/virtio/devices";
    let is_balloon = |name: &String| roots.line(format!("{DEVICES}/{name}/device")).as_deref() == Some(BALLOON);
    let found = roots.names(DEVICES).into_iter().filter(is_balloon);
    found
        .map(|name| {
            // One character a feature, the first for bit 0.
            let features = roots.line(format!("{DEVICES}/{name}/features")).unwrap_or_default();
            let reporting = features.as_bytes().get(REPORTING) == Some(&b'1');
            Balloon { driven: roots.exists(format!("{DEVICES}/{name}/driver")), reporting, name }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_tree::tree;

    #[test]
    fn only_a_driven_balloon_with_the_feature_reports() {
        let t = tree(&[
            ("sys/bus/virtio/devices/virtio0/device", "0x0003\n"),
            ("sys/bus/virtio/devices/virtio0/features", "1111111111111111\n"),
            ("sys/bus/virtio/devices/virtio1/device", "0x0005\n"),
            ("sys/bus/virtio/devices/virtio1/features", "0000010000000000\n"),
            ("sys/bus/virtio/devices/virtio1/driver/bind", ""),
            ("sys/bus/virtio/devices/virtio2/device", "0x0005\n"),
            ("sys/bus/virtio/devices/virtio2/features", "0000010000000000\n"),
            ("sys/bus/virtio/devices/virtio3/device", "0x0005\n"),
            ("sys/bus/virtio/devices/virtio3/features", "0000\n"),
            ("sys/bus/virtio/devices/virtio3/driver/bind", ""),
        ]);
        let found = balloons(&t.roots);
        let reporting: Vec<_> = found.iter().map(|b| (b.name.as_str(), b.reports())).collect();
        assert_eq!(reporting, [("virtio1", true), ("virtio2", false), ("virtio3", false)]);
        assert!(balloons(&tree(&[]).roots).is_empty());
    }
}
