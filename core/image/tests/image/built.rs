//! Programs that tests build with the tools of this machine.

use std::path::Path;
use std::process::Command;

use crate::fixtures;

/// Copies a source of the fixtures.
pub fn source(folder: &Path, name: &str) {
    std::fs::copy(fixtures::folder().join("src").join(name), folder.join(name)).unwrap();
}

/// Runs a line of shell in `folder`; the error says which line failed and why, for a skip to name.
pub fn run(folder: &Path, line: &str) -> Result<(), String> {
    let output = Command::new("sh").arg("-ec").arg(line).current_dir(folder).output();
    let output = output.map_err(|error| format!("sh cannot be run: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("'{line}': {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}
