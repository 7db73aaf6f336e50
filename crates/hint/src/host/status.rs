//! How things stand, for people who ask.

use isotherm_core::figures;
use serde::{Deserialize, Serialize};

figures! {
    /// A guest, as the host sees it.
    #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct GuestStatus {
        connected: bool = Gauge Count, "1 while an agent is connected and welcome.";
        ram: Option<u64> = Gauge Bytes, "Memory of a guest.";
        resident: Option<u64> = Gauge Bytes, "Of that in the host's memory or swap.";
        dropped: u64 = Counter Bytes, "Memory that was reported free and dropped.";
        returned: u64 = Counter Bytes, "What that gave back to the host, as far as measured.";
        rate: u64 = Gauge BytesPerSecond, "Bytes dropped a second, over the last ten seconds.";
        reports: u64 = Counter Count, "Reports acted upon.";
        refused: u64 = Counter Count, "Ranges refused: not a guest's to report.";
        put_off: u64 = Counter Count, "Ranges put off for the limit of --rate, or of holes a second.";
        welcomes: u64 = Counter Count, "Connections welcomed.";
        closed: u64 = Counter Count, "Connections closed for what came over them.";
        forged: u64 = Counter Count, "Connections closed for frames that somebody without the key had changed or sent.";
        guest_free: Option<u64> = Gauge Bytes as "free", "Free in a guest by its own account.";
        guest_isolated: Option<u64> = Gauge Bytes as "isolated", "Isolated in a guest by its own account.";
    }
    and {
        /// What it is called.
        name: String;
        /// Its VMM; `null` while that is not known.
        pid: Option<u32>;
        /// What the agent calls itself.
        agent: Option<String>;
        /// The scans for zeros.
        scan: Option<ScanStatus>;
        /// Why nothing is done, or what went wrong last.
        problem: Option<String>;
    }
}

figures! {
    /// Scans for zeros in a guest without an agent.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct ScanStatus {
        scans: u64 = Counter Count, "Scans for zeros.";
        read: u64 = Counter Bytes as "scan_read", "Memory read in scans.";
        dropped: u64 = Counter Bytes as "scan_dropped", "Zeros found in scans and dropped.";
        pauses: u64 = Counter Count as "scan_pauses", "Times that a guest was paused for a scan.";
        longest_pause_ns: u64 = Gauge Nanoseconds as "scan_longest_pause", "The longest of these pauses.";
        paused_ns: u64 = Counter Nanoseconds as "scan_paused", "All these pauses together.";
        took_ns: u64 = Gauge Nanoseconds as "scan_last", "How long the last scan took.";
    }
}
