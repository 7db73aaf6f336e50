//! A guest as the host knows it: its memory, and what was done to it.

use super::allowance::Allowance;
use super::bucket::Bucket;
use super::memory::{GuestMemory, MemoryError};
use super::pinned::PinnedFiles;
use super::rate::Rate;
use super::session::{Closing, HostSession, Outcome};
use super::status::{GuestStatus, ScanStatus};
use crate::protocol::{ErrorCode, Hello, Message};
use isotherm_core::units::NS_PER_S;
use isotherm_linux::clock::monotonic_ns;
use isotherm_linux::proc::PidFd;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// How often to look, at most, whether a device has come that needs memory to stay.
const LOOK_EVERY: u64 = NS_PER_S / 2;
/// How often to look, at most, which memory has come and gone, without being asked to.
const FILES_EVERY: u64 = 5 * NS_PER_S;

#[derive(Debug)]
pub struct Guest {
    process: Arc<PidFd>,
    memory: GuestMemory,
    work: Mutex<Work>,
    state: Mutex<State>,
}

/// What reports and greetings need. The lock on it is held while memory is dropped and while the VMM is asked: a new
/// connection is welcome only when the old one is through. Never taken by those who only look.
#[derive(Debug)]
struct Work {
    allowance: Allowance,
    /// When it was last seen that nothing pins memory, ns.
    unpinned_ns: u64,
    /// When the VMM's files were looked at last, ns.
    files_ns: u64,
}

/// What is shown. The lock on it is held for moments, also by who holds that of the work.
#[derive(Debug)]
struct State {
    /// Which connection may report: the last that was welcome. Changes only under the lock of the work, too.
    connection: u64,
    status: GuestStatus,
    /// What was in the way of the last scan. Shown where nothing is said of the connection.
    scan_problem: Option<String>,
    rate: Rate,
}

impl Guest {
    /// The guest of a VMM. `stop`: once set, nothing is dropped any more and no VMM waited for; `pinned`: what other
    /// processes have pinned, which somebody keeps up to date.
    pub fn new(
        process: Arc<PidFd>,
        name: String,
        qmp: Option<&Path>,
        bytes_per_second: u64,
        stop: Arc<AtomicBool>,
        pinned: Arc<PinnedFiles>,
    ) -> Result<Self, MemoryError> {
        let memory = GuestMemory::of_process(Arc::clone(&process), qmp, stop, pinned)?;
        let status = GuestStatus { name, pid: Some(process.pid()), ..GuestStatus::default() };
        // As much at a time as comes in half a second, but always some huge pages.
        let burst = (bytes_per_second / 2).max(64 << 20);
        let now = monotonic_ns();
        let allowance = Allowance::new(Bucket::new(bytes_per_second, burst, now), now);
        let work = Mutex::new(Work { allowance, unpinned_ns: 0, files_ns: now });
        let state = Mutex::new(State { connection: 0, status, scan_problem: None, rate: Rate::default() });
        Ok(Self { process, memory, work, state })
    }

    pub fn process(&self) -> &PidFd {
        &self.process
    }

    pub const fn memory(&self) -> &GuestMemory {
        &self.memory
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A guest introduces itself over `connection`, which becomes the only one that is listened to. Waits until what
    /// another one has reported is dealt with.
    pub fn hello(&self, session: &mut HostSession, hello: &Hello, connection: u64, token: u64) -> Outcome {
        let mut work = self.work();
        if !work.allowance.greet(monotonic_ns()) {
            // By the protocol it comes again, as if it had been lost.
            self.state().status.problem =
                Some("the guest greets more than twice a second; not all of it is answered".into());
            return Outcome::default();
        }
        let outcome = session.hello(hello, token, &self.memory);
        if outcome.closing.is_none() {
            let mut state = self.state();
            state.connection = connection;
            state.status.connected = true;
            state.status.agent = Some(hello.agent.clone());
            state.status.welcomes += 1;
            (state.status.problem, state.scan_problem) = (None, None);
        }
        drop(work);
        self.note(&outcome);
        outcome
    }

    /// Another message came over `connection`. `None`: that is not the one to listen to any more.
    pub fn message(&self, session: &mut HostSession, message: Message, connection: u64) -> Option<Outcome> {
        let mut work = self.work();
        if !self.listens_to(connection) && session.is_open() {
            return None;
        }
        let is_report = matches!(message, Message::Report { .. });
        let before = if is_report { self.memory.resident() } else { None };
        let now = monotonic_ns();
        if is_report && now >= work.unpinned_ns + LOOK_EVERY {
            if let Err(error) = self.memory.check_unpinned() {
                drop(work);
                let closing = Some(Closing::private(ErrorCode::Failed, error.to_string()));
                let outcome = Outcome { closing, ..Outcome::default() };
                self.note(&outcome);
                return Some(outcome);
            }
            work.unpinned_ns = now;
        }
        let outcome = session.message(message, &mut work.allowance, now, &self.memory);
        drop(work);
        if outcome.dropped > 0 {
            // The guest goes on meanwhile, so this is no exact figure; never more than was dropped.
            let returned = before.zip(self.memory.resident()).map_or(0, |(a, b)| a.saturating_sub(b));
            let mut state = self.state();
            state.status.returned += returned.min(outcome.dropped);
            state.status.dropped += outcome.dropped;
            state.rate.add(now / NS_PER_S, outcome.dropped);
        }
        if is_report && outcome.answer.is_some() {
            self.state().status.reports += 1;
        }
        if let Some(stat) = outcome.stat {
            let mut state = self.state();
            (state.status.guest_free, state.status.guest_isolated) = (Some(stat.free), Some(stat.isolated));
        }
        self.note(&outcome);
        Some(outcome)
    }

    fn note(&self, outcome: &Outcome) {
        let mut state = self.state();
        state.status.refused += outcome.refused;
        state.status.put_off += outcome.put_off;
        if let Some(failure) = &outcome.failure {
            state.status.problem = Some(failure.clone());
        }
        if let Some(closing) = &outcome.closing {
            state.status.closed += 1;
            state.status.problem = Some(closing.why.clone());
        }
    }

    /// A connection has ended; `why` if that was not in good order.
    pub(crate) fn disconnected(&self, connection: u64, why: Option<String>) {
        let mut state = self.state();
        if state.connection == connection {
            state.status.connected = false;
        }
        if why.is_some() {
            state.status.problem = why;
        }
    }

    /// A connection was closed for what came over it before it was more than bytes; `forged`: by somebody without the
    /// key.
    pub fn closed(&self, forged: bool) {
        let mut state = self.state();
        state.status.closed += 1;
        state.status.forged += u64::from(forged);
    }

    /// Whether `connection` is the one that may report: the last that was welcome.
    pub fn listens_to(&self, connection: u64) -> bool {
        self.state().connection == connection
    }

    /// Whether an agent is connected.
    pub(crate) fn is_connected(&self) -> bool {
        self.state().status.connected
    }

    /// Punches where nobody but a scan looks, within what may be dropped; not while a report is dealt with. See
    /// [`scan`](super::scan).
    pub fn exclusively<T>(&self, work: impl FnOnce(&mut Allowance) -> T) -> T {
        work(&mut self.work().allowance)
    }

    /// A scan was made.
    pub fn scanned(&self, change: impl FnOnce(&mut ScanStatus)) {
        change(self.state().status.scan.get_or_insert_default());
    }

    /// A scan has ended; `problem`: what was in its way.
    pub fn scan_ended(&self, problem: Option<String>) {
        self.state().scan_problem = problem;
    }

    /// Lets go of what is gone, and takes what has come. Called again and again.
    pub fn care(&self) {
        if self.process.has_exited() {
            self.memory.let_go();
            return;
        }
        // Whoever is at work looks by itself.
        let mut work = match self.work.try_lock() {
            Ok(work) => work,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let now = monotonic_ns();
        if now >= work.files_ns + FILES_EVERY {
            work.files_ns = now;
            // What has come is of use only once the guest tells of it; whatever is wrong with it shows then.
            let _ = self.memory.look_again();
        }
    }

    /// How it stands. Waits for neither guest nor VMM.
    pub fn status(&self) -> GuestStatus {
        let mut state = self.state();
        let problem = state.status.problem.clone().or_else(|| state.scan_problem.clone());
        if self.process.has_exited() {
            state.status.connected = false;
            return GuestStatus { ram: None, resident: None, rate: 0, problem, ..state.status.clone() };
        }
        let rate = state.rate.per_second(monotonic_ns() / NS_PER_S);
        let (ram, resident) = (Some(self.memory.size()), self.memory.resident());
        GuestStatus { ram, resident, rate, problem, ..state.status.clone() }
    }
}
