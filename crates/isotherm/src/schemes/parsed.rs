//! What a scheme file holds, whatever its form.

use super::settings::{MonitorSettings, TargetSettings};
use isotherm_core::scheme::Scheme;

/// What one file holds.
#[derive(Debug, Default)]
pub struct Parsed {
    pub schemes: Vec<Scheme>,
    pub monitor: Option<MonitorSettings>,
    pub target: Option<TargetSettings>,
}
