//! Access sources: ways to learn which pages were accessed.

pub mod damon;
pub mod idle;
pub mod pagetable;
pub mod refs;
mod reset;
mod selftest;
mod unavailable;
mod watched;

pub use unavailable::SourceUnavailable;
