//! Exit status of `dwell record -- CMD`, `dwell callpaths … -- CMD` and `dwell trace record … -- CMD`. It is the status of CMD, so that a caller that runs a program through Dwell sees
//! how the program ended.
//!
//! | status | what happened |
//! | --- | --- |
//! | CMD's own, 128+n for signal n | CMD ran and ended; its recording exists, its calls were shown |
//! | 0 | the same, or CMD goes on after `--duration` |
//! | 125 | Dwell itself failed, before CMD or after it |
//! | 126, 127 | CMD cannot be executed; there is no such program |
//! | 2 | wrong usage |
//!
//! Shells, `env` and `timeout` use the same statuses.

use std::{
    io,
    os::unix::process::ExitStatusExt,
    process::{ExitCode, ExitStatus},
};

use dwell_collect::CollectError;
use dwell_trace::TraceError;

use crate::args::{CallpathsArgs, RecordArgs, TraceVerb, Verb};

const OWN_FAILURE: u8 = 125;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;
/// Number that shells add to the number of the signal that ended a command.
const SIGNALS: u8 = 128;

/// Returns the exit status for the way in which a command ended.
pub fn of_command(status: ExitStatus) -> ExitCode {
    let signal = || status.signal().map(|signal| SIGNALS.wrapping_add(signal as u8));
    ExitCode::from(status.code().map(|code| code as u8).or_else(signal).unwrap_or(OWN_FAILURE))
}

/// Returns the exit status for a failure. For verbs that run a CMD it is 125, 126 or 127 (see the table above); otherwise 1.
pub fn of_failure(verb: &Verb, error: &anyhow::Error) -> ExitCode {
    match verb {
        Verb::Trace(TraceVerb::Record(_)) => ExitCode::from(of_failed_command(error)),
        Verb::Record(RecordArgs { command, .. }) | Verb::Callpaths(CallpathsArgs { command, .. })
            if !command.is_empty() =>
        {
            ExitCode::from(of_failed_command(error))
        }
        _ => ExitCode::FAILURE,
    }
}

fn of_failed_command(error: &anyhow::Error) -> u8 {
    if let Some(TraceError::Command { source, .. }) = error.downcast_ref() {
        return if source.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE };
    }
    match error.downcast_ref() {
        Some(CollectError::Command { source, .. }) if source.kind() == io::ErrorKind::NotFound => NOT_FOUND,
        Some(CollectError::Command { .. }) => NOT_EXECUTABLE,
        _ => OWN_FAILURE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_command_has_the_status_that_shells_have() {
        let failed = |kind: io::ErrorKind| {
            let error = CollectError::Command { command: "x".to_owned(), source: kind.into() };
            of_failed_command(&error.into())
        };
        assert_eq!(failed(io::ErrorKind::NotFound), 127);
        assert_eq!(failed(io::ErrorKind::PermissionDenied), 126);
        assert_eq!(of_failed_command(&anyhow::anyhow!("the database is read-only")), 125);
    }
}
