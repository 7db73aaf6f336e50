//! Ready-made schemes with few knobs.

pub mod limit;
mod reclaim;
mod thp;
mod tier;

pub use limit::{age_us, rate};
pub use reclaim::ReclaimArgs;
pub use thp::ThpArgs;
pub use tier::TierArgs;

use crate::exit::Usage;
use isotherm_core::scheme::Scheme;
use isotherm_core::scheme::action::Action;
use isotherm_core::scheme::pattern::AccessPattern;

/// Schemes that make huge pages of `hot` memory of which at least `min_density_bp` is populated.
///
/// Where the kernel makes huge pages without being asked (`always`), memory that is `cold` is kept from getting any.
/// That ban must be lifted before memory that is hot again can be collapsed; the advice does so. Elsewhere nothing is
/// advised: advice would let the kernel fill sparse blocks, too.
fn huge_pages(hot: AccessPattern, cold: AccessPattern, min_density_bp: u32, always: bool) -> Vec<Scheme> {
    let mut collapse = Scheme::new(Action::Collapse, hot);
    collapse.min_density_bp = min_density_bp;
    if always {
        vec![Scheme::new(Action::NoHugePage, cold), Scheme::new(Action::HugePage, hot), collapse]
    } else {
        vec![collapse]
    }
}

/// Checks schemes that were put together from flags.
fn checked(schemes: Vec<Scheme>) -> Result<Vec<Scheme>, Usage> {
    match schemes.iter().find_map(|s| s.validate().err()) {
        Some(e) => Err(Usage(e.to_string())),
        None => Ok(schemes),
    }
}
