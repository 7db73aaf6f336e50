use super::*;
use isotherm_core::addr::{AddrRange, TABLE_SPAN};
use isotherm_core::bits::{TableBits, Window};
use isotherm_core::mapping::Mapping;
use isotherm_core::source::{Clear, Cost, SourceError};
use isotherm_core::target::TargetInfo;
use std::os::unix::fs::PermissionsExt;

/// Knows of one target.
#[derive(Default)]
struct One(Option<PageHistory>);

impl AccessSource for One {
    fn name(&self) -> &'static str {
        "one"
    }

    fn poll_targets(&mut self) -> Result<Vec<TargetInfo>, SourceError> {
        Ok(Vec::new())
    }

    fn mappings(&mut self, _: TargetId, _: &mut Vec<Mapping>) -> Result<(), SourceError> {
        Ok(())
    }

    fn arm(&mut self, _: TargetId, _: &mut [Window]) -> Result<(), SourceError> {
        Ok(())
    }

    fn look(&mut self, _: TargetId, _: &mut [Window]) -> Result<(), SourceError> {
        Ok(())
    }

    fn scan(
        &mut self,
        _: TargetId,
        _: &[AddrRange],
        _: Clear<'_>,
        _: &mut dyn FnMut(&TableBits),
    ) -> Result<(), SourceError> {
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::default()
    }

    fn page_history(&self, _: TargetId) -> Option<&PageHistory> {
        self.0.as_ref()
    }

    fn continue_history(&mut self, _: TargetId, history: PageHistory) {
        self.0 = Some(history);
    }
}

fn watched() -> PageHistory {
    let now_ns = monotonic_ns();
    let mut history = PageHistory::new(now_ns);
    history.begin_walk(&[AddrRange::new(0, TABLE_SPAN)], now_ns);
    history.take(&TableBits { present: [u64::MAX; 8], ..TableBits::empty(0) });
    history.end_walk(now_ns);
    history
}

/// Another process, once it is the program that it is to be.
fn sleeper() -> std::process::Child {
    let child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    while Identity::of(child.id()).is_none() {
        std::thread::yield_now();
    }
    child
}

fn found(kept: &mut Kept, pid: u32) {
    kept.event(&Event::Target(TargetInfo { target: 0, pid: Some(pid), name: String::new() }));
}

/// A node in `folder` that watches this process, and keeps what it knows.
fn one_run(folder: &Path) {
    let mut kept = Kept::open_in(folder.to_owned()).unwrap();
    let mut source = One(Some(watched()));
    found(&mut kept, std::process::id());
    kept.recognize(&mut source);
    kept.write(&mut source);
}

/// What the next one knows of `pid`.
fn next_run(folder: &Path, pid: u32) -> Option<PageHistory> {
    let mut kept = Kept::open_in(folder.to_owned()).unwrap();
    assert!(!kept_history::file(folder).exists(), "what was taken is gone");
    let mut source = One::default();
    found(&mut kept, pid);
    kept.recognize(&mut source);
    source.0
}

#[test]
fn the_same_process_is_known_again_once() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    one_run(folder);
    let mode = std::fs::metadata(kept_history::file(folder)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let history = next_run(folder, std::process::id()).unwrap();
    assert_eq!(history.total().resident, 512);
    assert!(next_run(folder, std::process::id()).is_none(), "bits were cleared since");
    one_run(folder);
    // Another process, as far as the number goes.
    let mut child = sleeper();
    let other = next_run(folder, child.id());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(other.is_none());
}

#[test]
fn who_watches_a_part_keeps_what_is_known_of_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    one_run(folder);
    let since_ns = read(&kept_history::file(folder)).unwrap().since_ns;
    // Only another process is watched.
    let mut child = sleeper();
    let mut kept = Kept::open_in(folder.to_owned()).unwrap();
    let mut source = One(Some(watched()));
    found(&mut kept, child.id());
    kept.recognize(&mut source);
    assert!(kept.since_ns() > since_ns, "of what it watches nothing was known");
    kept.write(&mut source);
    let file = read(&kept_history::file(folder)).unwrap();
    let mut pids: Vec<u32> = file.histories.keys().map(|identity| identity.pid).collect();
    pids.sort_unstable();
    let mut both = [std::process::id(), child.id()];
    both.sort_unstable();
    assert_eq!((pids, file.since_ns), (both.to_vec(), since_ns));
    child.kill().unwrap();
    child.wait().unwrap();
    // What is watched later, too, goes on, and is not kept as it was.
    let mut kept = Kept::open_in(folder.to_owned()).unwrap();
    let mut source = One::default();
    kept.recognize(&mut source);
    assert!(source.0.is_none());
    found(&mut kept, std::process::id());
    kept.recognize(&mut source);
    assert!(source.0.take().is_some());
    kept.write(&mut source);
    assert!(read(&kept_history::file(folder)).unwrap().histories.is_empty());
}

#[test]
fn what_somebody_has_looked_at_meanwhile_is_not_handed_on() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    one_run(folder);
    // A node of other processes, beside which somebody looks at pages.
    let kept = Kept::open_in(folder.to_owned()).unwrap();
    kept_history::void_in(folder);
    kept.write(&mut One::default());
    assert!(read(&kept_history::file(folder)).unwrap().histories.is_empty(), "its bits may have been cleared");
    // Nor does it go on with that itself, should it come to watch the process.
    one_run(folder);
    let mut kept = Kept::open_in(folder.to_owned()).unwrap();
    let mut source = One::default();
    kept.recognize(&mut source);
    kept_history::void_in(folder);
    found(&mut kept, std::process::id());
    kept.recognize(&mut source);
    assert!(source.0.is_none());
    drop(kept);
    // What was told before a node kept anything is of no matter.
    one_run(folder);
    Kept::open_in(folder.to_owned()).unwrap().write(&mut One::default());
    assert!(next_run(folder, std::process::id()).is_some());
}

#[test]
fn what_is_damaged_foreign_or_open_to_others_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    one_run(folder);
    let path = kept_history::file(folder);
    let whole = std::fs::read(&path).unwrap();
    let mut plain = Vec::new();
    GzDecoder::new(&whole[..]).read_to_end(&mut plain).unwrap();
    let put = |bytes: &[u8], mode| {
        std::fs::write(&path, bytes).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
    };
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x40;
        put(&bytes, 0o600);
        // Some bits say nothing: a time in the header, what fills the last byte of the packed data.
        let mut unpacked = Vec::new();
        let same = GzDecoder::new(&bytes[..]).read_to_end(&mut unpacked).is_ok() && unpacked == plain;
        assert_eq!(read(&path).is_ok(), same, "byte {at}");
        put(&whole[..at], 0o600);
        assert!(read(&path).is_err(), "cut off at {at}");
    }
    put(&whole, 0o644);
    assert!(read(&path).unwrap_err().to_string().contains("chmod 600"));
    put(&whole, 0o600);
    assert!(read(&path).is_ok());
    let packed = |bytes: &[u8]| {
        let mut out = GzEncoder::new(Vec::new(), Compression::fast());
        out.write_all(bytes).unwrap();
        out.finish().unwrap()
    };
    for (at, why) in [(0, "not of this version"), (8, "another boot"), (24, "namespace"), (32, "namespace")] {
        let mut other = plain.clone();
        other[at] ^= 1;
        put(&packed(&other), 0o600);
        let error = read(&path).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    put(b"nonsense", 0o600);
    assert!(next_run(folder, std::process::id()).is_none());
}

#[test]
fn a_second_node_in_the_same_folder_goes_without() {
    let folder = tempfile::tempdir().unwrap();
    let lock = FolderLock::take(folder.path(), Duration::ZERO).unwrap();
    assert!(Kept::open_in(folder.path().to_owned()).is_none());
    drop(lock);
    assert!(Kept::open_in(folder.path().to_owned()).is_some());
}
