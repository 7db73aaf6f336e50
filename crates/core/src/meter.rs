//! The border to the figures that schemes are tuned by.

use crate::figure::Unit;
use crate::target::TargetId;
use std::fmt;

/// A figure that can be read.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Metric {
    /// Microseconds in which some task waited for memory, since boot (PSI). With a path: of that control group.
    SomeMemPsi(Option<String>),
    /// Microseconds in which all tasks waited for memory, since boot (PSI). With a path: of that control group.
    FullMemPsi(Option<String>),
    /// Free memory of the machine, basis points of all.
    FreeMemRate,
    /// Used memory of a node, basis points of it.
    NodeMemUsed(u32),
    /// Free memory of a node, basis points of it.
    NodeMemFree(u32),
    /// Used memory of a control group, bytes.
    CgroupMemUsed(String),
    /// What is left of a control group's limit, bytes.
    CgroupMemFree(String),
    /// Resident memory of all targets, bytes.
    TargetRss,
    /// Active LRU memory as a share of all LRU memory, basis points.
    ActiveMem,
    /// Inactive LRU memory as a share of all LRU memory, basis points.
    InactiveMem,
    /// Bytes read back from swap since boot.
    SwapIn,
    /// Bytes that came back after they had been evicted, since boot.
    Refault,
    /// Major faults of all targets since they began.
    TargetMajorFaults,
    /// Microseconds that all targets waited for memory to come back from swap, since they began: major faults times
    /// what one costs here. The kernel's pressure figures leave out pages that were not active when they went, so
    /// swapping in from compressed memory may cost a program half of its speed without showing there.
    TargetStall,
}

/// How a metric's raw readings become a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// A reading is the value.
    Level,
    /// The value is by how much the readings grew within a window.
    Counter,
}

impl Metric {
    /// Whether the metric only grows.
    pub const fn kind(&self) -> MetricKind {
        match self {
            Self::SomeMemPsi(_)
            | Self::FullMemPsi(_)
            | Self::SwapIn
            | Self::Refault
            | Self::TargetMajorFaults
            | Self::TargetStall => MetricKind::Counter,
            _ => MetricKind::Level,
        }
    }

    /// In what it is read.
    pub const fn unit(&self) -> Unit {
        match self {
            Self::SomeMemPsi(_) | Self::FullMemPsi(_) | Self::TargetStall => Unit::Microseconds,
            Self::FreeMemRate | Self::NodeMemUsed(_) | Self::NodeMemFree(_) | Self::ActiveMem | Self::InactiveMem => {
                Unit::BasisPoints
            }
            Self::CgroupMemUsed(_) | Self::CgroupMemFree(_) | Self::TargetRss | Self::SwapIn | Self::Refault => {
                Unit::Bytes
            }
            Self::TargetMajorFaults => Unit::Count,
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SomeMemPsi(None) => f.write_str("some_mem_psi"),
            Self::SomeMemPsi(Some(path)) => write!(f, "some_mem_psi of {path}"),
            Self::FullMemPsi(None) => f.write_str("full_mem_psi"),
            Self::FullMemPsi(Some(path)) => write!(f, "full_mem_psi of {path}"),
            Self::FreeMemRate => f.write_str("free_mem_rate"),
            Self::NodeMemUsed(node) => write!(f, "node_mem_used of node {node}"),
            Self::NodeMemFree(node) => write!(f, "node_mem_free of node {node}"),
            Self::CgroupMemUsed(path) => write!(f, "cgroup_mem_used of {path}"),
            Self::CgroupMemFree(path) => write!(f, "cgroup_mem_free of {path}"),
            Self::TargetRss => f.write_str("target_rss"),
            Self::ActiveMem => f.write_str("active_mem"),
            Self::InactiveMem => f.write_str("inactive_mem"),
            Self::SwapIn => f.write_str("swap_in"),
            Self::Refault => f.write_str("refault"),
            Self::TargetStall => f.write_str("target_stall"),
            Self::TargetMajorFaults => f.write_str("target_major_faults"),
        }
    }
}

/// Why a metric cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{metric} cannot be read: {reason}; {remedy}")]
pub struct MeterError {
    /// Which metric.
    pub metric: String,
    /// Why.
    pub reason: String,
    /// What helps.
    pub remedy: String,
}

/// A live target, as meters and actuators need to know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiveTarget {
    /// Index.
    pub target: TargetId,
    /// Process, where it is one.
    pub pid: Option<u32>,
}

/// Reads metrics.
pub trait Meter {
    /// The metric now, in the unit that [`Metric`] states. `targets` are those alive.
    fn read(&mut self, metric: &Metric, targets: &[LiveTarget]) -> Result<u64, MeterError>;

    /// The control group of a target, where it has one and that can be known.
    fn cgroup_of(&mut self, target: LiveTarget) -> Option<String> {
        let _ = target;
        None
    }
}

/// Reads nothing, for schemes that need no figures.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoMeter;

impl Meter for NoMeter {
    fn read(&mut self, metric: &Metric, _: &[LiveTarget]) -> Result<u64, MeterError> {
        let (reason, remedy) = ("nothing is read here".to_owned(), "use a goal that needs no figure".to_owned());
        Err(MeterError { metric: metric.to_string(), reason, remedy })
    }
}
