//! What a job held on a host: the answer of `usage.sql`.

use crate::engine::columns::{count, ints, text, texts};
use datafusion::arrow::array::{Int64Array, RecordBatch};
use datafusion::error::Result;
use isotherm_core::history::times::IDLE_NS;

/// Number of idle times.
pub const IDLE: usize = IDLE_NS.len();

/// Sums over windows of one length after which equally many idle times were known; bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Usage {
    pub host: String,
    pub cluster: Option<String>,
    pub namespace: Option<String>,
    pub job: String,
    /// Length of each window, s.
    pub window_s: u64,
    /// Entries of the lists that have a value.
    pub known: usize,
    pub windows: u64,
    pub resident: u64,
    /// `None`: not known in any of them.
    pub swapped: Option<u64>,
    pub unobservable: u64,
    /// Of those windows in which it is known.
    pub accessed: u64,
    pub cold: [u64; IDLE],
    pub promoted: [u64; IDLE],
}

/// The rows of a batch.
pub fn usages(batch: &RecordBatch) -> Result<Vec<Usage>> {
    let (host, cluster) = (texts(batch, "host")?, texts(batch, "cluster_name")?);
    let (namespace, job) = (texts(batch, "namespace")?, texts(batch, "job")?);
    let numbers =
        ["window_s", "known", "windows", "resident_bytes", "swapped_bytes", "unobservable_bytes", "accessed_bytes"];
    let numbers = numbers.iter().map(|name| ints(batch, name)).collect::<Result<Vec<_>>>()?;
    let lists = |of: &str| (0..IDLE).map(|i| ints(batch, &format!("{of}_{i}"))).collect::<Result<Vec<Int64Array>>>();
    let (cold, promoted) = (lists("cold")?, lists("promoted")?);
    let row = |i: usize| {
        let number = |column: usize| count(&numbers[column], i).unwrap_or(0);
        let list = |of: &[Int64Array]| std::array::from_fn(|entry| count(&of[entry], i).unwrap_or(0));
        Usage {
            host: text(&host, i).unwrap_or_default().to_owned(),
            cluster: text(&cluster, i).map(str::to_owned),
            namespace: text(&namespace, i).map(str::to_owned),
            job: text(&job, i).unwrap_or_default().to_owned(),
            window_s: number(0),
            known: number(1) as usize,
            windows: number(2),
            resident: number(3),
            swapped: count(&numbers[4], i),
            unobservable: number(5),
            accessed: number(6),
            cold: list(&cold),
            promoted: list(&promoted),
        }
    };
    Ok((0..batch.num_rows()).map(row).collect())
}
