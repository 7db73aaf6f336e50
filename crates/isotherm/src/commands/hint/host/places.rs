//! Where the host side listens for questions: beside the sockets of `isotherm ctl`, which speaks of other things.

use crate::control::socket::{BoundSocket, Places, bind_in};
use anyhow::{Context, anyhow};
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

const FOLDER: &str = "hint";

/// Every folder in which such sockets may be.
pub fn control_folders() -> Vec<PathBuf> {
    Places::from_env().all().into_iter().map(|folder| folder.join(FOLDER)).collect()
}

/// Listens at this process's place.
pub fn home() -> anyhow::Result<BoundSocket> {
    let folder = Places::from_env().home().ok_or_else(|| {
        anyhow!(
            "there is no place for the socket of `isotherm hint status`: XDG_RUNTIME_DIR is not set; give --socket PATH"
        )
    })?;
    match DirBuilder::new().mode(0o700).create(&folder) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
            return Err(e).with_context(|| format!("cannot create {}; give --socket PATH", folder.display()));
        }
        _ => {}
    }
    Ok(bind_in(&folder.join(FOLDER))?)
}
