//! Swap on a compressed memory device of the test's own.

use isotherm_linux::folder_lock::FolderLock;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// A swap device; gone again when dropped, with what was in it brought back to memory.
#[derive(Debug)]
pub struct ZramSwap {
    number: u32,
    on: bool,
    /// One at a time on the machine: switching one off brings back what another test has just paged out to it.
    _turn: FolderLock,
}

/// Waits until no test has swap; none gets any while this is held.
pub fn turn() -> FolderLock {
    let path = std::env::temp_dir().join("isotherm-test-swap.lock");
    File::create(&path).unwrap();
    FolderLock::take(&path, Duration::from_secs(600)).unwrap()
}

impl ZramSwap {
    /// Sets one up with the highest priority; `None` (said on stderr) where the kernel has no zram.
    pub fn new(size: u64) -> Option<Self> {
        let turn = turn();
        let Ok(text) = fs::read_to_string("/sys/class/zram-control/hot_add") else {
            eprintln!("skipped: no zram here");
            return None;
        };
        let mut swap = Self { number: text.trim().parse().expect("zram gives a number"), on: false, _turn: turn };
        let device = swap.device();
        fs::write(format!("/sys/block/zram{}/disksize", swap.number), size.to_string()).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while !device.exists() {
            assert!(Instant::now() < deadline, "{} does not come", device.display());
            std::thread::sleep(Duration::from_millis(2));
        }
        run(Command::new("mkswap").arg(&device));
        run(Command::new("swapon").args(["-p", "32767"]).arg(&device));
        swap.on = true;
        Some(swap)
    }

    fn device(&self) -> PathBuf {
        format!("/dev/zram{}", self.number).into()
    }
}

fn run(command: &mut Command) {
    let done = command.output().expect("mkswap and swapon are installed");
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
}

impl Drop for ZramSwap {
    fn drop(&mut self) {
        // A failing drop must not hide why the test failed.
        if self.on {
            let _ = Command::new("swapoff").arg(self.device()).status();
        }
        // The device node's opener (a device manager) may need a moment to let go.
        for _ in 0..100 {
            let _ = fs::write(format!("/sys/block/zram{}/reset", self.number), "1");
            if fs::write("/sys/class/zram-control/hot_remove", self.number.to_string()).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        eprintln!("zram{} could not be removed", self.number);
    }
}
