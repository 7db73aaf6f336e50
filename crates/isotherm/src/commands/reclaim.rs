//! `isotherm reclaim`.

use super::preset::PresetArgs;
use crate::schemes::preset::ReclaimArgs;

/// Page out memory that has not been used for a while.
///
/// Each page goes by its own age, the oldest first, and it comes back when it is used. Should too much come back within
/// 10 s, or tasks wait for memory, an emergency brake stops it for a while and says so. Defaults are those of the
/// kernel's DAMON_RECLAIM, but it works whatever memory is free (see --watermarks). Needs swap, for example zram.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    reclaim: ReclaimArgs,
    #[command(flatten)]
    common: PresetArgs,
}

pub fn run(args: Args) -> anyhow::Result<()> {
    let schemes = args.reclaim.schemes()?;
    args.common.go(schemes)
}
