//! Whether the guest's balloon already tells the host which memory is free (free page reporting).

use crate::roots::Roots;

/// Device number of a balloon in `/sys/bus/virtio/devices/*/device`.
const BALLOON: &str = "0x0005";
/// Bit of free page reporting among a balloon's features (linux/virtio_balloon.h).
const REPORTING: usize = 5;

/// The names of this machine's virtio balloons, such as `virtio0`, that report free pages: a driver uses them, and
/// guest and host have agreed on it.
pub fn reporting_balloons(roots: &Roots) -> Vec<String> {
    const DEVICES: &str = "/sys/bus/virtio/devices";
    let line = |name: &str, file: &str| roots.line(format!("{DEVICES}/{name}/{file}"));
    let reports = |name: &String| {
        line(name, "device").as_deref() == Some(BALLOON)
            && roots.exists(format!("{DEVICES}/{name}/driver"))
            // One character a feature, the first for bit 0.
            && line(name, "features").is_some_and(|features| features.as_bytes().get(REPORTING) == Some(&b'1'))
    };
    roots.names(DEVICES).into_iter().filter(reports).collect()
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
        assert_eq!(reporting_balloons(&t.roots), ["virtio1"]);
        assert!(reporting_balloons(&tree(&[]).roots).is_empty());
    }
}
