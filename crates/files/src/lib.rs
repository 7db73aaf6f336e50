//! Files in folders that others may write to, too: there whole or not at all, never somebody else's link, and secrets that nobody
//! else can read.
#![forbid(unsafe_code)]

pub mod links;
mod new_file;
pub mod private_file;

pub use new_file::NewFile;
