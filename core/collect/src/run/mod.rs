//! Runs a collection: `record` for one command or a while, `daemon` permanently, both over a session.
//!
//! Enters: options and requests. Leaves: epochs in the database, progress. Never here: what a record or an address means.

pub mod control;
pub mod daemon;
pub mod machine;
pub mod options;
pub mod record;
pub mod session;
pub mod stop;
pub mod store;
pub mod timer;
