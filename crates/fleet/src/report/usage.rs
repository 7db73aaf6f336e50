//! What a job held on a host: the answer of `usage.sql`.

use crate::engine::columns::{count, ints, text, texts};
use datafusion::arrow::array::{Int64Array, RecordBatch};
use datafusion::error::Result;
use isotherm_core::history::times::IDLE_NS;

/// Number of idle times.
pub const IDLE: usize = IDLE_NS.len();

/// Sums over windows of one length in which the same figures were known; bytes. `None`: not known in any of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Usage {
    pub host: String,
    pub cluster: Option<String>,
    pub namespace: Option<String>,
    pub job: String,
    /// Length of each window, s.
    pub window_s: u64,
    /// Which figures are known: what `usage.sql` groups by.
    pub known: [u64; 3],
    pub windows: u64,
    pub resident: Option<u64>,
    pub swapped: Option<u64>,
    pub unobservable: Option<u64>,
    pub accessed: Option<u64>,
    pub cold: [Option<u64>; IDLE],
    pub promoted: [Option<u64>; IDLE],
}

impl Usage {
    /// Whose it is: usage of a host, cluster, namespace and job is added up together.
    pub fn whose(&self) -> (&str, Option<&str>, Option<&str>, &str) {
        (&self.host, self.cluster.as_deref(), self.namespace.as_deref(), &self.job)
    }
}

/// The rows of a batch.
pub fn usages(batch: &RecordBatch) -> Result<Vec<Usage>> {
    let (host, cluster) = (texts(batch, "host")?, texts(batch, "cluster_name")?);
    let (namespace, job) = (texts(batch, "namespace")?, texts(batch, "job")?);
    let columns = |names: &[&str]| names.iter().map(|name| ints(batch, name)).collect::<Result<Vec<_>>>();
    let counts = columns(&["window_s", "windows", "known", "known_promoted", "known_sizes"])?;
    let sizes = columns(&["resident_bytes", "swapped_bytes", "unobservable_bytes", "accessed_bytes"])?;
    let lists = |of: &str| (0..IDLE).map(|i| ints(batch, &format!("{of}_{i}"))).collect::<Result<Vec<Int64Array>>>();
    let (cold, promoted) = (lists("cold")?, lists("promoted")?);
    let row = |i: usize| {
        let number = |column: usize| count(&counts[column], i).unwrap_or(0);
        let size = |column: usize| count(&sizes[column], i);
        let list = |of: &[Int64Array]| std::array::from_fn(|entry| count(&of[entry], i));
        Usage {
            host: text(&host, i).unwrap_or_default().to_owned(),
            cluster: text(&cluster, i).map(str::to_owned),
            namespace: text(&namespace, i).map(str::to_owned),
            job: text(&job, i).unwrap_or_default().to_owned(),
            window_s: number(0),
            windows: number(1),
            known: [number(2), number(3), number(4)],
            resident: size(0),
            swapped: size(1),
            unobservable: size(2),
            accessed: size(3),
            cold: list(&cold),
            promoted: list(&promoted),
        }
    };
    Ok((0..batch.num_rows()).map(row).collect())
}
