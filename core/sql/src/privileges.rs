//! Gives up capabilities before foreign code is loaded.
//!
//! Enters: nothing. Leaves: a process without capabilities. `dwell` may have capabilities from its file (`setcap`), so
//! that users can sample the machine. A user who names the library by a variable would run code with them.

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use crate::SqlError;

/// Gives up all capabilities of this thread and of the threads that it will start, unless the user is root, who has
/// them anyway. Call it while there is no other thread.
pub fn give_up_capabilities() -> Result<(), SqlError> {
    let none = CapabilitySet::empty();
    let has_any = |sets: CapabilitySets| sets.effective != none || sets.permitted != none;
    let current = capabilities(None).map_err(|error| SqlError::Privileges(error.into()))?;
    if rustix::process::getuid().is_root() || !has_any(current) {
        return Ok(());
    }
    let empty = CapabilitySets { effective: none, permitted: none, inheritable: none };
    set_capabilities(None, empty).map_err(|error| SqlError::Privileges(error.into()))
}
