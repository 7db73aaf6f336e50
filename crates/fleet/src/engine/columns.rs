//! Columns of answers by name, whatever width an engine gave them.

use datafusion::arrow::array::{Array, AsArray, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::error::{DataFusionError, Result};

/// The column called `name`, of whole numbers.
pub fn ints(batch: &RecordBatch, name: &str) -> Result<Int64Array> {
    Ok(of_type(batch, name, &DataType::Int64)?.as_primitive::<Int64Type>().clone())
}

/// The column called `name`, of numbers.
#[cfg(test)]
pub fn floats(batch: &RecordBatch, name: &str) -> Result<datafusion::arrow::array::Float64Array> {
    let column = of_type(batch, name, &DataType::Float64)?;
    Ok(column.as_primitive::<datafusion::arrow::datatypes::Float64Type>().clone())
}

/// The column called `name`, of text.
pub fn texts(batch: &RecordBatch, name: &str) -> Result<StringArray> {
    Ok(of_type(batch, name, &DataType::Utf8)?.as_string::<i32>().clone())
}

/// The text in row `i`, if there is one.
pub fn text(column: &StringArray, i: usize) -> Option<&str> {
    column.is_valid(i).then(|| column.value(i))
}

/// The number in row `i`, if there is one. None of ours is below zero.
pub fn count(column: &Int64Array, i: usize) -> Option<u64> {
    column.is_valid(i).then(|| u64::try_from(column.value(i)).unwrap_or(0))
}

fn of_type(batch: &RecordBatch, name: &str, to: &DataType) -> Result<datafusion::arrow::array::ArrayRef> {
    let column = batch.column_by_name(name);
    let column = column.ok_or_else(|| DataFusionError::Internal(format!("an answer has no column {name}")))?;
    Ok(cast(column, to)?)
}
