//! How things stand, for people who ask.

use serde::{Deserialize, Serialize};

/// Of the whole host side.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HostStatus {
    pub version: String,
    pub pid: u32,
    /// How long it has run, ns.
    pub uptime_ns: u64,
    pub listening: Vec<String>,
    /// The guests, those named on the command line first.
    pub guests: Vec<GuestStatus>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestStatus {
    /// What it is called.
    pub name: String,
    /// Its VMM; `null` while that is not known.
    pub pid: Option<u32>,
    /// Whether an agent is connected and welcome.
    pub connected: bool,
    /// What the agent calls itself.
    pub agent: Option<String>,
    /// Its memory, bytes.
    pub ram: Option<u64>,
    /// Of that in the host's memory or swap, bytes.
    pub resident: Option<u64>,
    /// Ranges dropped so far, bytes.
    pub dropped: u64,
    /// What that gave back to the host, as far as could be measured, bytes.
    pub returned: u64,
    /// Bytes dropped a second, over the last ten seconds.
    pub rate: u64,
    pub reports: u64,
    pub refused: u64,
    pub put_off: u64,
    pub welcomes: u64,
    /// Connections that we closed for what they said.
    pub closed: u64,
    /// Free in the guest by its own account, bytes.
    pub guest_free: Option<u64>,
    /// Isolated in the guest by its own account, bytes.
    pub guest_isolated: Option<u64>,
    /// The last scan for zeros.
    pub scan: Option<ScanStatus>,
    /// Why nothing is done, or what went wrong last.
    pub problem: Option<String>,
}

/// Of scans for zeros.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanStatus {
    pub scans: u64,
    /// Bytes read, in all of them.
    pub read: u64,
    /// Bytes dropped, in all of them.
    pub dropped: u64,
    /// Times that the guest was paused.
    pub pauses: u64,
    /// The longest pause, ns.
    pub longest_pause_ns: u64,
    /// All pauses together, ns.
    pub paused_ns: u64,
    /// The last scan took this long, ns.
    pub took_ns: u64,
}
