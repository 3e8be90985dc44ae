//! `dwell callpaths --keep`: the calls as a recording in the database.
//!
//! Input: where recordings are, and what is counted. Output: a recording, which exists without an end while calls are counted. If nothing
//! was counted, it is removed.

use std::path::Path;

use dwell_collect::machine;
use dwell_probe::recording::{BACKEND, Recording};
use dwell_profile::{Database, Epoch, EpochId, EpochWriter, Pid, Scope, name_to_text};
use jiff::Timestamp;

use crate::{args::CallpathsArgs, collect::keep_sources, complain, text::grouped};

/// The notes of a recording of calls.
const NOTES: [&str; 3] = [
    "calls were counted, not sampled: their numbers are exact, and so are those by call path",
    "a sample of calls-wall, calls-cpu or calls-blocked is a nanosecond",
    "the time of a call is without that of the counted functions that it called",
];

/// A recording of calls that has begun.
pub struct Keeper<'a> {
    folder: &'a Path,
    /// `None` once it was stored.
    epoch: Option<EpochWriter>,
}

impl<'a> Keeper<'a> {
    /// Begins a recording in a folder, if there is one. Call this after the engines were forked: they would inherit the right to write.
    pub fn begin(folder: Option<&'a Path>, args: &CallpathsArgs) -> anyhow::Result<Option<Self>> {
        let Some(folder) = folder else { return Ok(None) };
        let start = Timestamp::now();
        let scope = match &args.command[..] {
            [] => Scope::Processes(args.pid.iter().copied().map(Pid).collect()),
            command => Scope::Command(command.iter().map(|word| name_to_text(word).into_owned()).collect()),
        };
        let epoch = Epoch {
            id: EpochId::new(start),
            name: args.name.clone(),
            start,
            end: None,
            host: machine::host(),
            cpu: machine::cpu(),
            backend: BACKEND.to_owned(),
            scope,
            events: Default::default(),
            notes: NOTES.map(str::to_owned).to_vec(),
            bursts: None,
            breakpoints: None,
            counts: None,
            call_stacks: None,
            collector: None,
        };
        let epoch = Database::open(folder)?.writer()?.begin(epoch)?;
        Ok(Some(Keeper { folder, epoch: Some(epoch) }))
    }

    /// Stores the calls, and ends the recording.
    pub fn store(mut self, recording: &Recording) -> anyhow::Result<()> {
        let Some(writer) = &mut self.epoch else { return Ok(()) };
        writer.append(&recording.counts, &recording.images)?;
        writer.append_stacks(&recording.call_tree)?;
        let stored = Epoch {
            events: recording.events.clone(),
            call_stacks: Some(recording.call_stacks.clone()),
            ..writer.epoch().clone()
        };
        writer.update(&stored)?;
        let Some(writer) = self.epoch.take() else { return Ok(()) };
        let id = writer.finish(Timestamp::now())?.id;
        let calls = grouped(recording.call_stacks.samples);
        complain(&format!("recording {id}: {calls} calls; `dwell flame -e calls` and others show them"));
        keep_sources(self.folder, &id);
        Ok(())
    }
}

impl Drop for Keeper<'_> {
    fn drop(&mut self) {
        let Some(writer) = self.epoch.take() else { return };
        let (id, all) = (writer.epoch().id.clone(), writer.writer());
        drop(writer);
        if let Err(error) = all.database().remove(&id) {
            complain(&format!("warning: the empty recording {id} was not removed: {error}"));
        }
    }
}
