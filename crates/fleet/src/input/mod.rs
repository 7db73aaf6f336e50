//! The files of `isotherm node` that are to be analysed: found, judged by their footers, and those that cannot be used
//! named with the reason.
//!
//! * [`location`]: a folder or an object store; [`footer`]: what a file's end tells; [`judge`]: which files are used.

pub mod footer;
pub mod judge;
pub mod location;

use crate::progress::Progress;
use footer::Footer;
use futures_util::{StreamExt, TryStreamExt, stream};
use judge::{Found, Inventory};
use location::{Location, LocationError};
use object_store::ObjectMeta;
use std::time::{SystemTime, UNIX_EPOCH};

/// Footers that are asked for at a time.
const AT_A_TIME: usize = 16;

/// Looks through a place. Fails only where that cannot be listed at all.
pub async fn find(place: &Location) -> Result<Inventory, LocationError> {
    let listed: Vec<ObjectMeta> =
        place.store.list(Some(&place.prefix)).try_collect().await.map_err(|e| place.fault(&e))?;
    let (files, parts): (Vec<_>, Vec<_>) = listed
        .into_iter()
        .filter(|file| is_named(file, ".parquet") || is_named(file, ".parquet.part"))
        .partition(|file| is_named(file, ".parquet"));
    let progress = Progress::new("footers read", files.len() as u64);
    let found: Vec<Found> = stream::iter(files)
        .map(|file| async {
            let footer = Footer::read(&place.store, &file).await;
            progress.add(1);
            Found { path: file.location, bytes: file.size, footer }
        })
        .buffer_unordered(AT_A_TIME)
        .collect()
        .await;
    progress.end();
    let now_us = SystemTime::now().duration_since(UNIX_EPOCH).map_or(i64::MAX, |t| t.as_micros() as i64);
    let unfinished = parts.into_iter().map(|file| file.location).collect();
    Ok(judge::judge(found, unfinished, now_us))
}

fn is_named(file: &ObjectMeta, ending: &str) -> bool {
    file.location.filename().is_some_and(|name| name.ends_with(ending))
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
    if inventory.files.is_empty() {
        let first = inventory.left_out.first();
        let first = first.map(|out| format!(", the first ({}) because it {}", out.path, out.fault)).unwrap_or_default();
        return Err(NothingFound { place: place.text.clone(), named: inventory.left_out.len(), first }.into());
    }
    Ok(inventory)
}
