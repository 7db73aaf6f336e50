//! What this machine allows: every access source, action and meter, tried out rather than looked up where that is
//! possible without leaving a trace.
//!
//! One file per group. Each gives a [`Finding`]: usable or not, the reason, and what the user can do about it. Tests
//! run the readers on captured file trees through [`Roots`].

mod actions;
mod meters;
mod sources;
mod subject;

pub(crate) use actions::probe_actions;
pub(crate) use meters::probe_meters;
pub(crate) use sources::probe_sources;

use crate::facts::Environment;
use crate::roots::Roots;

/// One source, action or meter, and whether this machine allows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Its name as it is written in commands and scheme files.
    pub name: &'static str,
    /// Whether it was found to work.
    pub usable: bool,
    /// Why it does not; empty where it does.
    pub reason: String,
    /// What the user can do about the reason; empty where nothing is to be done.
    pub remedy: String,
    /// What is worth knowing although it works: limits, figures. Often empty.
    pub detail: String,
}

impl Finding {
    /// It works; `detail` says within which limits.
    pub fn usable(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, usable: true, reason: String::new(), remedy: String::new(), detail: detail.into() }
    }

    /// It does not work.
    pub fn unusable(name: &'static str, reason: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { name, usable: false, reason: reason.into(), remedy: remedy.into(), detail: String::new() }
    }
}

/// Everything that was found out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survey {
    /// Facts about the machine.
    pub environment: Environment,
    /// Ways to see accesses.
    pub sources: Vec<Finding>,
    /// Ways to act on memory.
    pub actions: Vec<Finding>,
    /// Figures that goals and watermarks can follow.
    pub meters: Vec<Finding>,
}

/// Looks at this machine. Starts a child of its own for the actions and ends it again; changes nothing else.
pub fn survey(roots: &Roots) -> Survey {
    let environment = Environment::read(roots);
    Survey {
        sources: probe_sources(roots, &environment),
        actions: probe_actions(&environment),
        meters: probe_meters(roots, &environment),
        environment,
    }
}
