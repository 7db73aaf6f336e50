//! Where files lie: a folder of this machine, or an object store by its address.

use object_store::local::LocalFileSystem;
use object_store::path::Path as ObjectPath;
use object_store::{ObjectStore, parse_url_opts};
use std::ffi::OsString;
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

/// What names of variables begin with that object stores' own tools go by. Others would be taken for settings, too: the stores know
/// words like `token` and `region` by themselves.
const OF_STORES: [&str; 3] = ["aws_", "google_", "azure_"];

/// Settings of object stores among `variables`. One that is no UTF-8 is none.
fn settings(variables: impl Iterator<Item = (OsString, OsString)>) -> impl Iterator<Item = (String, String)> {
    variables.filter_map(|(name, value)| {
        let name = name.into_string().ok()?.to_ascii_lowercase();
        let is_of_stores = OF_STORES.iter().any(|begin| name.starts_with(begin));
        is_of_stores.then(|| Some((name, value.into_string().ok()?))).flatten()
    })
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
        // Whoever writes http:// means that.
        let of_scheme = (url.scheme() == "http").then(|| ("allow_http".to_owned(), "true".to_owned()));
        let (store, prefix) =
            parse_url_opts(&url, settings(std::env::vars_os()).chain(of_scheme)).map_err(|e| address(&e))?;
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

    /// What names of its files begin with, before their paths in the store.
    pub const fn root_of_names(&self) -> &'static str {
        if self.folder.is_some() { "/" } else { "" }
    }

    /// What a store says, with the place's name.
    pub fn fault(&self, error: &dyn std::error::Error) -> LocationError {
        LocationError::Store { place: self.text.clone(), why: error.to_string() }
    }

    /// The same of one of its files.
    pub fn fault_at(&self, file: &ObjectPath, why: String) -> LocationError {
        LocationError::Store { place: format!("{}: {}{file}", self.text, self.root_of_names()), why }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    #[test]
    fn only_variables_of_object_stores_are_handed_on() {
        let odd = || OsString::from_vec(vec![b'x', 0xff]);
        let given = [
            ("AWS_REGION".into(), "eu-1".into()),
            ("google_bucket".into(), "b".into()),
            ("REGION".into(), "none".into()),
            ("TOKEN".into(), "secret".into()),
            (odd(), "x".into()),
            ("AZURE_TENANT_ID".into(), odd()),
            ("PATH".into(), odd()),
        ];
        let kept: Vec<_> = settings(given.into_iter()).collect();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(kept, [pair("aws_region", "eu-1"), pair("google_bucket", "b")]);
    }
}
