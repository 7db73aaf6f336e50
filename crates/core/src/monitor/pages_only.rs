//! No regions: the page history's walks are all that looks at memory, and have the budget to themselves.

use super::algorithm::{Algorithm, Stretch};
use crate::addr::AddrRange;
use crate::attrs::MonitorAttrs;
use crate::event::Mode;
use crate::snapshot::RegionInfo;
use crate::source::{AccessSource, SourceError};
use crate::target::TargetId;

/// See the module.
#[derive(Debug)]
pub(super) struct PagesOnly;

impl Algorithm for PagesOnly {
    fn set_space(&mut self, _: TargetId, _: &[AddrRange], _: &MonitorAttrs) {}

    fn drop_target(&mut self, _: TargetId) {}

    fn prepare(&mut self, _: TargetId, _: u32, _: u32, _: &mut dyn AccessSource) -> Result<(), SourceError> {
        Ok(())
    }

    fn next_check(&self, _: u32, per_aggr: u32) -> u32 {
        per_aggr
    }

    fn check(&mut self, _: TargetId, _: u32, _: u32, _: &mut dyn AccessSource) -> Result<(), SourceError> {
        Ok(())
    }

    fn aggregate(&mut self, _: &MonitorAttrs) {}

    fn regions(&self, _: TargetId, _: &mut Vec<RegionInfo>) {}

    fn reset(&mut self, _: &MonitorAttrs) {}

    fn rescale_ages(&mut self, _: u64, _: u64) {}

    fn adapt(&mut self, _: f64, _: f64, _: &MonitorAttrs) -> Stretch {
        Stretch::Keep
    }

    fn nr_regions(&self) -> usize {
        0
    }

    fn mode(&self) -> Mode {
        Mode::Scan
    }
}
