//! The face of a running Isotherm: its control socket, HTTP on it, its figures as JSON and OpenMetrics.
//!
//! * [`service`]: what a kind of instance (`schemes`, `hint host`, `lru run`) has to say, and what can be asked of it;
//! * [`server`]: threads that turn connections into questions, and the queue that the instance's loop empties; it
//!   speaks [`http`], within [`deadline`]s, on a [`socket`] and on a port for metrics alone;
//! * [`socket_folders`]: where sockets are, and how those that run are found; [`client`]: the other side;
//! * [`instance`]: what every instance says of itself, its [`sandbox`] included; [`openmetrics`] writes [figures](isotherm_core::figure) in that
//!   form; [`documentation`] writes them as a table.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_possible_wrap))]

pub mod client;
pub mod deadline;
pub mod documentation;
pub mod fuzz;
pub mod http;
pub mod instance;
pub mod openmetrics;
#[cfg(any(test, feature = "testing"))]
pub mod openmetrics_check;
pub mod sandbox;
pub mod server;
#[cfg(test)]
mod server_tests;
pub mod service;
pub mod socket;
pub mod socket_folders;
