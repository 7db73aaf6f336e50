//! Bodies for fuzzers and damage tests: each takes bytes from anywhere and panics if a promise of the files is broken.

use crate::admin::Admin;
use crate::errno::Errno;
use crate::files::{Combined, Files};
use crate::kdamond::{Kdamond, Observer, Starter, Stopper};
use crate::modules::{Module, Which};
use crate::refused::Refused;
use crate::scheme::Goals;
use crate::settings::Settings;
use crate::tree::{Inode, ROOT, Tree};
use isotherm_core::attrs::MonitorAttrs;
use isotherm_core::scheme::stats::SchemeStats;
use isotherm_core::snapshot::RegionInfo;
use std::sync::Arc;

/// Monitors nothing. Refuses what has three schemes or goals for five, and answers nothing about two.
struct Nothing {
    running: bool,
    schemes: usize,
}

struct Start;

impl Starter for Start {
    fn start(&self, _: &str, settings: Settings, _: Option<Observer>) -> Result<Box<dyn Kdamond>, Refused> {
        let schemes = taken(settings.schemes.len())?;
        Ok(Box::new(Nothing { running: true, schemes }))
    }
}

impl Kdamond for Nothing {
    fn is_running(&self) -> bool {
        self.running
    }

    fn tid(&self) -> i32 {
        1
    }

    fn stopper(&self) -> Stopper {
        // No request of it waits.
        Arc::new(|| {})
    }

    fn stop(&mut self) {
        self.running = false;
    }

    fn commit(&mut self, settings: Settings) -> Result<(), Refused> {
        self.schemes = taken(settings.schemes.len())?;
        Ok(())
    }

    fn commit_goals(&mut self, goals: Vec<Goals>) -> Result<(), Refused> {
        if goals.len() == 5 { Err(Refused::new("five")) } else { Ok(()) }
    }

    fn stats(&mut self) -> Result<Vec<SchemeStats>, Refused> {
        if self.schemes == 2 {
            // Also ends meanwhile, as targets do.
            self.running = false;
            return Err(Refused::new("it has ended"));
        }
        Ok(vec![SchemeStats::default(); self.schemes])
    }

    fn tried(&mut self) -> Result<Vec<Vec<RegionInfo>>, Refused> {
        let region = RegionInfo { start: 0, end: 4096, nr_accesses: 1, age: 1, evidence: None, accessed: None };
        Ok(vec![vec![region; 3]; self.schemes])
    }

    fn attrs(&mut self) -> Result<MonitorAttrs, Refused> {
        Ok(MonitorAttrs::default())
    }
}

fn taken(schemes: usize) -> Result<usize, Refused> {
    if schemes == 3 { Err(Refused::new("three")) } else { Ok(schemes) }
}

/// Lines are operations: `path text` writes, `path` alone reads.
pub fn operations(bytes: &[u8]) {
    let mut files = Combined::new();
    let admin = files.add(Arc::new(Admin::new(Tree::damon(), Box::new(Start))));
    files.place("damon", admin, ROOT);
    for which in Which::ALL {
        let module = files.add(Arc::new(Module::new(which, Box::new(Start))));
        files.place(which.name(), module, ROOT);
    }
    // Thousands of folders for each line are neither interesting nor fast.
    for line in bytes.split(|&b| b == b'\n').take(100) {
        let path = line.split(|&b| b == b' ').next().unwrap_or_default();
        let text = line.get(path.len() + 1..);
        let Ok(inode) = find(&files, &String::from_utf8_lossy(path)) else { continue };
        match text {
            // A million folders are allowed, but looking through them takes too long.
            Some(text) if is_count(path) && text.len() > 3 => {}
            Some(text) => {
                if let Ok(taken) = files.write(inode, text) {
                    assert!(taken <= text.len() && (taken > 0 || text.is_empty()));
                }
            }
            None => drop(files.read(inode)),
        }
    }
    check(&files, ROOT, ROOT);
    files.stop();
}

fn is_count(path: &[u8]) -> bool {
    path.rsplit(|&b| b == b'/').next().is_some_and(|name| name.starts_with(b"nr_"))
}

fn find(files: &Combined, path: &str) -> Result<Inode, Errno> {
    path.split('/').filter(|name| !name.is_empty()).try_fold(ROOT, |at, name| files.lookup(at, name))
}

/// Every folder leads back to the one that it is in and has as many numbered ones as it says; every file can be read that
/// its mode says.
fn check(files: &Combined, at: Inode, parent: Inode) {
    assert_eq!(files.lookup(at, ".."), Ok(parent));
    let listed = files.list(at).expect("is a folder");
    let numbered = listed.iter().filter(|entry| entry.name.parse::<usize>().is_ok()).count();
    for entry in &listed {
        assert_eq!(files.lookup(at, &entry.name), Ok(entry.inode));
        let attr = files.attr(entry.inode).expect("is there");
        assert_eq!(attr.folders.is_some(), entry.is_folder);
        if entry.is_folder {
            check(files, entry.inode, at);
            continue;
        }
        let text = files.read(entry.inode);
        if attr.mode & 0o444 != 0 {
            let text = text.expect("can be read");
            assert!(text.ends_with(b"\n") && text.len() <= 4096, "{}", entry.name);
            if entry.name.starts_with("nr_") && numbered > 0 && listed.iter().filter(|e| !e.is_folder).count() == 1 {
                assert_eq!(text, format!("{numbered}\n").into_bytes(), "{}", entry.name);
            }
        }
    }
}
