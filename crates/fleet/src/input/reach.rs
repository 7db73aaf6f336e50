//! Errors of the place that holds a file, which say nothing of what is in it: it may be read the next time.

use std::error::Error;
use std::io;

/// Whether `error` or what caused it is one: a system call that failed, or a store that refused or could not be asked. What a reader
/// cannot unpack is none, though it comes as an [`io::Error`], too.
pub fn is_of_the_place(error: &(dyn Error + 'static)) -> bool {
    if let Some(error) = error.downcast_ref::<io::Error>() {
        let inner = || error.get_ref().is_some_and(|inner| is_of_the_place(inner));
        return error.raw_os_error().is_some() || inner();
    }
    // Libraries box it before they give it as a cause.
    let of_store = error.downcast_ref().or_else(|| error.downcast_ref::<Box<object_store::Error>>().map(|e| &**e));
    of_store.is_some_and(says_store) || error.source().is_some_and(is_of_the_place)
}

fn says_store(error: &object_store::Error) -> bool {
    match error {
        object_store::Error::NotFound { .. }
        | object_store::Error::PermissionDenied { .. }
        | object_store::Error::Unauthenticated { .. } => true,
        // Of files of this machine the system's own error tells; a damaged one may ask for a range that it does not have.
        object_store::Error::Generic { store, .. } => *store != "LocalFileSystem",
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::error::DataFusionError;
    use datafusion::parquet::errors::ParquetError;

    #[test]
    fn what_the_place_says_is_told_from_what_the_file_says() {
        let store =
            |store: &'static str, source: io::Error| object_store::Error::Generic { store, source: source.into() };
        let denied = || object_store::Error::PermissionDenied { path: "x".into(), source: "no".into() };
        let io = |code| io::Error::from_raw_os_error(code);
        let parquet = |error: object_store::Error| {
            DataFusionError::ParquetError(Box::new(ParquetError::External(Box::new(error))))
        };
        for error in [
            DataFusionError::IoError(io(5)),
            DataFusionError::ObjectStore(Box::new(store("S3", io::Error::other("timed out")))),
            parquet(store("LocalFileSystem", io(13))),
            parquet(denied()),
            DataFusionError::External(Box::new(io::Error::other(denied()))),
        ] {
            assert!(is_of_the_place(&error), "{error:?}");
        }
        for error in [
            DataFusionError::IoError(io::Error::other("unknown frame descriptor")),
            DataFusionError::ParquetError(Box::new(ParquetError::EOF("eof".into()))),
            parquet(store("LocalFileSystem", io::Error::other("the range is empty"))),
            DataFusionError::Execution("it has 3 rows".into()),
        ] {
            assert!(!is_of_the_place(&error), "{error:?}");
        }
    }
}
