//! Recordings of many machines: in an object store, and at receivers of profiles (OpenTelemetry, Pyroscope).
//!
//! Enters: the database of a host, or the place of a fleet's. Leaves: objects in a bucket, messages, or a [`dwell_profile::Database`] whose files
//! are fetched when they are read. Never here: analysis, SQL, sampling.
//!
//! `FORMAT.md` beside this crate's manifest describes the objects.

mod client;
mod credentials;
mod error;
mod http;
mod index;
mod keys;
mod location;
mod mirror;
mod push;
mod pyroscope;
mod receiver;
mod roll_up;
mod sent;

pub use error::FleetError;
pub use keys::FLEET_FORMAT;
pub use location::Location;
pub use mirror::open;
pub use push::{FindBinary, FindSymbols, PushOptions, Pushed, push};
pub use receiver::{Protocol, Receiver, push_to_receiver};
pub use roll_up::{RollUpOptions, RolledUp, plan, roll_up};
