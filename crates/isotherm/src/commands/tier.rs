//! `isotherm tier`.

use super::preset::PresetArgs;
use crate::schemes::preset::TierArgs;
use isotherm_linux::facts::HugePages;
use isotherm_linux::roots::Roots;

/// Keep cold memory in swap or on a slower node, and hot memory in huge pages or on a faster node.
///
/// Memory is cold or hot by how often and since when it is accessed. Cold memory goes to swap, or with --slow-node to
/// that node, and gets no huge pages any more; hot memory becomes huge pages, and with --fast-node comes back to that
/// node. Each page is cold by itself, whatever the memory around it does.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    tier: TierArgs,
    #[command(flatten)]
    common: PresetArgs,
}

pub fn run(args: Args) -> anyhow::Result<()> {
    let schemes = args.tier.schemes(HugePages::read(&Roots::system()) == Some(HugePages::Always))?;
    args.common.go(schemes)
}
