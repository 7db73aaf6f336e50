//! A kdamond that monitors processes of this machine, in a thread of its own.

mod clock;
mod thread;
mod tried;
mod until_reaped;

use crate::kdamond::{Kdamond, Observer, Starter, Stopper};
use crate::refused::Refused;
use crate::scheme::Goals;
use crate::settings::Settings;
use clock::Stop;
use isotherm_core::attrs::MonitorAttrs;
use isotherm_core::scheme::Scheme;
use isotherm_core::scheme::stats::SchemeStats;
use isotherm_core::snapshot::RegionInfo;
use isotherm_linux::cgroup::memory::Memcgs;
use isotherm_linux::roots::Roots;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender, SyncSender};
use std::thread::JoinHandle;

/// Starts kdamonds on this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct LiveStarter;

impl Starter for LiveStarter {
    fn start(&self, _: &str, mut settings: Settings, observer: Option<Observer>) -> Result<Box<dyn Kdamond>, Refused> {
        find_groups(&mut settings)?;
        let stop = Arc::new(Stop::default());
        let (requests, asked) = mpsc::channel();
        let (ready, is_ready) = mpsc::sync_channel(1);
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("kdamond".into())
            .spawn(move || thread::run(settings, observer, &asked, &stopped, &ready))
            .map_err(Refused::new)?;
        match is_ready.recv() {
            Ok(Ok(tid)) => Ok(Box::new(LiveKdamond { tid, requests, stop, thread: Some(thread) })),
            Ok(Err(refused)) => Err(refused),
            Err(mpsc::RecvError) => Err(Refused::new("the kdamond's thread ended before it began")),
        }
    }
}

/// As the kernel, refuses filters of control groups that are not there: one that is to protect a group would protect nothing. Those
/// that are there are written as those of processes are told.
fn find_groups(settings: &mut Settings) -> Result<(), Refused> {
    let groups = Memcgs::new(&Roots::system());
    for path in settings.schemes.iter_mut().flat_map(Scheme::groups_mut) {
        if path.is_empty() {
            return Err(Refused::new("a filter of type memcg has no memcg_path"));
        }
        groups.open(path).map_err(|why| Refused::new(format!("memcg_path '{path}': {why}")))?;
        *path = groups.name(path);
    }
    Ok(())
}

/// What a kdamond's thread is asked. The answer's other end is dropped where it ends before it answers.
enum Request {
    Commit(Box<Settings>, SyncSender<Result<(), Refused>>),
    CommitGoals(Vec<Goals>, SyncSender<()>),
    Stats(SyncSender<Vec<SchemeStats>>),
    Tried(SyncSender<Vec<Vec<RegionInfo>>>),
    Attrs(SyncSender<MonitorAttrs>),
}

struct LiveKdamond {
    tid: i32,
    requests: Sender<Request>,
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

impl LiveKdamond {
    fn ask<T>(&self, request: impl FnOnce(SyncSender<T>) -> Request) -> Result<T, Refused> {
        let (answer, answered) = mpsc::sync_channel(1);
        let ended = || Refused::new("the kdamond has ended");
        self.requests.send(request(answer)).map_err(|_| ended())?;
        answered.recv().map_err(|_| ended())
    }
}

impl Kdamond for LiveKdamond {
    fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    fn tid(&self) -> i32 {
        self.tid
    }

    fn stopper(&self) -> Stopper {
        let stop = Arc::clone(&self.stop);
        Arc::new(move || stop.ask())
    }

    fn stop(&mut self) {
        self.stop.ask();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("a kdamond's thread panicked");
        }
    }

    fn commit(&mut self, mut settings: Settings) -> Result<(), Refused> {
        find_groups(&mut settings)?;
        self.ask(|answer| Request::Commit(Box::new(settings), answer))?
    }

    fn commit_goals(&mut self, goals: Vec<Goals>) -> Result<(), Refused> {
        self.ask(|answer| Request::CommitGoals(goals, answer))
    }

    fn stats(&mut self) -> Result<Vec<SchemeStats>, Refused> {
        self.ask(Request::Stats)
    }

    fn tried(&mut self) -> Result<Vec<Vec<RegionInfo>>, Refused> {
        self.ask(Request::Tried)
    }

    fn attrs(&mut self) -> Result<MonitorAttrs, Refused> {
        self.ask(Request::Attrs)
    }
}

impl Drop for LiveKdamond {
    fn drop(&mut self) {
        self.stop();
    }
}
