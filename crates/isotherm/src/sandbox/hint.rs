//! What `hint host` and `hint guest` need.

use super::LOOKS_INTO_PROCESSES;
use isotherm_hint::guest::Address;
use isotherm_linux::confine::{Calls, CapabilitySet, Files, Needs};
use isotherm_linux::guestmem::{COMPACT_FILE, OVERCOMMIT_FILE};

/// The host side. `pauses`: guests are paused, to look for zeros.
pub fn host(pauses: bool) -> Needs {
    // VMMs run as users of their own: their sockets and memory files belong to them, and what they have mapped is
    // reported to CAP_CHECKPOINT_RESTORE only.
    let needs = Needs::new(Files::Any(LOOKS_INTO_PROCESSES))
        .capabilities(CapabilitySet::SYS_PTRACE | CapabilitySet::DAC_OVERRIDE | CapabilitySet::CHECKPOINT_RESTORE)
        .calls([Calls::Serve, Calls::ConnectHere, Calls::Processes, Calls::Punch]);
    if pauses { needs.capabilities(CapabilitySet::SYS_NICE) } else { needs }
}

/// The agent in a guest, which reports to `address`. `compacts`: it may ask the kernel to put free memory together.
pub fn guest(address: &Address, compacts: bool) -> Needs {
    // What it changes: which memory blocks are online and what may be mapped meanwhile, how many huge pages there may be, and its ledger.
    let mut write = vec![
        "/sys/devices/system/memory".into(),
        OVERCOMMIT_FILE.into(),
        "/sys/kernel/mm/hugepages/hugepages-2048kB".into(),
    ];
    write.extend(compacts.then(|| COMPACT_FILE.into()));
    let mut read = vec!["/proc".into(), "/sys".into(), "/dev/urandom".into()];
    let own = vec!["/run/isotherm/hint-guest".into()];
    let mut calls = vec![Calls::Segments, Calls::Fork];
    // Huge pages in shared memory segments.
    let mut capabilities = CapabilitySet::IPC_LOCK;
    match address {
        // A port that is plugged in later is a new device.
        Address::NamedPort | Address::Port(_) => write.push("/dev".into()),
        Address::Vsock(..) => {
            calls.push(Calls::ConnectAway);
            // Each connection comes from a port that no unprivileged user of the guest can have.
            capabilities |= CapabilitySet::NET_BIND_SERVICE;
        }
        // Names of hosts are looked up anew with each connection, through files that are replaced now and then.
        Address::Tcp(_) => {
            read.extend(["/etc", "/run/systemd/resolve", "/run/NetworkManager", "/run/resolvconf"].map(Into::into));
            calls.push(Calls::ConnectAway);
        }
        Address::Unix(_) => calls.push(Calls::ConnectHere),
    }
    Needs::new(Files::Only { read, write, own }).capabilities(capabilities).calls(calls)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::guard;
    use isotherm_linux::confine::names;
    use isotherm_linux::guard::Purpose;
    use std::path::Path;

    #[test]
    fn the_host_may_change_its_priority_only_where_it_pauses() {
        let more = host(true).wanted_capabilities().difference(host(false).wanted_capabilities());
        assert_eq!(more, CapabilitySet::SYS_NICE);
        assert!(!host(true).wanted_capabilities().contains(CapabilitySet::KILL));
        for calls in [Calls::ConnectAway, Calls::Inject, Calls::RunBpf, Calls::Fork, Calls::Advise] {
            assert!(!host(true).wanted_calls().contains(&calls), "{calls:?}");
        }
    }

    #[test]
    fn the_agent_has_one_capability_more_for_vsock_and_writes_to_few_places() {
        for (address, more) in [
            ("vsock:2:7482", CapabilitySet::NET_BIND_SERVICE),
            ("tcp:host:7482", CapabilitySet::empty()),
            ("unix:/run/x.sock", CapabilitySet::empty()),
        ] {
            let needs = guest(&address.parse().unwrap(), false);
            assert_eq!(needs.wanted_capabilities(), CapabilitySet::IPC_LOCK | more, "{address}");
            let Files::Only { write, .. } = needs.files() else { panic!("all files") };
            assert!(
                write.iter().all(|path| path.starts_with("/sys") || path == Path::new(OVERCOMMIT_FILE)),
                "{write:?}"
            );
        }
        let Files::Only { write, .. } = guest(&Address::NamedPort, true).files().clone() else { panic!("all files") };
        assert!(write.contains(&COMPACT_FILE.into()) && !write.contains(&"/proc/sys".into()), "{write:?}");
        let port = guest(&Address::NamedPort, true);
        assert!(!port.wanted_calls().contains(&Calls::ConnectAway));
        assert!(!port.wanted_calls().contains(&Calls::ConnectHere));
    }

    /// The words of all lines of a unit with this key.
    fn words(unit: &str, key: &str) -> Vec<String> {
        let path = format!("{}/../../dist/{unit}.service", env!("CARGO_MANIFEST_DIR"));
        let unit = std::fs::read_to_string(path).unwrap();
        let values = unit.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        values.flat_map(str::split_whitespace).map(str::to_owned).collect()
    }

    #[test]
    fn the_unit_lets_the_guard_pause_guests() {
        let pauses = guard::needs(Purpose::Processes).wanted_calls().contains(&Calls::Pause);
        // It is in none of systemd's groups that services usually have.
        assert!(pauses && words("isotherm-hint-host", "SystemCallFilter").contains(&"ptrace".to_owned()));
    }

    #[test]
    fn the_units_leave_the_capabilities_that_are_declared() {
        let vsock = guest(&"vsock:2:7482".parse().unwrap(), true).wanted_capabilities();
        for (unit, wanted) in [("isotherm-hint-host", host(true).wanted_capabilities()), ("isotherm-hint-guest", vsock)]
        {
            let left = words(unit, "CapabilityBoundingSet");
            let missing: Vec<String> = names(wanted).into_iter().filter(|name| !left.contains(name)).collect();
            assert!(missing.is_empty(), "{unit}: {missing:?}");
        }
    }
}
