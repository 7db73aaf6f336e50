//! The border between the files and what monitors.

use crate::refused::Refused;
use crate::scheme::Goals;
use crate::settings::Settings;
use isotherm_core::attrs::MonitorAttrs;
use isotherm_core::event::Subscriber;
use isotherm_core::scheme::stats::SchemeStats;
use isotherm_core::snapshot::RegionInfo;
use std::sync::Arc;

/// Makes somebody who sees all events of a kdamond. Called in the kdamond's thread; dropped at its end, also where it
/// never began.
pub type Observer = Box<dyn FnOnce() -> Box<dyn Subscriber> + Send>;

/// Asks a kdamond to end and does not wait for that. It works from any thread, also while a request waits for its answer, which
/// is refused then.
pub type Stopper = Arc<dyn Fn() + Send + Sync>;

/// Starts kdamonds, and hears of what cannot be.
pub trait Starter: Send + Sync {
    /// Begins to monitor, for whoever wrote to these files. An error of the observer ends it.
    fn start(&self, files: &str, settings: Settings, observer: Option<Observer>) -> Result<Box<dyn Kdamond>, Refused>;

    /// Gets to know why what was written to these files cannot be: whoever wrote it hears only EINVAL.
    fn refused(&self, files: &str, refused: &Refused) {
        tracing::warn!("{files}: refused (EINVAL): {refused}");
    }
}

/// Something that monitors. Requests wait until they are answered; after its end they are refused.
pub trait Kdamond: Send {
    /// Whether it still does.
    fn is_running(&self) -> bool;
    /// Its thread's id.
    fn tid(&self) -> i32;
    /// What asks it to end while somebody else has it.
    fn stopper(&self) -> Stopper;
    /// Ends it and waits for that.
    fn stop(&mut self);
    /// Replaces what it does; what was seen is kept.
    fn commit(&mut self, settings: Settings) -> Result<(), Refused>;
    /// Replaces the goals of each scheme.
    fn commit_goals(&mut self, goals: Vec<Goals>) -> Result<(), Refused>;
    /// Counters of each scheme.
    fn stats(&mut self) -> Result<Vec<SchemeStats>, Refused>;
    /// What each scheme is about, of the aggregation interval that ends next.
    fn tried(&mut self) -> Result<Vec<Vec<RegionInfo>>, Refused>;
    /// Intervals in force.
    fn attrs(&mut self) -> Result<MonitorAttrs, Refused>;
}
