use super::*;
use crate::host::test_vmm::{RAM, TestVmm};
use std::process::Command;
use std::sync::Arc;

/// Scans a VMM whose memory is zero; `within`: what a shell does while it is paused (`$1`: its pid).
fn scanned(vmm: &TestVmm, within: &str) -> Result<u64, ScanError> {
    let script = format!(
        "echo ready; while read what pid rest; do if [ $what = pause ]; then set -- {}; {within}; echo still x; fi; done",
        vmm.pid()
    );
    let config = ScanConfig {
        every: Duration::from_secs(60),
        pause: Duration::from_millis(2),
        guard: Mutex::new(Guard::run(Command::new("sh").args(["-c", &script])).unwrap()),
    };
    let guest = vmm.guest(Arc::default()).unwrap();
    scan(&guest, &config, &AtomicBool::new(false))
}

#[test]
fn what_a_vmm_has_asked_the_kernel_for_goes_on_within_a_pause() {
    let waits = TestVmm::start(0, false);
    assert_eq!(scanned(&waits, "true").unwrap(), RAM);
    assert_eq!(waits.resident(), 0);
    let submits = TestVmm::start(0, true);
    let error = scanned(&submits, "true").unwrap_err();
    assert!(matches!(error, ScanError::AsyncIo { how: AsyncIo::Aio, .. }), "{error}");
    assert!(error.to_string().contains("aio=threads"), "{error}");
    assert_eq!(submits.resident(), RAM);
}

#[test]
fn it_is_looked_for_again_within_each_pause() {
    let vmm = TestVmm::start(0, false);
    // A drive is plugged in just before the pause.
    let plug = "kill -s USR1 $1; until grep -q '/\\[aio\\]' /proc/$1/maps; do sleep 0.01; done";
    let error = scanned(&vmm, plug).unwrap_err();
    assert!(matches!(error, ScanError::AsyncIo { .. }), "{error}");
    assert_eq!(vmm.resident(), RAM);
}
