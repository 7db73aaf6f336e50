//! `isotherm thp`.

use super::preset::PresetArgs;
use super::schemes::run::{Wanted, WhenAhead};
use crate::schemes::preset::ThpArgs;
use isotherm_linux::facts::HugePages;
use isotherm_linux::roots::Roots;

/// Back memory with huge pages where it is used, and only there.
///
/// Memory in use becomes huge pages: faster for what has much of it. What has not been used for a while gets none, and
/// blocks of which little is populated are left alone, so that memory is not wasted. Thresholds are those of DAMON's
/// "ethp". Mappings that are being filled densely get huge pages ahead of the faults.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    thp: ThpArgs,
    /// Ask for huge pages ahead of the faults where a mapping is being filled densely
    #[arg(long, value_name = "WHEN", default_value = "auto", conflicts_with = "advise", help_heading = "Huge pages")]
    ahead: WhenAhead,
    #[command(flatten)]
    common: PresetArgs,
}

pub fn run(args: Args) -> anyhow::Result<()> {
    let schemes = args.thp.schemes(HugePages::read(&Roots::system()) == Some(HugePages::Always))?;
    let ahead = if args.thp.advise { WhenAhead::Never } else { args.ahead };
    args.common.go(Wanted { ahead, ..schemes.into() })
}
