//! Ready-made schemes with few knobs.

mod limit;
mod reclaim;
mod thp;
mod tier;

pub use limit::{rate, time_us};
pub use reclaim::ReclaimArgs;
pub use thp::ThpArgs;
pub use tier::TierArgs;

use crate::exit::Usage;
use isotherm_core::scheme::Scheme;

/// Checks schemes that were put together from flags.
fn checked(schemes: Vec<Scheme>) -> Result<Vec<Scheme>, Usage> {
    match schemes.iter().find_map(|s| s.validate().err()) {
        Some(e) => Err(Usage(e.to_string())),
        None => Ok(schemes),
    }
}
