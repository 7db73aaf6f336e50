//! What a guest agent and its host say to each other.
//!
//! Messages travel in [frames](frame) over any stream of bytes: virtio-serial, vsock, a Unix socket, TCP. A stream may
//! begin in the middle of a frame (a virtio-serial port keeps what was on its way when one side was restarted), so each
//! side first searches for a frame, and takes garbage for an offence only once the greeting is over ([`Decoder`]). Over
//! vsock and TCP, which begin with the connection, the host does not search, and the guest's first message is a
//! `Hello`.
//!
//! # Order of messages
//!
//! ```text
//! guest                                   host
//!              <-- Greet                  on connecting, and every second until a Hello comes
//! Hello  -->                              on starting, on Greet, and every second until its Welcome comes
//!              <-- Welcome                echoes the session of the Hello, hands out a token and limits
//! Report -->                              token, batch, ranges
//!              <-- Ack                    token, batch, one verdict a range, how long to wait
//! Ping   -->   <-- Pong                   either way
//! Stat   -->                              now and then, for people who look
//! Bye    -->   or   <-- Bye               an orderly end
//!              <-- Error                  why the host closes the connection
//! ```
//!
//! Over TCP a [proof of the key](auth) comes before all that, and everything after it is sealed.
//!
//! # What the host owes
//!
//! * It acts on a [`Report`](Message::Report) only if that carries the token of the last [`Welcome`](Message::Welcome)
//!   sent on the same connection. A report that waited somewhere while the host was restarted is passed over in
//!   silence.
//! * Batch numbers grow within a session. It acts on each at most once: one that comes again is answered with the same
//!   [`Ack`](Message::Ack) if it was the last, and passed over otherwise. (To act twice would drop memory that the
//!   guest uses again by then.)
//! * It handles a connection's messages in the order in which they come, and sends `Ack` after the memory was dropped.
//! * If it did not run for some seconds (it was stopped, or frozen) it closes a connection with a `Bye` before it acts on
//!   a report there: the guest may have been reset meanwhile, which a connection through a VMM's port outlives.
//! * **A `Welcome` is a promise**: whatever was reported before the `Hello` that it answers has been dealt with or
//!   never will be, by this host process or another, over this connection or another.
//! * **Closing a connection is the same promise** for what was reported over it. Over TCP anybody on the way can make it
//!   look closed, so there it is the sealed `Bye` or `Error` before the end that counts.
//!
//! # What the guest owes
//!
//! * It never reports memory that is not isolated, and keeps it isolated until one of these happens:
//!   1. the `Ack` of the batch, whatever its verdicts;
//!   2. the `Welcome` of a `Hello` that was sent later than the report;
//!   3. the end, as seen from the other side, of the connection that it was sent over: end of file, or hang-up on a
//!      virtio-serial port; over TCP only after a sealed `Bye` or `Error`. An error of one's own (a time-out, a reset by
//!      something on the way) is no such end.
//!
//!   **Never because time has passed**: a host that was stopped for a minute goes on with the report that it was at, and
//!   would drop memory that is in use again. What is neither acknowledged nor known to be void stays isolated, and no more is
//!   reported meanwhile.
//! * The same holds for what a dead predecessor left isolated. An isolation that ends with the agent's process is
//!   unsound while a report is on its way.
//! * At most [`Limits::batches`] batches are on their way at a time. After a new `Welcome`, batches without `Ack` count
//!   as not reported.
//! * After a change of the memory map (hotplug) it says `Hello` again, with a new session.
//!
//! # Lost, doubled and late messages
//!
//! | what | then |
//! |---|---|
//! | `Hello` lost | it comes again every second |
//! | `Welcome` lost | the next `Hello` of the same session gets a new one with a new token; the guest takes the last |
//! | `Report` lost | the guest sends the same batch again after a while: nothing was done yet, or the old `Ack` comes again |
//! | `Ack` lost | the same |
//! | `Report` twice | acted on once |
//! | `Ack` twice, or of another token or batch | passed over |
//! | a frame over TCP changed, lost, doubled or from somebody else | the seal does not fit: both sides close the connection |
//! | a part of a frame lost | the checksum does not match: the host closes the connection, the guest searches and says `Hello` |
//! | host restarted | the guest sees the end or a `Greet` with a new host number, and says `Hello` |
//! | agent restarted | its `Hello` has a new session; the host forgets the old one |

pub mod auth;
mod decoder;
mod error;
pub mod frame;
mod limits;
mod message;
mod wire;

pub use decoder::Decoder;
pub use error::DecodeError;
pub use isotherm_core::hinter::{MemoryArea, MemoryKind};
pub(crate) use limits::MOST_RANGES;
pub(crate) use message::GuestStat;
pub use message::{ErrorCode, Hello, Limits, Message, Verdict};

/// The version of the protocol that this code speaks. [`Hello`] names it; a host that does not speak it answers
/// [`ErrorCode::Version`] with its own.
pub const VERSION: u16 = 2;

/// Between repetitions of [`Message::Greet`] and [`Message::Hello`] until the other side answers, ms.
pub(crate) const REPEAT_MS: u64 = 1000;

/// After how long without a byte a side that still searches calls [`Decoder::stalled`], ms. Less than [`REPEAT_MS`], so
/// that half a frame left over from before never hides the greeting for long.
pub(crate) const STALL_MS: u64 = 300;

/// The name of the virtio-serial port.
pub(crate) const PORT_NAME: &str = "isotherm.hint";

/// The number of the vsock port that the host listens on.
pub const VSOCK_PORT: u32 = 7_482;

#[cfg(test)]
mod tests;
