//! Files in folders that others may write to, too: there whole or not at all, never somebody else's link, secrets that nobody
//! else can read, and what is read without waiting for anybody.
#![forbid(unsafe_code)]

pub mod apart;
pub mod links;
mod new_file;
pub mod plain_file;
pub mod private_file;

pub use new_file::NewFile;
