//! The host side's status as OpenMetrics text.

use crate::control::openmetrics::{END, Family, Kind, Labels, Value, seconds};
use isotherm_hint::host::status::{GuestStatus, HostStatus, ScanStatus};

/// A figure of a guest: kind, name, unit, help, and where it comes from. What is not known has no sample.
struct Figure {
    kind: Kind,
    name: &'static str,
    unit: &'static str,
    help: &'static str,
    of: fn(&GuestStatus) -> Option<Value>,
}

const fn figure(
    kind: Kind,
    name: &'static str,
    unit: &'static str,
    help: &'static str,
    of: fn(&GuestStatus) -> Option<Value>,
) -> Figure {
    Figure { kind, name, unit, help, of }
}

fn whole(n: impl Into<Option<u64>>) -> Option<Value> {
    n.into().map(Value::Whole)
}

fn of_scan(guest: &GuestStatus, of: fn(&ScanStatus) -> Value) -> Option<Value> {
    guest.scan.as_ref().map(of)
}

const FIGURES: &[Figure] = {
    use Kind::{Counter, Gauge};
    &[
        figure(Gauge, "connected", "", "1 while an agent is connected and welcome.", |g| whole(u64::from(g.connected))),
        figure(Gauge, "problem", "", "1 while something is in the way; `isotherm hint status` says what.", |g| {
            whole(u64::from(g.problem.is_some()))
        }),
        figure(Gauge, "ram", "bytes", "Memory of a guest.", |g| whole(g.ram)),
        figure(Gauge, "resident", "bytes", "Of that in the host's memory or swap.", |g| whole(g.resident)),
        figure(Counter, "dropped", "bytes", "Memory that was reported free and dropped.", |g| whole(g.dropped)),
        figure(Counter, "returned", "bytes", "What that gave back to the host, as far as measured.", |g| {
            whole(g.returned)
        }),
        figure(Gauge, "rate", "bytes_per_second", "Bytes dropped a second, over the last ten seconds.", |g| {
            whole(g.rate)
        }),
        figure(Counter, "reports", "", "Reports acted upon.", |g| whole(g.reports)),
        figure(Counter, "refused", "", "Ranges refused: not a guest's to report.", |g| whole(g.refused)),
        figure(Counter, "put_off", "", "Ranges put off for the limit of --rate.", |g| whole(g.put_off)),
        figure(Counter, "welcomes", "", "Connections welcomed.", |g| whole(g.welcomes)),
        figure(Counter, "closed", "", "Connections closed for what came over them.", |g| whole(g.closed)),
        figure(Gauge, "free", "bytes", "Free in a guest by its own account.", |g| whole(g.guest_free)),
        figure(Gauge, "isolated", "bytes", "Isolated in a guest by its own account.", |g| whole(g.guest_isolated)),
        figure(Counter, "scans", "", "Scans for zeros.", |g| of_scan(g, |s| Value::Whole(s.scans))),
        figure(Counter, "scan_read", "bytes", "Memory read in scans.", |g| of_scan(g, |s| Value::Whole(s.read))),
        figure(Counter, "scan_dropped", "bytes", "Zeros found in scans and dropped.", |g| {
            of_scan(g, |s| Value::Whole(s.dropped))
        }),
        figure(Counter, "scan_pauses", "", "Times that a guest was paused for a scan.", |g| {
            of_scan(g, |s| Value::Whole(s.pauses))
        }),
        figure(Counter, "scan_paused", "seconds", "All these pauses together.", |g| {
            of_scan(g, |s| Value::Real(seconds(s.paused_ns)))
        }),
        figure(Gauge, "scan_longest_pause", "seconds", "The longest of these pauses.", |g| {
            of_scan(g, |s| Value::Real(seconds(s.longest_pause_ns)))
        }),
        figure(Gauge, "scan_last", "seconds", "How long the last scan took.", |g| {
            of_scan(g, |s| Value::Real(seconds(s.took_ns)))
        }),
    ]
};

pub fn write(status: &HostStatus) -> String {
    let mut text = String::with_capacity(8 << 10);
    let out = &mut text;
    Family::new(out, Kind::Info, "", "", "Which Isotherm this is.").add(&vec![("version", &status.version)], 1u64);
    Family::new(out, Kind::Gauge, "_uptime", "seconds", "For how long it has run.")
        .add(&Labels::new(), seconds(status.uptime_ns));
    let pids: Vec<String> =
        status.guests.iter().map(|guest| guest.pid.map(|pid| pid.to_string()).unwrap_or_default()).collect();
    for figure in FIGURES {
        let mut family =
            Family::new(out, figure.kind, &format!("_hint_guest_{}", figure.name), figure.unit, figure.help);
        for (guest, pid) in status.guests.iter().zip(&pids) {
            family.add_known(&vec![("guest", &guest.name), ("pid", pid)], (figure.of)(guest));
        }
    }
    text.push_str(END);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::openmetrics::checked;

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
            HostStatus { version: "1".into(), pid: 1, uptime_ns: 1, listening: Vec::new(), guests: vec![one, two] };
        let samples = checked(&write(&status));
        let at = |name: &str, labels: &str| samples.get(&format!("isotherm_hint_guest_{name}{{{labels}}}")).copied();
        let (one, two) = ("guest=\"vm\\\"1\",pid=\"7\"", "guest=\"vm2\",pid=\"\"");
        assert_eq!((at("ram_bytes", one), at("ram_bytes", two)), (Some(1_073_741_824.0), None));
        assert_eq!((at("returned_bytes_total", one), at("returned_bytes_total", two)), (Some(4096.0), Some(0.0)));
        assert_eq!((at("scan_paused_seconds_total", one), at("scans_total", two)), (Some(2.5), None));
        assert_eq!((at("problem", one), at("problem", two)), (Some(0.0), Some(1.0)));
        assert_eq!(at("rate_bytes_per_second", one), Some(0.0));
    }
}
