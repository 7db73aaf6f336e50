//! The host side's status as metrics.

use super::status::HostStatus;
use isotherm_core::figure::{FigureKind, Value};
use isotherm_daemon::openmetrics::{Exposition, Family, Labels};
use isotherm_daemon::service::Status;
use isotherm_hint::host::status::GuestStatus;

/// What the names of a guest's metrics begin with.
const PREFIX: &str = "hint_guest_";

impl Status for HostStatus {
    fn write_metrics(&self, out: &mut Exposition) {
        self.instance.write_metrics(out);
        let labels = |guest: &GuestStatus| -> Labels {
            let pid = guest.pid.map(|pid| pid.to_string()).unwrap_or_default();
            vec![("guest", guest.name.clone()), ("pid", pid)]
        };
        let guests: Vec<_> = self.guests.iter().map(|guest| (labels(guest), guest)).collect();
        out.figures(PREFIX, &guests);
        let scans: Vec<_> = self.guests.iter().filter_map(|g| Some((labels(g), g.scan.as_ref()?))).collect();
        out.figures(PREFIX, &scans);
        let problem = Family {
            name: "hint_guest_problem",
            kind: FigureKind::Gauge,
            unit: "",
            help: "1 while something is in the way; `isotherm hint status` says what.",
        };
        let has_problem = |guest: &GuestStatus| Some(Value::Whole(guest.problem.is_some().into()));
        out.family(&problem, guests.iter().map(|(labels, guest)| (labels, has_problem(guest))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_daemon::instance::Instance;
    use isotherm_daemon::openmetrics_check::checked;
    use isotherm_hint::host::status::ScanStatus;

    #[test]
    fn it_keeps_to_the_format_and_leaves_out_what_is_not_known() {
        let scan = ScanStatus { pauses: 3, paused_ns: 2_500_000_000, ..ScanStatus::default() };
        let one = GuestStatus {
            name: "vm\"1".into(),
            pid: Some(7),
            ram: Some(1 << 30),
            returned: 4096,
            scan: Some(scan),
            ..GuestStatus::default()
        };
        let two = GuestStatus { name: "vm2".into(), problem: Some("gone".into()), ..GuestStatus::default() };
        let status =
            HostStatus { instance: Instance::default(), listening: Vec::new(), problem: None, guests: vec![one, two] };
        let mut out = Exposition::default();
        status.write_metrics(&mut out);
        let samples = checked(&out.finish());
        let at = |name: &str, labels: &str| samples.get(&format!("isotherm_hint_guest_{name}{{{labels}}}")).copied();
        let (one, two) = ("guest=\"vm\\\"1\",pid=\"7\"", "guest=\"vm2\",pid=\"\"");
        assert_eq!((at("ram_bytes", one), at("ram_bytes", two)), (Some(1_073_741_824.0), None));
        assert_eq!((at("returned_bytes_total", one), at("returned_bytes_total", two)), (Some(4096.0), Some(0.0)));
        assert_eq!((at("scan_paused_seconds_total", one), at("scans_total", two)), (Some(2.5), None));
        assert_eq!((at("problem", one), at("problem", two)), (Some(0.0), Some(1.0)));
        assert_eq!(at("rate_bytes_per_second", one), Some(0.0));
    }
}
