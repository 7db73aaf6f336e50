//! The files of `isotherm node` that are to be analysed: found, judged by their footers, and those that cannot be used
//! named with the reason.
//!
//! * [`location`]: a folder or an object store; [`walk`]: through a folder; [`footer`]: what a file's end tells; [`judge`]: which files are used;
//!   [`reach`]: errors that are no file's.

pub mod footer;
pub mod judge;
pub mod location;
pub mod reach;
mod walk;

use crate::progress::Progress;
use footer::Footer;
use futures_util::{StreamExt, TryStreamExt, stream};
use judge::{Fault, Found, Inventory, LeftOut};
use location::{Location, LocationError};
use object_store::ObjectMeta;
use object_store::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use walk::Walk;

/// Footers that are asked for at a time.
const AT_A_TIME: usize = 16;

/// A file by its name.
#[derive(Debug)]
pub struct Listed {
    pub path: Path,
    pub bytes: u64,
}

/// What the names of files end with, and of those that are being written.
const ENDINGS: [&str; 2] = [".parquet", ".parquet.part"];

/// Looks through a place. Fails only where that cannot be listed at all.
pub async fn find(place: &Location) -> Result<Inventory, LocationError> {
    let (listed, mut left_out) = list(place).await?;
    let (files, parts): (Vec<_>, Vec<_>) =
        listed.into_iter().partition(|file| file.path.filename().is_some_and(|name| name.ends_with(ENDINGS[0])));
    left_out.extend(parts.into_iter().map(|file| LeftOut { path: file.path, fault: Fault::Unfinished, rows: None }));
    let progress = Progress::new("footers read", files.len() as u64);
    let found: Vec<Found> = stream::iter(files)
        .map(|file| async {
            let footer = Footer::read(&place.store, &file).await;
            progress.add(1);
            let footer = footer.map_err(|why| place.fault_at(&file.path, why.to_string()))?;
            Ok(Found { path: file.path, bytes: file.bytes, footer })
        })
        .buffer_unordered(AT_A_TIME)
        .try_collect()
        .await?;
    progress.end();
    let now_us = SystemTime::now().duration_since(UNIX_EPOCH).map_or(i64::MAX, |t| t.as_micros() as i64);
    Ok(judge::judge(found, left_out, now_us, place.root_of_names()))
}

/// Files with names as the node gives them, and what cannot be looked at.
async fn list(place: &Location) -> Result<(Vec<Listed>, Vec<LeftOut>), LocationError> {
    let is_wanted = |name: &str| ENDINGS.iter().any(|ending| name.ends_with(ending));
    // The store for folders gives up at the first strange name.
    if let Some(folder) = &place.folder {
        let walk = Walk::new(folder, is_wanted).map_err(|e| place.fault(&e))?;
        return Ok((walk.files, walk.left_out));
    }
    let listed: Vec<ObjectMeta> =
        place.store.list(Some(&place.prefix)).try_collect().await.map_err(|e| place.fault(&e))?;
    let listed = listed.into_iter().map(|file| Listed { path: file.location, bytes: file.size });
    Ok((listed.filter(|file| file.path.filename().is_some_and(is_wanted)).collect(), Vec::new()))
}

/// Nothing to read.
#[derive(Debug, thiserror::Error)]
#[error(
    "{place} holds no file that can be read: {named} were left out{first}; `isotherm node --parquet DIR` writes such files"
)]
pub struct NothingFound {
    place: String,
    named: usize,
    first: String,
}

/// Looks through a place that must have at least one file that can be used.
pub async fn find_some(place: &Location) -> anyhow::Result<Inventory> {
    let inventory = find(place).await?;
    inventory.has_some(place)?;
    Ok(inventory)
}

impl Inventory {
    /// Fails where no file can be used.
    pub fn has_some(&self, place: &Location) -> Result<(), NothingFound> {
        if !self.files.is_empty() {
            return Ok(());
        }
        let first = self.left_out.first();
        let first = first
            .map(|out| format!(", the first ({}) because it {}", self.name_of(&out.path), out.fault))
            .unwrap_or_default();
        Err(NothingFound { place: place.text.clone(), named: self.left_out.len(), first })
    }
}
