//! The binary record that `record` names.

use crate::kdamond::Observer;
use isotherm_core::event::{Event, Subscriber, SubscriberError};
use isotherm_files::links;
use isotherm_record::{Export, Format, WriteError, exporter};
use rustix::fs::OFlags;
use rustix::process::geteuid;
use std::fs::File;
use std::io::{self, BufWriter};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Opens a record to be written anew, for whoever runs this alone; what is in it stays until [`observer`] begins. Only what is a plain file of this user's or root's is written over,
/// and links of others are not followed, so that nobody else chooses what root overwrites.
pub(super) fn create(path: &Path) -> io::Result<File> {
    let refused = |text: &str| Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    let place = links::followed(path)?;
    if place.symlink_metadata().is_ok_and(|meta| meta.is_symlink()) {
        return refused("it leads to what is no plain file; name a file");
    }
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let file = File::options().write(true).create(true).truncate(false).mode(0o600).custom_flags(flags).open(&place)?;
    // Of what is open, which nobody can exchange any more.
    let meta = file.metadata()?;
    if !meta.is_file() {
        return refused("it is no plain file; name a file");
    }
    if ![0, geteuid().as_raw()].contains(&meta.uid()) {
        return refused("it is somebody else's file; remove it, or name another");
    }
    Ok(file)
}

/// Who writes it, from an empty file on. It is emptied when the kdamond begins, not before: one that is refused must not
/// cost the record of the one before. Bytes are kept until there are `buffer` of them, and flushed at the kdamond's end.
pub(super) fn observer(file: File, path: &str, buffer: usize) -> Observer {
    let origin = path.to_owned();
    Box::new(move || {
        let emptied = file.set_len(0).map_err(|error| WriteError::Io { origin: origin.clone(), written: 0, error });
        let out = BufWriter::with_capacity(buffer, file);
        let state = emptied.and_then(|()| exporter(Format::BinaryV1, &origin, Box::new(out)));
        Box::new(match state {
            Ok(export) => Recorder { export: Some(export), failed: None },
            Err(error) => Recorder { export: None, failed: Some(error) },
        })
    })
}

struct Recorder {
    export: Option<Box<dyn Export>>,
    failed: Option<WriteError>,
}

impl Subscriber for Recorder {
    /// A record that cannot be written on is given up, as in the seed; what is watched and done goes on.
    fn event(&mut self, event: &Event) -> Result<(), SubscriberError> {
        if let Some(export) = &mut self.export
            && let Err(error) = export.write(event)
        {
            self.failed = Some(error);
            self.export = None;
        }
        if let Some(error) = self.failed.take() {
            tracing::error!("the record ends here: {error}");
        }
        Ok(())
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.export.take().map(Export::finish) {
            tracing::error!("the record's end is missing: {error}");
        }
    }
}
