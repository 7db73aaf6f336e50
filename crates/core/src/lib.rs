//! The deciding part of Isotherm: regions, the monitor's algorithms, schemes, feedback.
//!
//! Nothing here calls the operating system, reads a clock of its own, starts a thread or needs `unsafe`. The world is
//! reached through four traits: [`AccessSource`](source::AccessSource) (which memory exists, which of it was accessed),
//! [`Actuator`](actuator::Actuator), [`Meter`](meter::Meter) and [`Clock`](clock::Clock). What the monitor finds leaves
//! as [`Event`](event::Event)s, handed to a [`Subscriber`](event::Subscriber).
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod action_log;
pub mod actuator;
pub mod addr;
pub mod attrs;
pub mod bits;
pub mod clock;
pub mod context;
pub mod engine;
pub mod event;
pub mod feedback;
pub mod figure;
pub mod filling;
pub mod hinter;
pub mod history;
pub mod keeper;

pub mod mapping;
pub mod mask;
pub mod memcg;
pub mod meter;
pub mod monitor;
pub mod pages;
pub mod printable;
pub mod scheme;
pub mod snapshot;
pub mod source;
pub mod space;
pub mod target;
pub mod trace;
pub mod tuning;
pub mod units;
