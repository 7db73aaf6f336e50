//! The page history of all processes, kept while the node is restarted.
//!
//! It is written once, when the node ends in good order, and removed when the next one has read it. A node that was
//! killed leaves none: it would have cleared bits since it was written, and pages that were accessed before that would
//! be taken to be idle.

use crate::kept_history;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use isotherm_core::event::Event;
use isotherm_core::history::pages::PageHistory;
use isotherm_core::history::stored;
use isotherm_core::source::AccessSource;
use isotherm_core::target::{TargetEnd, TargetId};
use isotherm_core::units::{format_size, format_time};
use isotherm_files::private_file::{self, PrivateFileError};
use isotherm_linux::clock::monotonic_ns;
use isotherm_linux::folder_lock::FolderLock;
use isotherm_linux::proc::ProcessDir;
use isotherm_linux::proc::stat::Stat;
use isotherm_linux::roots::Roots;
use std::collections::{BTreeMap, HashMap};
use std::fs::{DirBuilder, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

const MAGIC: &[u8; 8] = b"ISONODE1";
/// How long a node that is just ending may take to write.
const PATIENCE: Duration = Duration::from_secs(10);
/// Larger files are not ours: a byte a page would be 4 TiB of memory that does not compress.
const MOST_BYTES: u64 = 1 << 30;

/// Why what was kept cannot be used.
#[derive(Debug, thiserror::Error)]
enum KeptError {
    #[error(transparent)]
    File(#[from] PrivateFileError),
    #[error("{0}")]
    Damaged(io::Error),
    #[error("it is not of this version of isotherm, or is damaged")]
    Foreign,
    #[error("it is of another boot of this machine, or of another pid or time namespace")]
    ElsewhereWritten,
}

/// What tells a process and its program from all others of this boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Identity {
    pid: u32,
    start_ticks: u64,
    image: (u64, u64),
}

impl Identity {
    /// `None`: it has exited, or is not ours to look into.
    fn of(pid: u32) -> Option<Self> {
        let stat = Stat::read(&ProcessDir::live(pid)).ok()?;
        (stat.image.0 != 0).then_some(Self { pid, start_ticks: stat.start_ticks, image: stat.image })
    }

    /// Whether the process still runs this program.
    fn is_running(&self) -> bool {
        Self::of(self.pid) == Some(*self)
    }
}

/// What times and process numbers of this process refer to: boot, pid namespace and time namespace.
fn scene() -> Option<[u64; 4]> {
    let boot = Roots::system().line("/proc/sys/kernel/random/boot_id")?;
    let boot = u128::from_str_radix(&boot.replace('-', ""), 16).ok()?;
    let namespace = |name| std::fs::metadata(format!("/proc/self/ns/{name}")).map_or(0, |meta| meta.ino());
    Some([(boot >> 64) as u64, boot as u64, namespace("pid"), namespace("time")])
}

/// What an earlier node knew.
#[derive(Debug, Default)]
struct Earlier {
    since_ns: u64,
    until_ns: u64,
    histories: HashMap<Identity, PageHistory>,
}

/// The history of this node's targets, from an earlier one to a later one.
#[derive(Debug)]
pub struct Kept {
    folder: PathBuf,
    _lock: FolderLock,
    /// What is known of those that are not watched. One that watches a part of the machine leaves the others' bits alone, so that what
    /// is known of them holds for the next.
    earlier: Option<Earlier>,
    /// What was told in the folder of who clears bits, when that was read.
    voided: Option<Vec<u8>>,
    /// Whether it has been told.
    is_told: bool,
    /// Begin of the watch, an earlier node's where that is continued.
    since_ns: u64,
    /// Those whose identity has not been looked at.
    fresh: BTreeMap<TargetId, u32>,
    targets: BTreeMap<TargetId, Identity>,
}

impl Kept {
    /// Takes what the last node has left. `None`: there is no place for it, which is reported.
    pub fn open() -> Option<Self> {
        let Some(folder) = kept_history::folder() else {
            tracing::info!("there is no folder for the page history: it will be gone with this node");
            return None;
        };
        let kept = Self::open_in(folder);
        if kept.is_none() {
            // We clear bits of which another node may hand on what it had read.
            kept_history::void();
        }
        kept
    }

    fn open_in(folder: PathBuf) -> Option<Self> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        let at_once = made.and_then(|()| FolderLock::take(&folder, Duration::ZERO));
        let lock = at_once.or_else(|e| match e.kind() {
            io::ErrorKind::WouldBlock => {
                let most = format_time(PATIENCE.as_nanos() as u64);
                tracing::info!(
                    "another isotherm node has the page history in {}; waiting up to {most} for it to end",
                    folder.display()
                );
                FolderLock::take(&folder, PATIENCE)
            }
            _ => Err(e),
        });
        let lock = match lock {
            Ok(lock) => lock,
            Err(e) => {
                let why = match e.kind() {
                    io::ErrorKind::WouldBlock => "another isotherm node uses it".to_owned(),
                    _ => e.to_string(),
                };
                let folder = folder.display();
                tracing::warn!("page history cannot be kept in {folder}: {why}; it will be gone with this node");
                return None;
            }
        };
        let path = kept_history::file(&folder);
        // Before the file: of what is told later, it may be too old.
        let voided = kept_history::voided(&folder);
        let earlier = match read(&path) {
            Ok(earlier) => Some(earlier),
            Err(KeptError::File(PrivateFileError::Io { source, .. })) if source.kind() == io::ErrorKind::NotFound => {
                None
            }
            Err(e) => {
                tracing::warn!("page history in {} is not used: {e}; beginning anew", path.display());
                None
            }
        };
        // From the first bit that we clear on it does not hold any more.
        if let Err(e) = std::fs::remove_file(&path)
            && e.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!("cannot remove {}: {e}; page history is not kept", path.display());
            return None;
        }
        let (fresh, targets) = (BTreeMap::new(), BTreeMap::new());
        let since_ns = monotonic_ns();
        Some(Self { folder, _lock: lock, earlier, voided, is_told: false, since_ns, fresh, targets })
    }

    /// Begin of the watch, that of earlier nodes included, ns.
    pub const fn since_ns(&self) -> u64 {
        self.since_ns
    }

    pub fn event(&mut self, event: &Event) {
        match event {
            Event::Target(info) => {
                if let Some(pid) = info.pid {
                    self.fresh.insert(info.target, pid);
                }
            }
            Event::End { target, why, .. } => {
                self.fresh.remove(target);
                if let Some(identity) = self.targets.remove(target)
                    && *why == TargetEnd::Replaced
                {
                    self.fresh.insert(*target, identity.pid);
                }
            }
            _ => {}
        }
    }

    /// The targets have been looked up: those that an earlier node knew go on with what it knew.
    pub fn recognize(&mut self, source: &mut dyn AccessSource) {
        if !self.fresh.is_empty() {
            self.drop_void(kept_history::voided(&self.folder).as_deref());
        }
        for (target, pid) in std::mem::take(&mut self.fresh) {
            let Some(identity) = Identity::of(pid) else { continue };
            self.targets.insert(target, identity);
            if let Some(history) = self.earlier.as_mut().and_then(|earlier| earlier.histories.remove(&identity)) {
                self.since_ns = self.earlier.as_ref().map_or(self.since_ns, |e| e.since_ns.min(self.since_ns));
                source.continue_history(target, history);
            }
        }
        if std::mem::replace(&mut self.is_told, true) {
            return;
        }
        // All that were there and are to be watched are known now.
        if let Some(earlier) = &mut self.earlier {
            let left = earlier.histories.len();
            earlier.histories.retain(|identity, _| identity.is_running());
            let others = earlier.histories.len();
            let away = format_time(monotonic_ns().saturating_sub(earlier.until_ns));
            let watched = format_time(monotonic_ns().saturating_sub(self.since_ns));
            let kept = match others {
                0 => String::new(),
                _ => format!("; {others} others are not watched now, and what is known of them is kept"),
            };
            tracing::info!(
                "going on with the page history of a node that ended {away} ago (watched for {watched}); {} processes \
                 that it knew have ended or run another program{kept}",
                left - others
            );
        }
    }

    /// Forgets what an earlier node knew, if somebody else has begun to clear bits since that was read, of which `voided` tells:
    /// pages that were accessed before that would be taken to be idle.
    fn drop_void(&mut self, voided: Option<&[u8]>) {
        if self.earlier.is_some() && voided != self.voided.as_deref() {
            self.earlier = None;
            tracing::info!(
                "another isotherm has begun to clear accessed bits: what an earlier node knew of processes that are not watched \
                 here does not hold any more"
            );
        }
    }

    /// Writes what is known for the next node; a failure is reported.
    pub fn write(mut self, source: &mut dyn AccessSource) {
        let begun_ns = monotonic_ns();
        let (path, part) = (kept_history::file(&self.folder), self.folder.join(".pages.part"));
        let voided = kept_history::voided(&self.folder);
        self.drop_void(voided.as_deref());
        match self.write_to(&part, source).and_then(|n| std::fs::rename(&part, &path).map(|()| n)) {
            // Who has begun meanwhile may have looked for the file before it was there.
            Ok(_) if kept_history::voided(&self.folder) != voided => {
                let _ = std::fs::remove_file(&path);
                tracing::info!("another isotherm clears accessed bits: no page history is kept for the next node");
            }
            Ok((count, bytes)) => {
                let (size, time) = (format_size(bytes), format_time(monotonic_ns() - begun_ns));
                tracing::info!("kept the page history of {count} processes for the next node: {size}, in {time}");
            }
            Err(e) => {
                let _ = std::fs::remove_file(&part);
                tracing::warn!("cannot keep the page history in {}: {e}; the next node begins anew", path.display());
            }
        }
    }

    /// How many processes, and bytes of the file.
    fn write_to(&self, part: &Path, source: &mut dyn AccessSource) -> io::Result<(usize, u64)> {
        let Some(scene) = scene() else { return Err(io::Error::other("this boot has no id")) };
        let _ = std::fs::remove_file(part);
        let file = File::options().write(true).create_new(true).mode(0o600).open(part)?;
        let mut out = BufWriter::new(GzEncoder::new(file, Compression::fast()));
        out.write_all(MAGIC)?;
        let mut failed = Ok(());
        let mut word = |n: u64| {
            if failed.is_ok() {
                failed = out.write_all(&n.to_le_bytes());
            }
        };
        scene.into_iter().for_each(&mut word);
        let now_ns = monotonic_ns();
        word(self.earlier.as_ref().map_or(self.since_ns, |earlier| earlier.since_ns.min(self.since_ns)));
        word(now_ns);
        let watched = self.targets.iter().filter_map(|(&target, identity)| {
            Some((identity, source.page_history(target).filter(|history| history.walks() > 0)?))
        });
        let mut count = 0;
        for (identity, history) in watched.chain(self.earlier.iter().flat_map(|earlier| &earlier.histories)) {
            // One that has executed another program since it was looked at last is not what the history is of.
            if !identity.is_running() {
                continue;
            }
            count += 1;
            [u64::from(identity.pid), identity.start_ticks, identity.image.0, identity.image.1]
                .into_iter()
                .for_each(&mut word);
            stored::write(history, now_ns, &mut word);
        }
        failed?;
        let file = out.into_inner().map_err(io::IntoInnerError::into_error)?.finish()?;
        Ok((count, file.metadata()?.len()))
    }
}

fn read(path: &Path) -> Result<Earlier, KeptError> {
    let bytes = private_file::read(path, MOST_BYTES)?;
    let mut reader = BufReader::new(GzDecoder::new(&bytes[..]));
    let mut magic = [0; MAGIC.len()];
    reader.read_exact(&mut magic).map_err(KeptError::Damaged)?;
    if magic != *MAGIC {
        return Err(KeptError::Foreign);
    }
    let mut words = Words { reader, failed: None };
    let earlier = parse(&mut words);
    // The check sum stands at the end: before it, nothing is believed.
    words.by_ref().for_each(drop);
    match words.failed {
        Some(e) => Err(KeptError::Damaged(e)),
        None => earlier,
    }
}

fn parse(words: &mut impl Iterator<Item = u64>) -> Result<Earlier, KeptError> {
    let mut word = || words.next().ok_or(KeptError::Foreign);
    let written = [word()?, word()?, word()?, word()?];
    let (since_ns, until_ns) = (word()?, word()?);
    let now_ns = monotonic_ns();
    if scene() != Some(written) || until_ns > now_ns {
        return Err(KeptError::ElsewhereWritten);
    }
    let mut histories = HashMap::new();
    while let Some(pid) = words.next() {
        let mut word = || words.next().ok_or(KeptError::Foreign);
        let pid = u32::try_from(pid).map_err(|_| KeptError::Foreign)?;
        let identity = Identity { pid, start_ticks: word()?, image: (word()?, word()?) };
        let history = stored::read(words).filter(|history| history.now_ns() <= now_ns).ok_or(KeptError::Foreign)?;
        histories.insert(identity, history);
    }
    Ok(Earlier { since_ns: since_ns.min(until_ns), until_ns, histories })
}

/// The words of a stream.
struct Words<R> {
    reader: R,
    /// Why there are no more, but for its end.
    failed: Option<io::Error>,
}

impl<R: Read> Iterator for Words<R> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let (mut bytes, mut got) = ([0; 8], 0);
        while got < bytes.len() && self.failed.is_none() {
            match self.reader.read(&mut bytes[got..]) {
                Ok(0) if got == 0 => return None,
                Ok(0) => self.failed = Some(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => got += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => self.failed = Some(e),
            }
        }
        self.failed.is_none().then(|| u64::from_le_bytes(bytes))
    }
}

#[cfg(test)]
mod tests;
