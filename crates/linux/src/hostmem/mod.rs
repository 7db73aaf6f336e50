//! A virtual machine's memory as its host holds it: shared memory of another process, in a file.

pub mod async_io;
pub mod call;
pub mod hole;
pub mod others;
pub mod peer;
pub mod ram_file;
pub mod shared;
pub mod shared_maps;
pub mod urgency;
pub mod vsock_listener;
