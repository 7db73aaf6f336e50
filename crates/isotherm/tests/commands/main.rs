//! The `isotherm` command as people run it. One program holds all of these tests: each further one would be compiled, linked and linted on its own,
//! and tests of several programs would wait for the clock one after the other. Only what must have its process to itself lies beside it.
//!
//! Tests whose names begin with `root_` need root and eBPF.

#[path = "../../../linux/tests/common/zram.rs"]
mod zram;

mod common;
mod hint;

mod bad_records;
mod bad_targets;
mod bad_usage;
mod control;
mod convert;
mod corpus;
mod doctor;
mod exit_status;
mod full_disk;
mod group_namespace;
mod installed_files;
mod logs;
mod lru;
mod mount;
mod mount_busy;
mod mount_control;
mod mount_kdamond;
mod mount_lru_gen;
mod node;
mod node_restart;
mod node_rules;
mod node_rules_more;
mod package_scripts;
mod presets;
mod ps;
mod report;
mod report_files;
mod sandbox;
mod schemes;
mod sim_guests;
mod sim_lru;
mod sim_monitor;
mod sim_schemes;
mod streams;
mod top;
mod top_terminal;
mod trace;
mod tune;
mod unit_file;
mod watched_elsewhere;
mod workload;
