//! Work on whole hosts at a time, and what is done where a file turns out to be damaged in the middle.

use super::Engine;
use super::batches::by_hosts;
use super::clocks::{AgentWindow, agent_windows, leave_out, take_overlapping};
use crate::input::judge::{Fault, Inventory, LeftOut, WindowFile};
use crate::input::reach::is_of_the_place;
use crate::panics::caught;
use crate::progress::Progress;
use anyhow::bail;
use datafusion::error::{DataFusionError, Result};
use datafusion::prelude::SessionContext;
use object_store::ObjectStoreExt;
use object_store::path::Path;
use std::collections::HashSet;

/// Some hosts, with all their files.
#[allow(missing_debug_implementations)] // A session has none.
pub struct Hosts {
    /// Has the table `windows`.
    pub session: SessionContext,
    /// By host and time.
    pub windows: Vec<AgentWindow>,
    /// Those that cover a time twice.
    pub set_back: Vec<AgentWindow>,
}

/// Asks `ask` of all hosts, about `batch_rows` rows at a time, and hands the answers to `take` once they are whole. A file that
/// cannot be read in its middle moves to those left out, what was left out because of it comes back, and the files of these hosts
/// are asked again. Fails where nothing is left.
pub async fn each<A>(
    engine: &Engine,
    inventory: &mut Inventory,
    batch_rows: u64,
    ask: impl AsyncFn(&Hosts) -> Result<A>,
    mut take: impl FnMut(&Hosts, A),
) -> anyhow::Result<()> {
    let files = std::mem::take(&mut inventory.files);
    let progress = Progress::new("rows read", files.iter().map(|file| file.footer.rows).sum());
    for batch in by_hosts(&files, batch_rows) {
        let rows = batch.iter().map(|file| file.footer.rows).sum();
        let (first, last) = (&batch[0].footer.host, &batch[batch.len() - 1].footer.host);
        let mut batch = batch.to_vec();
        let mut damage_was_found = false;
        while !batch.is_empty() {
            match answer(engine, &batch, &ask).await {
                Ok((hosts, answer)) => {
                    take(&hosts, answer);
                    break;
                }
                Err(e) => {
                    // Of the place nothing is said that would hold the next time: to go on without these files would be to tell
                    // other figures each time.
                    let replaced = if damage_was_found || is_of_the_place(&e) {
                        Err(e)
                    } else {
                        match replace_damaged(engine, inventory, &mut batch, &ask).await {
                            Ok(true) => Ok(()),
                            Ok(false) => Err(e),
                            Err(of_place) => Err(of_place),
                        }
                    };
                    if let Err(e) = replaced {
                        bail!("the files of {first} to {last}: {}", e.strip_backtrace());
                    }
                    damage_was_found = true;
                }
            }
        }
        inventory.files.extend(batch);
        progress.add(rows);
    }
    progress.end();
    inventory.left_out.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(inventory.has_some(&engine.place)?)
}

/// What `ask` answers about files. Libraries panic at some damage.
async fn answer<A>(
    engine: &Engine,
    files: &[WindowFile],
    ask: &impl AsyncFn(&Hosts) -> Result<A>,
) -> Result<(Hosts, A)> {
    let answered = caught(async {
        let hosts = open(engine, files).await?;
        let answer = ask(&hosts).await?;
        Ok((hosts, answer))
    });
    answered.await.unwrap_or_else(|panic| Err(DataFusionError::External(Box::new(panic))))
}

/// Rows are missing, or there are too many.
#[derive(Debug, thiserror::Error)]
#[error("it has {there} rows, where its end says {said}")]
struct OtherRows {
    there: u64,
    said: u64,
}

async fn open(engine: &Engine, files: &[WindowFile]) -> Result<Hosts> {
    let paths: Vec<_> = files.iter().map(|file| file.path.clone()).collect();
    let session = engine.open(&paths).await?;
    let mut windows = agent_windows(&session).await?;
    let there = windows.iter().map(|window| window.rows).sum();
    let said = files.iter().map(|file| file.footer.rows).sum();
    // Of some damage in the middle a reader makes fewer rows.
    if there != said {
        return Err(DataFusionError::External(Box::new(OtherRows { there, said })));
    }
    let set_back = take_overlapping(&mut windows);
    leave_out(&session, &set_back).await?;
    Ok(Hosts { session, windows, set_back })
}

/// Takes damaged files out, and those in that were left out because of them, as far as these are whole. Returns whether any is
/// damaged. Fails where the place does.
async fn replace_damaged<A>(
    engine: &Engine,
    inventory: &mut Inventory,
    files: &mut Vec<WindowFile>,
    ask: &impl AsyncFn(&Hosts) -> Result<A>,
) -> Result<bool> {
    let mut good: Vec<WindowFile> = Vec::new();
    let mut unread = std::mem::take(files);
    let mut hosts = HashSet::new();
    loop {
        let damaged = take_damaged(engine, &mut unread, ask).await?;
        good.append(&mut unread);
        if damaged.is_empty() {
            break;
        }
        hosts.extend(damaged.iter().map(|(host, _)| host.clone()));
        inventory.left_out.extend(damaged.into_iter().map(|(_, out)| out));
        let read: HashSet<Path> = good.iter().map(|file| file.path.clone()).collect();
        (good, unread) = inventory.judge_again(good, &hosts).into_iter().partition(|file| read.contains(&file.path));
    }
    good.sort_by(|a, b| a.footer.host.cmp(&b.footer.host).then(a.footer.first_us.cmp(&b.footer.first_us)));
    *files = good;
    Ok(!hosts.is_empty())
}

/// Asks of each file by itself, and takes those out of which that cannot be answered. Returns them with their hosts.
/// Fails where the place does.
async fn take_damaged<A>(
    engine: &Engine,
    files: &mut Vec<WindowFile>,
    ask: &impl AsyncFn(&Hosts) -> Result<A>,
) -> Result<Vec<(String, LeftOut)>> {
    let (mut good, mut damaged) = (Vec::new(), Vec::new());
    for file in files.drain(..) {
        match answer(engine, std::slice::from_ref(&file), ask).await {
            Err(e) if is_of_the_place(&e) => return Err(e),
            // Too little memory is no fault of the file.
            Err(e) if !matches!(e.find_root(), DataFusionError::ResourcesExhausted(_)) => {
                // One that is not there any more has no rows.
                engine.place.store.head(&file.path).await.map_err(|e| DataFusionError::ObjectStore(Box::new(e)))?;
                let fault = Fault::Damaged(e.strip_backtrace());
                damaged.push((file.footer.host, LeftOut { path: file.path, fault, rows: Some(file.footer.rows) }));
            }
            _ => good.push(file),
        }
    }
    *files = good;
    Ok(damaged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::{find_some, location::Location};
    use datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    use datafusion::parquet::arrow::{
        ARROW_SCHEMA_META_KEY, ArrowSchemaConverter, ArrowWriter, encode_arrow_schema, parquet_to_arrow_schema,
    };
    use datafusion::parquet::file::metadata::KeyValue;
    use datafusion::parquet::file::properties::WriterProperties;
    use isotherm_record::parquet::files::HourFiles;
    use isotherm_record::parquet::window::{GroupWindow, Origin};
    use isotherm_record::parquet::{SCHEMA_VERSION, VERSION_KEY};
    use std::fs::{self, File};
    use std::path::{Path as FilePath, PathBuf};

    /// 2026-01-05 00:00 UTC.
    const BEGIN_US: i64 = 1_767_571_200_000_000;

    /// An hour of a host. Returns its file.
    fn write(folder: &FilePath, host: &str) -> PathBuf {
        let origin = Origin { host: host.to_owned(), ..Origin::default() };
        let mut files = HourFiles::new(folder, origin).unwrap();
        for i in 0..3 {
            let window_start_us = BEGIN_US + i * 300_000_000;
            let row =
                GroupWindow { window_start_us, window_s: 300, resident_bytes: Some(1000), ..GroupWindow::default() };
            files.write(window_start_us, vec![row]).unwrap();
        }
        files.finish().unwrap().unwrap()
    }

    /// The same rows with an Arrow schema in the metadata in which one character is another, so that decoding it panics.
    fn damage(path: &FilePath) {
        let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap();
        let schema = std::sync::Arc::clone(reader.schema());
        let good = encode_arrow_schema(&schema);
        let pairs = |text: String| {
            vec![
                KeyValue::new(VERSION_KEY.to_owned(), SCHEMA_VERSION.to_string()),
                KeyValue::new(ARROW_SCHEMA_META_KEY.to_owned(), text),
            ]
        };
        let columns = ArrowSchemaConverter::new().convert(&schema).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let panics = |text: &String| {
            let decoded = async { parquet_to_arrow_schema(&columns, Some(&pairs(text.clone()))).is_ok() };
            runtime.block_on(caught(decoded)).is_err()
        };
        let mut texts =
            (0..good.len()).flat_map(|i| ["A", "E", "g", "/"].map(|c| format!("{}{c}{}", &good[..i], &good[i + 1..])));
        let bad = texts.find(panics).expect("some damage makes the library panic");
        let properties = WriterProperties::builder().set_key_value_metadata(Some(pairs(bad))).build();
        let rows: Vec<_> = reader.build().unwrap().map(std::result::Result::unwrap).collect();
        let options = datafusion::parquet::arrow::arrow_writer::ArrowWriterOptions::new()
            .with_properties(properties)
            .with_skip_arrow_metadata(true);
        let mut writer = ArrowWriter::try_new_with_options(File::create(path).unwrap(), schema, options).unwrap();
        rows.iter().for_each(|batch| writer.write(batch).unwrap());
        writer.close().unwrap();
    }

    /// Hosts of windows that are read, and files left out. `change` changes what is known of files before.
    fn read(
        folder: &FilePath,
        change: fn(&mut Inventory),
    ) -> (anyhow::Result<Vec<String>>, Vec<(String, &'static str)>) {
        tokio::runtime::Runtime::new().unwrap().block_on(async {
            let place = Location::parse(folder.to_str().unwrap()).unwrap();
            let mut inventory = find_some(&place).await.unwrap();
            change(&mut inventory);
            let engine = Engine::new(place, 1 << 28, 2).unwrap();
            let mut hosts = Vec::new();
            let take =
                |_: &Hosts, windows: Vec<AgentWindow>| hosts.extend(windows.into_iter().map(|window| window.host));
            let ask = async |hosts: &Hosts| agent_windows(&hosts.session).await;
            let done = each(&engine, &mut inventory, 1000, ask, take).await;
            let name = |out: &LeftOut| out.path.filename().unwrap_or_default().to_owned();
            let out = inventory.left_out.iter().map(|out| (name(out), out.fault.code())).collect();
            (done.map(|()| hosts), out)
        })
    }

    /// A file of which a library panics stands before its good copy.
    #[test]
    fn a_damaged_file_gives_way_to_its_copy_and_stops_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "b");
        let path = write(folder.path(), "a");
        let copy = path.with_file_name("z-copy.parquet");
        fs::copy(&path, &copy).unwrap();
        damage(&path);
        let bad = (path.file_name().unwrap().to_str().unwrap().to_owned(), "damaged");
        let (hosts, out) = read(folder.path(), |_| {});
        assert_eq!((hosts.unwrap().concat(), out), ("aaabbb".to_owned(), vec![bad.clone()]));
        fs::remove_file(copy).unwrap();
        let (hosts, out) = read(folder.path(), |_| {});
        assert_eq!((hosts.unwrap().concat(), out), ("bbb".to_owned(), vec![bad]));
    }

    #[test]
    fn nothing_but_damaged_files_is_an_error_that_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = write(folder.path(), "a");
        fs::copy(&path, folder.path().join("z-copy.parquet")).unwrap();
        damage(&path);
        fs::copy(&path, folder.path().join("z-copy.parquet")).unwrap();
        let (done, out) = read(folder.path(), |_| {});
        let why = done.unwrap_err().to_string();
        assert!(why.contains("2 were left out") && why.contains("is damaged: "), "{why}");
        assert_eq!(out.iter().map(|(_, code)| *code).collect::<Vec<_>>(), ["damaged", "damaged"]);
    }

    /// The next time it may be there, or may be read.
    #[test]
    fn a_file_that_cannot_be_reached_is_not_called_damaged() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "a");
        write(folder.path(), "b");
        let remove = |inventory: &mut Inventory| fs::remove_file(format!("/{}", inventory.files[1].path)).unwrap();
        let replace = |inventory: &mut Inventory| {
            let path = format!("/{}", inventory.files[0].path);
            fs::remove_file(&path).unwrap();
            // Opening it is an error of the system.
            std::os::unix::fs::symlink(&path, &path).unwrap();
        };
        for change in [remove as fn(&mut Inventory), replace] {
            let (done, out) = read(folder.path(), change);
            let why = done.unwrap_err().to_string();
            assert!(why.starts_with("the files of a to ") && out.is_empty(), "{why} {out:?}");
        }
    }

    #[test]
    fn a_file_with_fewer_rows_than_its_end_says_is_damaged() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "a");
        let path = write(folder.path(), "b");
        let (hosts, out) = read(folder.path(), |inventory| inventory.files[1].footer.rows += 1);
        let bad = path.file_name().unwrap().to_str().unwrap().to_owned();
        assert_eq!((hosts.unwrap().concat(), out), ("aaa".to_owned(), vec![(bad, "damaged")]));
    }
}
