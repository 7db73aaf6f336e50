//! VMMs that connect to `isotherm hint host` by themselves. This process is one: it must hold no other memory of that
//! kind, so nothing else is in this file.

#[path = "commands/common/mod.rs"]
mod common;

use common::text;
use common::vmm::{Agent, HostSide, MIB, RAM, hello};
use isotherm_hint::protocol::Verdict;
use isotherm_linux::hostmem::shared::SharedMemory;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;

#[test]
fn the_kernel_tells_whose_memory_it_is() {
    let mut memory = SharedMemory::new("memory-backend-memfd", RAM as usize).unwrap();
    memory.fill(0, RAM as usize, 3);
    let folder = tempfile::tempdir().unwrap();
    let door = folder.path().join("door");
    let host = HostSide::start(folder.path(), &["--listen", &format!("unix:{}", text(&door))]);
    assert_eq!(host.status()["guests"].as_array().map(Vec::len), Some(0));
    let mut agent = Agent::new(UnixStream::connect(&door).unwrap());
    agent.greet(hello(1));
    assert_eq!(agent.report(1, &[(2, 6)]), [Verdict::Dropped]);
    assert_eq!(memory.file().metadata().unwrap().blocks() * 512, RAM - 4 * MIB);
    let status = host.status();
    assert_eq!(status["guests"][0]["pid"].as_u64(), Some(u64::from(std::process::id())));
    assert!(status["listening"][0].as_str().is_some_and(|l| l.contains("door")));
    host.end("INT").expect(0, &[]);
    assert!(!door.exists());
}
