//! Windows of control groups in Parquet files, one for each hour: what many machines' memory is judged by later.
//!
//! * [`window`]: a row; [`columns`]: how rows become columns; [`files`]: the files of a folder.

mod columns;
pub mod files;
pub mod window;

pub use columns::SCHEMA_VERSION;

/// The key of the schema's version in a file's metadata.
pub const VERSION_KEY: &str = "isotherm.schema_version";
