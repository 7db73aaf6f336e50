//! What the end of a file tells of it, without a look at its rows.

use super::Listed;
use super::reach::is_of_the_place;
use crate::panics::caught;
use datafusion::parquet::arrow::arrow_reader::ArrowReaderOptions;
use datafusion::parquet::arrow::async_reader::{AsyncFileReader, ParquetObjectReader};
use datafusion::parquet::basic::{ConvertedType, LogicalType, TimeUnit};
use datafusion::parquet::errors::ParquetError;
use datafusion::parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use datafusion::parquet::file::statistics::Statistics;
use datafusion::parquet::schema::types::ColumnDescriptor;
use isotherm_record::parquet::{SCHEMA_VERSION, VERSION_KEY};
use object_store::ObjectStore;
use std::sync::Arc;

/// Bytes at a file's end that are read at once; the footer of an hour of 100 groups fits.
const FOOTER_BYTES: usize = 32 << 10;
/// What queries ask for, with its type in the file.
pub const COLUMNS: [(&str, &str); 18] = [
    ("window_start", "INT64"),
    ("window_s", "INT32"),
    ("host", "BYTE_ARRAY"),
    ("cluster", "BYTE_ARRAY"),
    ("boot_id", "BYTE_ARRAY"),
    ("cgroup", "BYTE_ARRAY"),
    ("inode", "INT64"),
    ("namespace", "BYTE_ARRAY"),
    ("container", "BYTE_ARRAY"),
    ("resident_bytes", "INT64"),
    ("swapped_bytes", "INT64"),
    ("unobservable_bytes", "INT64"),
    ("accessed_bytes", "INT64"),
    ("cold_bytes.list.element", "INT64"),
    ("promoted_bytes.list.element", "INT64"),
    ("source", "BYTE_ARRAY"),
    ("kernel", "BYTE_ARRAY"),
    ("isotherm_version", "BYTE_ARRAY"),
];

/// What they ask for where it is there.
pub const MORE_COLUMNS: [(&str, &str); 2] = [("monitor_cpu_us", "INT64"), ("target_cost_us", "INT64")];

/// A file that can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Footer {
    /// Whose windows it holds: `CLUSTER/HOST`, or the host where it has no cluster, as `windows.datafusion.sql` has it.
    pub host: String,
    /// Begin of the first window, microseconds since 1970.
    pub first_us: i64,
    /// Begin of the last one.
    pub last_us: i64,
    pub rows: u64,
}

/// Why a file cannot be used by itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FooterFault {
    #[error("cannot be read to its end: {0}; it was cut off or damaged")]
    Unreadable(String),
    #[error("was not written by `isotherm node`: its metadata has no {VERSION_KEY}")]
    Foreign,
    #[error(
        "has version {0} of the schema, and version {SCHEMA_VERSION} is what is known here; use a newer isotherm-fleet"
    )]
    NewerSchema(String),
    #[error("has no column {0} of the type that version {SCHEMA_VERSION} of the schema says")]
    Columns(&'static str),
    #[error(
        "does not say of window_start that it is in microseconds, as version {SCHEMA_VERSION} of the schema has it, but {0}"
    )]
    TimeUnit(String),
    #[error("holds windows of several hosts; give the files as the node wrote them")]
    SeveralHosts,
    #[error("has no rows")]
    Empty,
    #[error("does not tell the range of its window_start, host and cluster: no statistics")]
    NoStatistics,
}

impl Footer {
    /// Reads the end of `file`. Fails where the place that holds it does.
    pub async fn read(store: &Arc<dyn ObjectStore>, file: &Listed) -> Result<Result<Self, FooterFault>, ParquetError> {
        let footer = caught(Self::read_end(store, file)).await;
        footer.unwrap_or_else(|panic| Ok(Err(FooterFault::Unreadable(panic.to_string()))))
    }

    async fn read_end(store: &Arc<dyn ObjectStore>, file: &Listed) -> Result<Result<Self, FooterFault>, ParquetError> {
        let mut reader = ParquetObjectReader::new(Arc::clone(store), file.path.clone())
            .with_file_size(file.bytes)
            .with_footer_size_hint(FOOTER_BYTES);
        let options = ArrowReaderOptions::new();
        match reader.get_metadata(Some(&options)).await {
            Ok(metadata) => Ok(Self::of(&metadata, file.bytes)),
            Err(e) if is_of_the_place(&e) => Err(e),
            Err(e) => Ok(Err(FooterFault::Unreadable(e.to_string()))),
        }
    }

    /// What a file's metadata says.
    fn of(metadata: &ParquetMetaData, bytes: u64) -> Result<Self, FooterFault> {
        let file = metadata.file_metadata();
        let version = file.key_value_metadata().and_then(|pairs| pairs.iter().find(|pair| pair.key == VERSION_KEY));
        let version = version.and_then(|pair| pair.value.as_deref()).ok_or(FooterFault::Foreign)?;
        match version.parse::<u32>() {
            Ok(number) if number <= SCHEMA_VERSION => {}
            _ => return Err(FooterFault::NewerSchema(version.to_owned())),
        }
        let columns = file.schema_descr().columns();
        let place = |name: &str, kind: &str| {
            columns.iter().position(|c| c.path().string() == name && c.physical_type().to_string() == kind)
        };
        for (name, kind) in COLUMNS {
            place(name, kind).ok_or(FooterFault::Columns(name))?;
        }
        let [start, host, cluster] = [("window_start", "INT64"), ("host", "BYTE_ARRAY"), ("cluster", "BYTE_ARRAY")]
            .map(|(name, kind)| place(name, kind).ok_or(FooterFault::Columns(name)));
        let (start, host, cluster) = (start?, host?, cluster?);
        check_unit(&columns[start])?;
        if file.num_rows() <= 0 {
            return Err(FooterFault::Empty);
        }
        let (mut first_us, mut last_us, mut name) = (i64::MAX, i64::MIN, None::<String>);
        for group in metadata.row_groups() {
            let known = |column: usize| group.column(column).statistics().ok_or(FooterFault::NoStatistics);
            let Statistics::Int64(starts) = known(start)? else { return Err(FooterFault::NoStatistics) };
            let (Some(least), Some(most)) = (starts.min_opt(), starts.max_opt()) else {
                return Err(FooterFault::NoStatistics);
            };
            (first_us, last_us) = (first_us.min(*least), last_us.max(*most));
            let host = one_name(known(host)?, group.num_rows())?.ok_or(FooterFault::NoStatistics)?;
            let this = match one_name(known(cluster)?, group.num_rows())? {
                Some(cluster) => format!("{cluster}/{host}"),
                None => host,
            };
            if name.as_ref().is_some_and(|name| *name != this) {
                return Err(FooterFault::SeveralHosts);
            }
            name = Some(this);
        }
        let end = |group: &RowGroupMetaData| {
            let ends = group.columns().iter().map(|column| column.byte_range()).map(|(at, length)| at + length);
            ends.max().unwrap_or(0)
        };
        if metadata.row_groups().iter().any(|group| end(group) > bytes) {
            return Err(FooterFault::Unreadable("its rows reach beyond its end".to_owned()));
        }
        let host = name.ok_or(FooterFault::Empty)?;
        Ok(Self { host, first_us, last_us, rows: file.num_rows().unsigned_abs() })
    }
}

/// The name that all of `rows` rows have; `None`: none has any.
fn one_name(names: &Statistics, rows: i64) -> Result<Option<String>, FooterFault> {
    let Statistics::ByteArray(names) = names else { return Err(FooterFault::NoStatistics) };
    let nulls = names.null_count_opt().unwrap_or(0);
    match (names.min_opt(), names.max_opt()) {
        // Long names are cut in statistics, where the greatest value is then one above.
        (Some(from), Some(to)) if nulls == 0 && (from == to || !names.max_is_exact()) => {
            Ok(Some(String::from_utf8_lossy(from.data()).into_owned()))
        }
        (Some(_), Some(_)) => Err(FooterFault::SeveralHosts),
        _ if nulls == rows.unsigned_abs() => Ok(None),
        _ => Err(FooterFault::NoStatistics),
    }
}

/// Times in another unit would be times of another century.
fn check_unit(start: &ColumnDescriptor) -> Result<(), FooterFault> {
    match (start.logical_type_ref(), start.converted_type()) {
        (Some(LogicalType::Timestamp { unit: TimeUnit::MICROS, .. }), _) | (None, ConvertedType::TIMESTAMP_MICROS) => {
            Ok(())
        }
        (Some(LogicalType::Timestamp { unit, .. }), _) => Err(FooterFault::TimeUnit(format!("{unit:?}"))),
        (None, ConvertedType::NONE) => Err(FooterFault::TimeUnit("nothing".to_owned())),
        (Some(other), _) => Err(FooterFault::TimeUnit(format!("{other:?}"))),
        (None, other) => Err(FooterFault::TimeUnit(other.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::parquet::schema::parser::parse_message_type;
    use datafusion::parquet::schema::types::SchemaDescriptor;

    #[test]
    fn only_microseconds_are_taken_for_microseconds() {
        let check = |kind: &str| {
            let schema = parse_message_type(&format!("message m {{ required int64 window_start {kind}; }}")).unwrap();
            check_unit(&SchemaDescriptor::new(Arc::new(schema)).column(0)).map_err(|fault| fault.to_string())
        };
        assert_eq!((check("(TIMESTAMP(MICROS,true))"), check("(TIMESTAMP_MICROS)")), (Ok(()), Ok(())));
        for (kind, unit) in
            [("(TIMESTAMP(MILLIS,true))", "MILLIS"), ("(TIMESTAMP(NANOS,true))", "NANOS"), ("", "nothing")]
        {
            let why = check(kind).unwrap_err();
            assert!(why.contains(unit) && why.contains("window_start"), "{why}");
        }
    }
}
