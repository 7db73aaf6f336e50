//! Records of a monitor, turned into requests.
//!
//! A record tells rates, not requests. Each aggregation interval becomes [`ROUNDS`] rounds through its regions in order
//! of address. Where the record tells how many bytes of a region were accessed, that share of its pages takes part,
//! always the same pages (a hash of the address chooses); each of them is asked for in a round with the probability
//! with which a page of the region was found accessed. What could not be observed is left out. Pages are 4 KiB and
//! anonymous: a record does not tell.

use super::chosen::Choice;
use super::{Builder, Manner, Next, TraceError, ids};
use isotherm_core::event::Event;
use isotherm_core::snapshot::{RegionInfo, Snapshot};
use isotherm_record::{Input, ReadError, read_events};
use std::path::PathBuf;

/// Rounds that stand for an aggregation interval.
const ROUNDS: u64 = 4;
const PAGE_SHIFT: u32 = 12;
/// Addresses have 52 bits above the page's; targets are distinguished in the bits above.
const TARGET_SHIFT: u32 = 52;
/// Seed of the hash that chooses which pages of a region take part.
const MEMBERS: u64 = 0x5bd1_e995_0000_0000;
/// Largest region that is believed: 16 TiB.
const LARGEST: u64 = 1 << 44;

/// Reads a record, and the files of its further parts.
pub(super) fn read(first: Input, further: &[PathBuf], builder: &mut Builder<'_>) -> Result<(), TraceError> {
    let mut number = 0;
    let mut next = read_part(first, &mut number, builder)?;
    for part in further {
        if next == Next::Enough {
            break;
        }
        next = read_part(Input::open(part)?, &mut number, builder)?;
    }
    Ok(())
}

/// `number`: of the snapshots read so far.
fn read_part(input: Input, number: &mut u64, builder: &mut Builder<'_>) -> Result<Next, TraceError> {
    let origin = input.origin().to_owned();
    let mut failure = None;
    let result = read_events(input, None, &mut |event| {
        let Event::Snapshot(snapshot) = event else { return Ok(()) };
        *number += 1;
        let added = add(&snapshot, *number, &origin, builder);
        match added {
            Ok(Next::More) => Ok(()),
            // An error ends the reading; what is enough is none for the caller.
            Ok(Next::Enough) => Err("enough".into()),
            Err(error) => {
                failure = Some(error);
                Err("failed".into())
            }
        }
    });
    match (failure, result) {
        (Some(error), _) => Err(error),
        (None, Ok(_)) => Ok(Next::More),
        (None, Err(ReadError::Sink(_))) => Ok(Next::Enough),
        (None, Err(error)) => Err(error.into()),
    }
}

fn add(snapshot: &Snapshot, number: u64, origin: &str, builder: &mut Builder<'_>) -> Result<Next, TraceError> {
    let too_large = |r: &&RegionInfo| r.end.saturating_sub(r.start) > LARGEST;
    if let Some(region) = snapshot.regions.iter().find(too_large) {
        let why =
            format!("snapshot {number} has a region of {} bytes, too large to believe", region.end - region.start);
        return Err(TraceError::Unknown { origin: origin.to_owned(), why });
    }
    for round in 0..ROUNDS {
        for region in snapshot.regions.iter().filter(|r| r.end > r.start && r.nr_accesses > 0 && !r.is_unseen()) {
            if ask(snapshot, region, number * ROUNDS + round, builder)? == Next::Enough {
                return Ok(Next::Enough);
            }
        }
    }
    Ok(Next::More)
}

/// One round through a region, the `number`th in all.
fn ask(snapshot: &Snapshot, region: &RegionInfo, number: u64, builder: &mut Builder<'_>) -> Result<Next, TraceError> {
    let share = region.accessed.map_or(1.0, |bytes| (bytes as f64 / region.len() as f64).min(1.0));
    let rate = region.access_rate(snapshot.max_nr_accesses);
    let members = Choice::new(share, MEMBERS);
    let asked = Choice::new(if share > 0.0 { (rate / share).min(1.0) } else { 0.0 }, ids::hash(number));
    let name = |page| u64::from(snapshot.target) << TARGET_SHIFT ^ page;
    let pages = region.start >> PAGE_SHIFT..((region.end - 1) >> PAGE_SHIFT) + 1;
    let (rarer, other) = if asked.is_rarer_than(&members) { (asked, members) } else { (members, asked) };
    rarer.each(pages, name, |page| match other.has(page, name) {
        true => builder.add(name(page), Manner::MAPPED),
        false => Ok(Next::More),
    })
}
