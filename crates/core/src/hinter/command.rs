//! What is to be done, and what came of it.

use super::block::Block;

/// What is to be done now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Isolate these blocks, or as many others where the isolator gets only how many, and say [`Event::Isolated`].
    /// With units: these are their first blocks. Never more than asked for.
    Isolate(Vec<Block>),
    /// Report these blocks. The same batch is asked for again after a while without an answer.
    Report {
        /// Its number.
        batch: u64,
        /// What is in it.
        blocks: Vec<Block>,
    },
    /// Return all that is isolated to the allocator and say [`Event::Released`]. No report of any of it is on its way.
    Release,
    /// Nothing, until something happens or the time has come (ns), if there is one.
    Wait(Option<u64>),
}

/// What an isolator got.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Isolation {
    /// The blocks, all of them: with units those of whole units.
    pub blocks: Vec<Block>,
    /// Whether isolating wrote to them (a kernel that clears pages when it gives them out): then those that the host
    /// had dropped before are in its memory again.
    pub written: bool,
}

/// What became of a reported block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The host has its memory back.
    Dropped,
    /// The host does not want it, or could not.
    Refused,
    /// Later.
    NotNow,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// To [`Command::Isolate`]; whatever of it is missing could not be had.
    Isolated(Isolation),
    /// An answer of the host. One to another batch than that on its way means nothing.
    Acked {
        /// Of which batch.
        batch: u64,
        /// One for each block, in their order.
        fates: Vec<Fate>,
        /// How long the host wants to be left alone, ns.
        wait_ns: u64,
    },
    /// To [`Command::Release`].
    Released,
    /// The host is there and may be sent to; whatever was on its way counts as void, as for [`Event::Void`].
    Ready,
    /// Nothing can be sent. What is on its way may or may not arrive.
    Silent,
    /// Whatever is on its way will not be acted upon any more: nothing else allows to return it.
    Void,
    /// The host is a new one, or has lost its memory of us: what it had dropped may be in its memory again.
    Forgotten,
    /// Somebody needs memory: return everything as soon as nothing is on its way, and leave it alone for a while.
    Pressure,
    /// Begin a pass, however few blocks there are.
    Now,
    /// Return everything as soon as nothing is on its way, and begin nothing any more.
    Stop,
}
