//! All guests at once: who is served, over which connection, and how they stand.

use super::connection::{End, FindKey, Identify, Terms, refuse, serve};
use super::door::{Caller, Door};
use super::guest::Guest;
use super::pending::{Pending, PendingSlot};
use super::pinned::PinnedFiles;
use super::scan::{self, ScanConfig};
use super::session::Closing;
use super::slot::{GuestSpec, Slot, ended_for_good};
use super::status::GuestStatus;
use super::trouble::{Trouble, Weight};
use crate::protocol::auth::{Exchange, Key, Tag};
use crate::protocol::{ErrorCode, Hello};
use isotherm_linux::clock::monotonic_ns;
use isotherm_linux::hostmem::urgency;
use isotherm_linux::hostmem::{call, peer};
use isotherm_linux::limits;
use isotherm_linux::proc::PidFd;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Guests of one user whose VMMs came by themselves.
const MOST_OF_USER: usize = 256;
/// How long somebody who calls may take until a guest has greeted.
const GREETING: Duration = Duration::from_secs(10);
/// How long the place of a call stays taken that ends without a guest: so many a second come to nothing at most.
const AFTER_NOTHING: Duration = Duration::from_secs(1);
/// Until a connection is tried again; doubled up to the second while the guest is at fault.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// How long a VMM that listens may take to let us in.
const CONNECTING: Duration = Duration::from_secs(2);
/// How often it is looked what guests have let go of.
const CARE_EVERY: Duration = Duration::from_millis(500);
/// How often all processes are looked at for hardware that has a guest's memory pinned.
const PINNED_EVERY: Duration = Duration::from_secs(5);
/// How long threads that wait for a guest, a VMM or the kernel are waited for at the end.
const ENDING: Duration = Duration::from_secs(2);
/// How often a sleeping thread looks whether to end.
const TICK: Duration = Duration::from_millis(50);

/// How to serve.
#[derive(Debug, Default)]
pub struct HostConfig {
    pub guests: Vec<GuestSpec>,
    /// Bytes a second that are dropped of a guest, on average; 0: as many as come.
    pub bytes_per_second: u64,
    /// Whether and how to look for zeros in guests without an agent.
    pub scan: Option<ScanConfig>,
}

/// What all threads share.
#[derive(Debug)]
struct Shared {
    config: HostConfig,
    /// Those of the command line by their place in it, then those that came.
    slots: Mutex<BTreeMap<usize, Slot>>,
    stop: Arc<AtomicBool>,
    calls: AtomicUsize,
    trouble: Trouble,
    pinned: Arc<PinnedFiles>,
}

/// The host side at work; ends all when dropped.
#[derive(Debug)]
pub struct Host {
    shared: Arc<Shared>,
    doors: Vec<OwnedFd>,
    threads: Vec<JoinHandle<()>>,
}

impl Host {
    pub fn start(config: HostConfig, doors: Vec<Door>) -> io::Result<Self> {
        // Guests and those who have not greeted each take some. What is started from here is a shell that needs few.
        limits::raise_open_files();
        let slots = config.guests.iter().map(Slot::named).enumerate().collect();
        let shared = Arc::new(Shared {
            config,
            slots: Mutex::new(slots),
            stop: Arc::default(),
            calls: AtomicUsize::new(0),
            trouble: Trouble::default(),
            pinned: Arc::new(PinnedFiles::found()),
        });
        let mut host = Self { shared, doors: Vec::new(), threads: Vec::new() };
        for (number, spec) in host.shared.config.guests.clone().into_iter().enumerate() {
            if let Some(socket) = spec.socket {
                let shared = Arc::clone(&host.shared);
                host.spawn("guest", move || call_guest(&shared, number, &socket))?;
            } else if spec.pid.is_some() {
                // So that what is wrong with it is known at once.
                let _ = host.shared.guest(number, None);
            }
        }
        for door in doors {
            host.doors.push(door.duplicate()?);
            let shared = Arc::clone(&host.shared);
            host.spawn("door", move || answer_calls(&shared, &door))?;
        }
        let shared = Arc::clone(&host.shared);
        host.spawn("care", move || care_for_all(&shared))?;
        if host.shared.config.scan.is_some() {
            let shared = Arc::clone(&host.shared);
            host.spawn("scan", move || scan_all(&shared))?;
        }
        Ok(host)
    }

    fn spawn(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        self.threads.push(Builder::new().name(name.into()).spawn(work)?);
        Ok(())
    }

    /// What is wrong with connections that belong to no guest.
    pub fn problem(&self) -> Option<String> {
        self.shared.trouble.latest()
    }

    /// How every guest stands.
    pub fn status(&self) -> Vec<GuestStatus> {
        // The guests' own locks are taken without that of the slots, so that one that is busy keeps nobody else
        // waiting.
        let slots: Vec<_> = {
            let slots = self.shared.slots();
            slots
                .iter()
                .map(|(n, slot)| (slot.name(*n), slot.pid(), slot.guest.clone(), slot.shown_problem()))
                .collect()
        };
        slots
            .into_iter()
            .map(|(name, pid, guest, problem)| match guest {
                Some(guest) => {
                    let status = guest.status();
                    GuestStatus { problem: problem.or(status.problem.clone()), ..status }
                }
                None => GuestStatus { name, pid, problem, ..GuestStatus::default() },
            })
            .collect()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        for door in self.doors.drain(..) {
            // Ends accept in the other thread; it is the same socket.
            let _ = UnixStream::from(door).shutdown(std::net::Shutdown::Both);
        }
        // Nothing is dropped from here on but what the kernel is at; nobody has to answer for that. A thread that still
        // waits for somebody ends with the process.
        let end = Instant::now() + ENDING;
        let busy =
            |host: &Self| host.threads.iter().any(|t| !t.is_finished()) || host.shared.calls.load(Ordering::SeqCst) > 0;
        while busy(self) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        if busy(self) {
            tracing::warn!("ending without waiting for a guest or VMM that does not answer");
        }
    }
}

impl Shared {
    fn slots(&self) -> MutexGuard<'_, BTreeMap<usize, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Sleeps, unless it is time to end.
    fn sleep(&self, time: Duration) {
        let end = Instant::now() + time;
        while !self.stopping() && Instant::now() < end {
            std::thread::sleep(TICK.min(end.saturating_duration_since(Instant::now())));
        }
    }

    /// The guest in a slot; found anew if its VMM has changed. `caller`: whose connection it is, if the slot does not
    /// name a process.
    fn guest(&self, number: usize, caller: Option<&Arc<PidFd>>) -> Result<Arc<Guest>, Closing> {
        let failed = |why: String| Closing::private(ErrorCode::Failed, why);
        let (spec, name, process, old, _gone) = {
            let mut slots = self.slots();
            let slot = slots.get_mut(&number).ok_or_else(|| failed("this guest is gone".into()))?;
            let process = slot.process.as_ref().or(caller).cloned();
            // The lock on its memory must be free for whoever is next. A number stays with a process that has not
            // ended.
            let gone = |guest: &mut Arc<Guest>| {
                let of_guest = guest.process();
                of_guest.has_exited() || process.as_ref().is_some_and(|process| process.pid() != of_guest.pid())
            };
            // Let go of after the slots' lock, as freeing its memory takes a while.
            let gone = slot.guest.take_if(gone);
            (slot.spec.clone(), slot.name(number), process, slot.guest.clone(), gone)
        };
        if let Some(guest) = old {
            return Ok(guest);
        }
        let found = match (process, spec.pid) {
            (Some(process), Some(pid)) if process.has_exited() => Err(ended_for_good(pid)),
            (Some(process), _) => {
                let qmp = spec.qmp.as_deref();
                let (stop, pinned) = (Arc::clone(&self.stop), Arc::clone(&self.pinned));
                Guest::new(process, name, qmp, self.config.bytes_per_second, stop, pinned)
                    .map_err(|error| error.to_string())
            }
            (None, Some(pid)) => Err(format!("there was no process {pid} when this began; give the VMM's pid")),
            // It becomes known when it is called.
            (None, None) => return Err(failed("the VMM's process is not known; give pid=N".into())),
        };
        let mut slots = self.slots();
        let slot = slots.get_mut(&number);
        match (found, slot) {
            (Ok(guest), Some(slot)) => {
                slot.problem = None;
                let guest = Arc::new(guest);
                slot.guest = Some(Arc::clone(&guest));
                Ok(guest)
            }
            (Err(error), slot) => {
                // Another thread may have been quicker, and holds the lock on its memory.
                if let Some(guest) = slot.as_ref().and_then(|slot| slot.guest.clone()) {
                    return Ok(guest);
                }
                if let Some(slot) = slot {
                    slot.problem = Some(error.clone());
                }
                Err(failed(error))
            }
            (Ok(_), None) => Err(failed("this guest is gone".into())),
        }
    }

    /// Whose key it is that a caller has proved to know.
    fn holder(&self, exchange: &Exchange, proof: &Tag) -> Option<(usize, Key)> {
        let slots = self.slots();
        slots.iter().find_map(|(number, slot)| {
            let key = slot.spec.key.as_ref().filter(|key| exchange.proves(key, proof))?;
            Some((*number, key.clone()))
        })
    }

    /// The slot of whoever calls; `holder`: whose key it has.
    fn slot_of(&self, caller: &Caller, holder: Option<usize>) -> Result<usize, Closing> {
        // Let go of after the slots' lock, as freeing memory takes a while.
        let mut gone: Vec<Slot> = Vec::new();
        let mut slots = self.slots();
        let denied = |why: String| Closing::new(ErrorCode::Denied, why);
        match caller {
            Caller::Process { process, uid } => {
                let pid = process.pid();
                let is_its = |slot: &Slot| slot.process.as_ref().is_some_and(|p| p.pid() == pid && !p.has_exited());
                if let Some((number, _)) = slots.iter().find(|(_, slot)| is_its(slot)) {
                    return Ok(*number);
                }
                // Places of processes that are gone are free again; only those that came by themselves.
                let named = self.config.guests.len();
                let is_gone = |slot: &Slot| slot.process.as_ref().is_none_or(|process| process.has_exited());
                let numbers: Vec<usize> =
                    slots.range(named..).filter(|(_, slot)| is_gone(slot)).map(|(number, _)| *number).collect();
                gone.extend(numbers.iter().filter_map(|number| slots.remove(number)));
                let number = slots.last_key_value().map_or(0, |(last, _)| last + 1).max(named);
                let of_user = || slots.iter().filter(|(_, slot)| slot.uid == Some(*uid));
                let is_full = of_user().count() >= MOST_OF_USER;
                // Where there are too many, the first for which nothing could be done is shown no longer.
                let failed = of_user().find(|(_, slot)| slot.has_failed()).map(|(number, _)| *number);
                if let Some(failed) = failed.filter(|_| is_full) {
                    gone.extend(slots.remove(&failed));
                } else if is_full {
                    let why = format!(
                        "user {uid} has {MOST_OF_USER} guests here already; end one of their VMMs, or name this one with --guest pid={pid}"
                    );
                    return Err(Closing::private(ErrorCode::Denied, why));
                }
                let mut spec = GuestSpec { pid: Some(pid), ..GuestSpec::default() };
                // A name may say anything, and a number may have been that of another process.
                let is_taken = |name: &String| slots.iter().any(|(number, slot)| slot.name(*number) == *name);
                if is_taken(&spec.called(number)) {
                    spec.name = (number..).map(|n| format!("pid{pid}.{n}")).find(|name| !is_taken(name));
                }
                let process = Some(Arc::clone(process));
                slots.insert(number, Slot { spec, process, uid: Some(*uid), guest: None, problem: None });
                Ok(number)
            }
            Caller::Machine { cid, .. } => slots
                .iter()
                .find(|(_, slot)| slot.spec.cid == Some(*cid))
                .map(|(number, _)| *number)
                .ok_or_else(|| denied(format!("no guest is named with cid={cid}"))),
            Caller::Stranger(_) => holder.ok_or_else(|| denied("no guest has this key".into())),
        }
    }

    fn terms<'a>(
        &'a self,
        identify: Identify<'a>,
        find_key: Option<FindKey<'a>>,
        welcomed: &'a mut dyn FnMut(),
        patience: Option<Duration>,
        fresh: bool,
    ) -> Terms<'a> {
        let bytes_per_second = self.config.bytes_per_second;
        let now_ns = &monotonic_ns;
        Terms { identify, find_key, welcomed, patience, fresh, bytes_per_second, now_ns, stop: &self.stop }
    }

    /// A guest is welcome again: what was wrong with earlier connections is over.
    fn solved(&self, number: usize) {
        if let Some(slot) = self.slots().get_mut(&number) {
            slot.problem = None;
        }
    }

    fn say(&self, number: usize, problem: String) {
        if let Some(slot) = self.slots().get_mut(&number) {
            slot.problem = Some(problem);
        }
    }
}

/// Connects to a guest's VMM again and again.
fn call_guest(shared: &Shared, number: usize, socket: &Path) {
    let mut retry = RETRY.0;
    while !shared.stopping() {
        match call::connect(socket, CONNECTING).map(|stream| (peer::process(&stream), stream)) {
            Ok((peer, stream)) => {
                // Who listens through a descriptor that somebody else has opened is not known; then pid=N is needed.
                let peer = peer.ok().map(|peer| Arc::new(peer.process));
                // Looked for at once, so that its memory shows before its agent says anything.
                let found = shared.guest(number, peer.as_ref()).map(drop);
                let end = match found {
                    Ok(()) => {
                        let identify = |_: &Hello| shared.guest(number, peer.as_ref());
                        serve(stream, shared.terms(&identify, None, &mut || shared.solved(number), None, false))
                    }
                    Err(closing) => End::Closed(closing),
                };
                retry = match &end {
                    End::Closed(_) => (retry * 2).min(RETRY.1),
                    _ => RETRY.0,
                };
                if let Some(reason) = end.reason() {
                    shared.say(number, reason);
                }
            }
            Err(e) => {
                retry = RETRY.0;
                shared.say(number, format!("cannot connect to {}: {e}", socket.display()));
            }
        }
        shared.sleep(retry);
    }
}

/// Takes calls until the door is shut.
fn answer_calls(shared: &Arc<Shared>, door: &Door) {
    let pending = Arc::new(Pending::default());
    while !shared.stopping() {
        let Ok((stream, caller)) = door.accept() else {
            // Out of descriptors, say; it passes.
            shared.sleep(Duration::from_millis(100));
            continue;
        };
        if shared.stopping() {
            return;
        }
        let caller = match caller {
            Ok(caller) => caller,
            Err(error) => {
                shared.trouble.note(Weight::Closed, format!("a process called that cannot be known: {error}"));
                continue;
            }
        };
        if let Some(closing) = caller.refusal() {
            refuse(stream, &closing);
            shared.trouble.note(Weight::Closed, closing.why);
            continue;
        }
        let slot = match pending.take(caller.peer()) {
            Ok(slot) => slot,
            Err(full) => {
                shared.trouble.note(Weight::Full, full.to_string());
                continue;
            }
        };
        shared.calls.fetch_add(1, Ordering::SeqCst);
        let call = Call(Arc::clone(shared));
        // Where no thread can be had, the connection closes.
        let _ = Builder::new().name("call".into()).spawn(move || answer(&call.0, stream, caller, slot));
    }
}

/// Serves one call.
fn answer(shared: &Shared, stream: UnixStream, caller: Caller, slot: PendingSlot) {
    let mut slot = Some(slot);
    let holder = Cell::new(None);
    let find_key = |exchange: &Exchange, proof: &Tag| {
        let (number, key) = shared.holder(exchange, proof)?;
        holder.set(Some(number));
        Some(key)
    };
    let identify = |_: &Hello| {
        let number = shared.slot_of(&caller, holder.get())?;
        shared.guest(number, None)
    };
    let fresh = !matches!(caller, Caller::Process { .. });
    let find_key: Option<FindKey<'_>> = if matches!(caller, Caller::Stranger(_)) { Some(&find_key) } else { None };
    let end = serve(stream, shared.terms(&identify, find_key, &mut || slot = None, Some(GREETING), fresh));
    if slot.is_some() {
        if let Some(reason) = end.reason() {
            let what = format!("a connection from {} was closed: {reason}", caller.peer());
            shared.trouble.note(Weight::Closed, what);
        }
        shared.sleep(AFTER_NOTHING);
    }
}

/// A call that is being served.
struct Call(Arc<Shared>);

impl Drop for Call {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Looks after the guests' files, again and again: whoever asks for the status does not wait for that.
fn care_for_all(shared: &Shared) {
    let mut looked = Instant::now();
    while !shared.stopping() {
        if looked.elapsed() >= PINNED_EVERY {
            shared.pinned.look();
            looked = Instant::now();
        }
        let guests: Vec<Arc<Guest>> = shared.slots().values().filter_map(|slot| slot.guest.clone()).collect();
        guests.iter().for_each(|guest| guest.care());
        drop(guests);
        shared.sleep(CARE_EVERY);
    }
}

/// Looks for zeros in the guests that have no agent, again and again.
fn scan_all(shared: &Shared) {
    let Some(config) = &shared.config.scan else { return };
    // While a guest is paused, nobody should take the processor from whoever lets it go on. Not everybody may ask for
    // that.
    let _ = urgency::hurry();
    while !shared.stopping() {
        let numbers: Vec<usize> = shared.slots().keys().copied().collect();
        for number in numbers {
            let Ok(guest) = shared.guest(number, None) else { continue };
            if !guest.is_connected() && !shared.stopping() {
                let done = scan::scan(&guest, config, &shared.stop);
                guest.scan_ended(done.err().map(|error| error.to_string()));
            }
        }
        shared.sleep(config.every);
    }
}

#[cfg(test)]
mod tests;
