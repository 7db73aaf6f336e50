//! Rows as columns of Parquet.

use super::VERSION_KEY;
use super::window::{ByIdle, GroupWindow, Origin};
use parquet::basic::{Compression, ZstdLevel};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::Result;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use std::io::Write;
use std::sync::Arc;

/// Changes whenever a column changes its meaning or goes; new columns at the end do not change it.
pub const SCHEMA_VERSION: u32 = 1;

/// The columns, in this order.
const SCHEMA: &str = "message isotherm_window {
    required int64 window_start (TIMESTAMP(MICROS,true));
    required int32 window_s;
    required binary host (STRING);
    optional binary cluster (STRING);
    required binary boot_id (STRING);
    required binary cgroup (STRING);
    optional int64 inode;
    optional binary namespace (STRING);
    optional binary pod (STRING);
    optional binary container (STRING);
    optional int64 resident_bytes;
    optional int64 swapped_bytes;
    optional int64 unobservable_bytes;
    optional int64 limit_bytes;
    optional int64 accessed_bytes;
    required group cold_bytes (LIST) { repeated group list { optional int64 element; } }
    required group promoted_bytes (LIST) { repeated group list { optional int64 element; } }
    optional int64 watched_s;
    optional int64 reclaimed_bytes;
    optional int64 refault_10s_bytes;
    optional int64 refault_60s_bytes;
    optional int64 stall_us;
    required binary source (STRING);
    optional int64 monitor_cpu_us;
    optional int64 target_cost_us;
    required binary kernel (STRING);
    required binary isotherm_version (STRING);
}";

/// Rows of a row group. A window of a machine has too few: readers pay for each group and column, and small groups
/// compress badly.
const GROUP_ROWS: usize = 4096;

/// A file that grows by a row group at a time.
pub(super) struct Columns<W: Write + Send> {
    writer: SerializedFileWriter<W>,
    origin: Origin,
    /// Rows that are not in a group yet.
    pending: Vec<GroupWindow>,
}

impl<W: Write + Send> Columns<W> {
    pub fn new(out: W, origin: Origin) -> Result<Self> {
        let version = KeyValue::new(VERSION_KEY.to_owned(), SCHEMA_VERSION.to_string());
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
            .set_created_by(format!("isotherm {}", origin.isotherm_version))
            .set_key_value_metadata(Some(vec![version]))
            .build();
        let schema = Arc::new(parse_message_type(SCHEMA)?);
        Ok(Self { writer: SerializedFileWriter::new(out, schema, Arc::new(properties))?, origin, pending: Vec::new() })
    }

    /// Appends rows.
    pub fn write(&mut self, rows: Vec<GroupWindow>) -> Result<()> {
        self.pending.extend(rows);
        if self.pending.len() >= GROUP_ROWS { self.write_group() } else { Ok(()) }
    }

    fn write_group(&mut self) -> Result<()> {
        let (rows, origin) = (std::mem::take(&mut self.pending), &self.origin);
        let mut group = Group { writer: self.writer.next_row_group()?, rows: &rows };
        group.required_int64(|row| row.window_start_us)?;
        group.required_int32(|row| row.window_s)?;
        group.text(|_| Some(&*origin.host))?;
        group.text(|_| origin.cluster.as_deref())?;
        group.text(|_| Some(&*origin.boot_id))?;
        group.text(|row| Some(&*row.cgroup))?;
        group.number(|row| row.inode)?;
        group.text(|row| row.namespace.as_deref())?;
        group.text(|row| row.pod.as_deref())?;
        group.text(|row| row.container.as_deref())?;
        group.number(|row| row.resident_bytes)?;
        group.number(|row| row.swapped_bytes)?;
        group.number(|row| row.unobservable_bytes)?;
        group.number(|row| row.limit_bytes)?;
        group.number(|row| row.accessed_bytes)?;
        group.by_idle(|row| &row.cold_bytes)?;
        group.by_idle(|row| &row.promoted_bytes)?;
        group.number(|row| row.watched_s)?;
        group.number(|row| row.reclaimed_bytes)?;
        group.number(|row| row.refault_10s_bytes)?;
        group.number(|row| row.refault_60s_bytes)?;
        group.number(|row| row.stall_us)?;
        group.text(|_| Some(&*origin.source))?;
        group.number(|row| row.monitor_cpu_us)?;
        group.number(|row| row.target_cost_us)?;
        group.text(|_| Some(&*origin.kernel))?;
        group.text(|_| Some(&*origin.isotherm_version))?;
        group.writer.close()?;
        Ok(())
    }

    /// Writes what stands at a file's end; returns what it was written to, all of it. Nothing may follow.
    pub fn finish(&mut self) -> Result<&W> {
        if !self.pending.is_empty() {
            self.write_group()?;
        }
        self.writer.finish()?;
        Ok(self.writer.inner())
    }
}

/// Rows on their way into the next columns.
struct Group<'a, W: Write + Send> {
    writer: SerializedRowGroupWriter<'a, W>,
    rows: &'a [GroupWindow],
}

impl<'a, W: Write + Send> Group<'a, W> {
    fn column(&mut self, write: impl FnOnce(&mut ColumnWriter<'_>) -> Result<usize>) -> Result<()> {
        let Some(mut column) = self.writer.next_column()? else {
            return Err(parquet::errors::ParquetError::General("more columns than the schema has".into()));
        };
        write(column.untyped())?;
        column.close()
    }

    fn required_int64(&mut self, value: impl Fn(&GroupWindow) -> i64) -> Result<()> {
        let values: Vec<i64> = self.rows.iter().map(value).collect();
        self.int64(&values, None, None)
    }

    fn required_int32(&mut self, value: impl Fn(&GroupWindow) -> u32) -> Result<()> {
        let values: Vec<i32> = self.rows.iter().map(|row| i32::try_from(value(row)).unwrap_or(i32::MAX)).collect();
        self.column(|column| match column {
            ColumnWriter::Int32ColumnWriter(column) => column.write_batch(&values, None, None),
            _ => Err(wrong_type()),
        })
    }

    fn number(&mut self, value: impl Fn(&GroupWindow) -> Option<u64>) -> Result<()> {
        let values: Vec<i64> = self.rows.iter().filter_map(&value).map(signed).collect();
        let defined: Vec<i16> = self.rows.iter().map(|row| value(row).is_some().into()).collect();
        self.int64(&values, Some(&defined), None)
    }

    fn by_idle(&mut self, list: impl Fn(&GroupWindow) -> &ByIdle) -> Result<()> {
        let entries = || self.rows.iter().flat_map(|row| list(row).iter().enumerate());
        let values: Vec<i64> = entries().filter_map(|(_, entry)| *entry).map(signed).collect();
        // An entry that is there, and one that has a value; the first of a row, and those that go on with it.
        let defined: Vec<i16> = entries().map(|(_, entry)| if entry.is_some() { 2 } else { 1 }).collect();
        let repeated: Vec<i16> = entries().map(|(i, _)| (i > 0).into()).collect();
        self.int64(&values, Some(&defined), Some(&repeated))
    }

    fn int64(&mut self, values: &[i64], defined: Option<&[i16]>, repeated: Option<&[i16]>) -> Result<()> {
        self.column(|column| match column {
            ColumnWriter::Int64ColumnWriter(column) => column.write_batch(values, defined, repeated),
            _ => Err(wrong_type()),
        })
    }

    /// In a column that must have a value none is ever missing, so that definition levels are left out.
    fn text<'t>(&mut self, value: impl Fn(&'t GroupWindow) -> Option<&'t str>) -> Result<()>
    where
        'a: 't,
    {
        let texts: Vec<Option<&str>> = self.rows.iter().map(value).collect();
        let values: Vec<ByteArray> = texts.iter().flatten().map(|text| ByteArray::from(*text)).collect();
        let defined: Vec<i16> = texts.iter().map(|text| text.is_some().into()).collect();
        self.column(|column| match column {
            ColumnWriter::ByteArrayColumnWriter(column) => {
                let is_optional = column.get_descriptor().max_def_level() > 0;
                column.write_batch(&values, is_optional.then_some(&defined[..]), None)
            }
            _ => Err(wrong_type()),
        })
    }
}

fn wrong_type() -> parquet::errors::ParquetError {
    parquet::errors::ParquetError::General("a column has another type than the schema says".into())
}

/// Parquet's sizes are signed; none of ours is so large.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
