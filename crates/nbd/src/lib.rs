//! An NBD client: an export of a server as a [`BlockDevice`](xfskit_device::BlockDevice).
//!
//! ```no_run
//! use xfskit_device::BlockDevice;
//! use xfskit_nbd::{Address, NbdDevice, Options, Writers};
//!
//! let address: Address = "nbd+unix:///disk?socket=/tmp/nbd.sock".parse()?;
//! let device = NbdDevice::open(&address, &Options::default())?;
//! device.read(0, &mut [0; 512])?;
//! drop(device);
//! // This program knows, by other means than NBD, that no other client writes.
//! let device = NbdDevice::open_writable(&address, Writers::OthersKeptOut, &Options::default())?;
//! device.write(0, &[0; 512])?;
//! device.flush()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What is written and not flushed is in doubt once a connection is lost. The device does not connect again: every
//! later request fails, a flush above all, so no flush ever answers for a write that a server has lost. `docs/design/
//! network.md` has the states, the locks and the reasons.
//!
//! | module | duty |
//! |---|---|
//! | `address` | the URI of an export |
//! | `wire` | numbers of the protocol, the header of a request |
//! | `socket` | a socket of either kind |
//! | `stream` | a socket with TLS or without |
//! | `tls` | certificates, and what is sealed and opened |
//! | `handshake` | from a new connection to the transmission phase |
//! | `reply` | replies, checked and put together |
//! | `connection` | many requests in flight on one connection; its loss |
//! | `limits` | how much is in flight at once |
//! | `device` | the block device: pieces, flushes, holes |
//!
//! Threads: one for each connection, and those of the callers. They do not survive a `fork`.
#![forbid(unsafe_code)]

mod address;
mod connection;
mod device;
mod error;
mod handshake;
mod limits;
mod reply;
mod socket;
mod stream;
mod tls;
mod wire;

pub use address::{Address, AddressError, Trust};
pub use device::{NbdDevice, Options, Writers};
pub use error::{OpenError, Problem};
pub use tls::Credentials;
