//! `isotherm hint host`, with VMMs and agents that behave or do not. No privilege needed.

mod host;
mod hostile;
mod limits;
mod tcp;
