//! DataFusion, and how it gets at files and queries. Memory is bounded: what is more goes to files.
//!
//! * [`queries`]: the SQL; [`batches`], [`hosts`]: whole hosts at a time; [`clocks`]: windows of agents;
//!   [`columns`]: answers.

pub mod batches;
pub mod clocks;
pub mod columns;
pub mod hosts;
pub mod queries;

use crate::input::footer::{COLUMNS, MORE_COLUMNS};
use crate::input::location::Location;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl};
use datafusion::error::Result;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::prelude::{SessionConfig, SessionContext};
use object_store::path::Path;
use std::sync::Arc;

/// The column that has the time.
const TIME: &str = "window_start";

/// An engine over the files of a place.
#[derive(Debug)]
pub struct Engine {
    runtime: Arc<RuntimeEnv>,
    place: Location,
    threads: usize,
}

impl Engine {
    /// One that holds about `memory` bytes at most, and spills the rest into the folder for temporary files.
    pub fn new(place: Location, memory: usize, threads: usize) -> Result<Self> {
        let runtime = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(FairSpillPool::new(memory)))
            .with_disk_manager_builder(DiskManagerBuilder::default().with_mode(DiskManagerMode::OsTmpDirectory))
            .build_arc()?;
        runtime.register_object_store(&place.root, Arc::clone(&place.store));
        Ok(Self { runtime, place, threads })
    }

    /// A session in which the table `windows` has the rows of these files.
    pub async fn open(&self, files: &[Path]) -> Result<SessionContext> {
        let mut config = SessionConfig::new().with_target_partitions(self.threads).with_collect_statistics(false);
        // All rows are asked for. Without filters and indexes a file is read in the same way whatever lies beside it, so that what
        // is damaged is found when it is read by itself.
        let options = config.options_mut();
        options.optimizer.enable_dynamic_filter_pushdown = false;
        options.optimizer.enable_join_dynamic_filter_pushdown = false;
        options.execution.parquet.enable_page_index = false;
        options.execution.parquet.pruning = false;
        let session = SessionContext::new_with_config_rt(config, Arc::clone(&self.runtime));
        let urls =
            files.iter().map(|file| ListingTableUrl::parse(self.place.url_of(file))).collect::<Result<Vec<_>>>()?;
        let options = ListingOptions::new(Arc::new(ParquetFormat::default()))
            .with_file_extension(".parquet")
            .with_collect_stat(false)
            .with_target_partitions(self.threads);
        let config = ListingTableConfig::new_with_multi_paths(urls).with_listing_options(options).with_schema(schema());
        session.register_table("files", Arc::new(ListingTable::try_new(config)?))?;
        session.sql(queries::WINDOWS).await?;
        Ok(session)
    }
}

/// What queries ask for, whichever files there are: footers have shown that all have these columns. Newer ones may have more.
fn schema() -> SchemaRef {
    let field = |(name, kind): (&str, &str)| {
        let kind = match kind {
            _ if name == TIME => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            "INT32" => DataType::Int32,
            "INT64" => DataType::Int64,
            _ => DataType::Utf8View,
        };
        match name.strip_suffix(".list.element") {
            Some(name) => Field::new_list(name, Field::new("element", kind, true), true),
            None => Field::new(name, kind, true),
        }
    };
    Arc::new(Schema::new(COLUMNS.into_iter().chain(MORE_COLUMNS).map(field).collect::<Vec<_>>()))
}

/// All rows that a query answers.
pub async fn rows_of(session: &SessionContext, sql: &str) -> Result<Vec<RecordBatch>> {
    session.sql(sql).await?.collect().await
}
