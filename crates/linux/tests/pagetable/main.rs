//! The page table source on real processes, whose accesses are known exactly.

#[path = "../common/mod.rs"]
mod common;

mod base_pages;
mod blind;
mod frame_numbers;
mod large_folios;
mod lifetime;
mod shared;
mod watching;
