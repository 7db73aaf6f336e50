//! The queries, in the SQL that DataFusion, Spark and DuckDB share. Only how lists and times are read differs.

/// The view `windows` over the table `files`, as DataFusion reads it.
pub const WINDOWS: &str = include_str!("../../sql/windows.datafusion.sql");
/// What each machine's agent did in each window.
pub const AGENTS: &str = include_str!("../../sql/agents.sql");
/// What each job held on each machine.
pub const USAGE: &str = include_str!("../../sql/usage.sql");
/// What a policy would have done, as other engines answer it.
#[cfg(test)]
pub const WHAT_IF: &str = include_str!("../../sql/what_if.sql");
