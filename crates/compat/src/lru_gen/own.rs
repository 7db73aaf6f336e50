//! The files with generations of ours behind them.

use super::command;
use super::generations::Generations;
use super::machine::Machine;
use super::{Control, File};
use crate::errno::Errno;
use crate::held::held;
use crate::value::uint;
use std::sync::{Mutex, MutexGuard};

/// The switches that there are: generations, page-table walks, and accessed bits above the lowest tables, which mean
/// nothing here.
const SWITCHES: u32 = 7;
const ON: u32 = 1;
const WALKS: u32 = 2;

/// Generations of ours. One command or look at a time; who comes meanwhile waits.
pub(super) struct Own(Mutex<State>);

struct State {
    enabled: u32,
    min_ttl_ms: u32,
    generations: Generations,
}

impl Own {
    pub(super) fn new(machine: Box<dyn Machine>) -> Self {
        Self(Mutex::new(State { enabled: SWITCHES, min_ttl_ms: 0, generations: Generations::new(machine) }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        held(&self.0)
    }
}

impl std::fmt::Debug for Own {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Own").finish_non_exhaustive()
    }
}

impl Control for Own {
    fn has(&self, _: File) -> bool {
        true
    }

    fn read(&self, file: File) -> Result<Vec<u8>, Errno> {
        let mut state = self.state();
        let text = match file {
            File::Enabled => format!("0x{:04x}\n", state.enabled),
            File::MinTtl => format!("{}\n", state.min_ttl_ms),
            File::Generations => state.generations.text(false),
            File::Full => state.generations.text(true),
        };
        Ok(text.into_bytes())
    }

    fn write(&self, file: File, data: &[u8]) -> Result<(), Errno> {
        let mut state = self.state();
        let state = &mut *state;
        match file {
            File::Enabled => {
                state.enabled = switches(data)? & SWITCHES;
                state.generations.switch(state.enabled & ON != 0, state.enabled & WALKS != 0);
            }
            File::MinTtl => state.min_ttl_ms = number(data)?,
            File::Generations => {
                command::each(data, |command| state.generations.run(command, state.min_ttl_ms))?;
            }
            File::Full => return Err(Errno::Invalid),
        }
        Ok(())
    }

    fn stop(&self) {
        self.state().generations.switch(false, false);
    }
}

/// All for `y`, none for `n`, or a number.
fn switches(data: &[u8]) -> Result<u32, Errno> {
    match data.first() {
        Some(b'y' | b'Y') => Ok(u32::MAX),
        Some(b'n' | b'N') => Ok(0),
        _ => number(data),
    }
}

/// Whatever is wrong with it, EINVAL.
fn number(data: &[u8]) -> Result<u32, Errno> {
    let text = data.split(|&byte| byte == 0).next().and_then(|text| std::str::from_utf8(text).ok());
    text.and_then(|text| uint(text).ok()).ok_or(Errno::Invalid)
}
