//! Where files lie: a folder of this machine, or an object store by its address.

use object_store::local::LocalFileSystem;
use object_store::path::Path as ObjectPath;
use object_store::{ObjectStore, parse_url_opts};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use url::Url;

/// Why a place cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LocationError {
    /// There is no such folder.
    #[error("{} is not a folder; give one that `isotherm node --parquet` writes to, or that holds such folders", path.display())]
    NoFolder {
        /// As it was given.
        path: PathBuf,
    },
    /// The address says nothing that could be used.
    #[error("{text}: {why}; write a folder, or s3://BUCKET/PREFIX, gs://, az:// or http://")]
    Address {
        /// As it was given.
        text: String,
        /// What is wrong.
        why: String,
    },
    /// It does not answer as it should.
    #[error("{place}: {why}")]
    Store {
        /// The place.
        place: String,
        /// What the store says, with what lies behind it.
        why: String,
    },
}

/// A place of files.
#[derive(Debug, Clone)]
pub struct Location {
    /// What answers.
    pub store: Arc<dyn ObjectStore>,
    /// Of the store, by which queries find it.
    pub root: Url,
    /// Below which all files lie.
    pub prefix: ObjectPath,
    /// The same where it is a folder of this machine.
    pub folder: Option<PathBuf>,
    /// As people wrote it.
    pub text: String,
}

impl Location {
    /// A folder, or an address with `://`. Object stores take what they need to know (keys, regions, end points) from the
    /// environment, by the names that their own tools use, such as `AWS_ACCESS_KEY_ID`.
    pub fn parse(text: &str) -> Result<Self, LocationError> {
        let address =
            |why: &dyn std::fmt::Display| LocationError::Address { text: text.to_owned(), why: why.to_string() };
        if !text.contains("://") {
            let folder = Path::new(text);
            let whole = folder.canonicalize().ok().filter(|whole| whole.is_dir());
            let whole = whole.ok_or_else(|| LocationError::NoFolder { path: folder.to_owned() })?;
            let prefix = ObjectPath::from_absolute_path(&whole).map_err(|e| address(&e))?;
            let root = Url::parse("file:///").map_err(|e| address(&e))?;
            let store = Arc::new(LocalFileSystem::new());
            return Ok(Self { store, root, prefix, folder: Some(whole), text: text.to_owned() });
        }
        let url = Url::parse(text).map_err(|e| address(&e))?;
        let settings = std::env::vars().map(|(name, value)| (name.to_ascii_lowercase(), value));
        let (store, prefix) = parse_url_opts(&url, settings).map_err(|e| address(&e))?;
        let root = Url::parse(&url[..url::Position::BeforePath]).map_err(|e| address(&e))?;
        Ok(Self { store: store.into(), root, prefix, folder: None, text: text.to_owned() })
    }

    /// The address of a file of it.
    pub fn url_of(&self, file: &ObjectPath) -> String {
        let mut url = self.root.clone();
        // Sets each part in the form that addresses have.
        if let Ok(mut parts) = url.path_segments_mut() {
            parts.clear().extend(file.parts().map(|part| part.as_ref().to_owned()));
        }
        url.into()
    }

    /// What a store says, with the place's name.
    pub fn fault(&self, error: &dyn std::error::Error) -> LocationError {
        LocationError::Store { place: self.text.clone(), why: error.to_string() }
    }
}
