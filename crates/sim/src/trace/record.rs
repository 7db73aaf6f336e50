//! Records of a monitor, turned into requests.
//!
//! A record tells rates, not requests. Each aggregation interval becomes [`ROUNDS`] rounds through its regions in order
//! of address. Where the record tells how many bytes of a region were accessed, that share of its pages takes part,
//! always the same pages (a hash of the address chooses); each of them is asked for in a round with the probability
//! with which a page of the region was found accessed. What could not be observed is left out. Pages are 4 KiB and
//! anonymous: a record does not tell. Those of different targets are different pages.

use super::chosen::Choice;
use super::{Builder, Manner, Next, TraceError, ids};
use isotherm_core::event::Event;
use isotherm_core::snapshot::{RegionInfo, Snapshot};
use isotherm_record::{Input, ReadError, read_events};
use std::collections::HashMap;
use std::path::PathBuf;

/// Rounds that stand for an aggregation interval.
const ROUNDS: u64 = 4;
const PAGE_SHIFT: u32 = 12;
/// Seed of the hash that chooses which pages of a region take part.
const MEMBERS: u64 = 0x5bd1_e995_0000_0000;
/// Largest region that is believed: 16 TiB.
const LARGEST: u64 = 1 << 44;

/// Reads a record, and the files of its further parts.
pub(super) fn read(first: Input, further: &[PathBuf], builder: &mut Builder<'_>) -> Result<(), TraceError> {
    let mut snapshots = Snapshots::default();
    let mut next = snapshots.read_part(first, builder)?;
    for part in further {
        if next == Next::Enough {
            break;
        }
        next = snapshots.read_part(Input::open(part)?, builder)?;
    }
    Ok(())
}

/// Those of all parts of a record.
#[derive(Debug, Default)]
struct Snapshots {
    /// How many were read so far.
    read: u64,
    targets: Targets,
}

impl Snapshots {
    fn read_part(&mut self, input: Input, builder: &mut Builder<'_>) -> Result<Next, TraceError> {
        let origin = input.origin().to_owned();
        let mut failure = None;
        let result = read_events(input, None, &mut |event| {
            let Event::Snapshot(snapshot) = event else { return Ok(()) };
            match self.add(&snapshot, &origin, builder) {
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

    fn add(&mut self, snapshot: &Snapshot, origin: &str, builder: &mut Builder<'_>) -> Result<Next, TraceError> {
        self.read += 1;
        let number = self.read;
        let too_large = |r: &&RegionInfo| r.end.saturating_sub(r.start) > LARGEST;
        if let Some(region) = snapshot.regions.iter().find(too_large) {
            let why =
                format!("snapshot {number} has a region of {} bytes, too large to believe", region.end - region.start);
            return Err(TraceError::Unknown { origin: origin.to_owned(), why });
        }
        let asked = |r: &&RegionInfo| r.end > r.start && r.nr_accesses > 0 && !r.is_unseen();
        let regions: Vec<&RegionInfo> = snapshot.regions.iter().filter(asked).collect();
        let Some(end) = regions.iter().map(|r| r.end).max() else { return Ok(Next::More) };
        let target = self.targets.in_names(snapshot.target, end).ok_or_else(|| TraceError::TooManyTargets {
            origin: origin.to_owned(),
            snapshot: number,
            targets: self.targets.numbers.len(),
        })?;
        for round in 0..ROUNDS {
            for region in &regions {
                if ask(snapshot, target, region, number * ROUNDS + round, builder)? == Next::Enough {
                    return Ok(Next::Enough);
                }
            }
        }
        Ok(Next::More)
    }
}

/// Tells the pages of different targets apart. A page's name holds its number in the low bits, and the target's in the high ones:
/// targets are numbered in order of appearance, and their numbers grow from the highest bit down, so that as many fit as addresses
/// leave room for.
#[derive(Debug, Default)]
struct Targets {
    numbers: HashMap<u32, u64>,
    /// Bits of the largest page number so far.
    page_bits: u32,
}

impl Targets {
    /// The bits of a target, with addresses below `end`, in the names of its pages. `None`: not all names are different any more.
    fn in_names(&mut self, target: u32, end: u64) -> Option<u64> {
        let next = self.numbers.len() as u64;
        let number = *self.numbers.entry(target).or_insert(next);
        self.page_bits = self.page_bits.max(bits((end - 1) >> PAGE_SHIFT));
        let last = self.numbers.len() as u64 - 1;
        (self.page_bits + bits(last) <= u64::BITS).then(|| number.reverse_bits())
    }
}

const fn bits(number: u64) -> u32 {
    u64::BITS - number.leading_zeros()
}

/// One round through a region, the `number`th in all. `target`: its bits in names.
fn ask(
    snapshot: &Snapshot,
    target: u64,
    region: &RegionInfo,
    number: u64,
    builder: &mut Builder<'_>,
) -> Result<Next, TraceError> {
    let share = region.accessed.map_or(1.0, |bytes| (bytes as f64 / region.len() as f64).min(1.0));
    let rate = region.access_rate(snapshot.max_nr_accesses);
    let members = Choice::new(share, MEMBERS);
    let asked = Choice::new(if share > 0.0 { (rate / share).min(1.0) } else { 0.0 }, ids::hash(number));
    let name = |page| target | page;
    let pages = region.start >> PAGE_SHIFT..((region.end - 1) >> PAGE_SHIFT) + 1;
    let (rarer, other) = if asked.is_rarer_than(&members) { (asked, members) } else { (members, asked) };
    rarer.each(pages, name, |page| match other.has(page, name) {
        true => builder.add(name(page), Manner::MAPPED),
        false => Ok(Next::More),
    })
}
