//! Builds an epoch's metadata from what a perf.data file reports: the record, names of events, notes.
//!
//! Enters: everything that the file reported. Leaves: an epoch without its samples. Never here: samples, files.

use std::collections::BTreeMap;

use dwell_profile::{Cpu, Epoch, EpochId, Event, EventRecord, Host, Scope, Unit, stacks_note};
use jiff::Timestamp;
use linux_perf_data::linux_perf_event_reader::{PerfEventAttr, PerfEventType, SoftwareCounterType};

use super::{ImportFile, imported::ImportedProfile};

impl ImportedProfile {
    /// Returns the reason why there are no samples; `None` if none is known.
    pub(super) fn why_empty(&self) -> Option<String> {
        let stat = "it was written by perf stat record, which counts without sampling".to_owned();
        let aux = "convert its AUX data to samples first, with perf inject --itrace".to_owned();
        let lost = self.events.iter().map(|e| u128::from(e.lost)).sum::<u128>();
        let lost = (lost > 0).then(|| format!("{lost} samples were lost while it was recorded"));
        let why = self.cut.iter().cloned().chain(lost).chain(self.left_out());
        let why =
            why.chain((self.tallies.aux_records > 0).then_some(aux)).chain(self.is_stat.then_some(stat));
        let why = why.collect::<Vec<_>>().join("; ");
        (!why.is_empty()).then_some(why)
    }

    /// Describes the records that were left out, by cause.
    fn left_out(&self) -> impl Iterator<Item = String> {
        let causes = [
            (self.tallies.unreadable, "records could not be read and were left out"),
            (self.tallies.unknown_ids, "samples have an id that no event of the file has and were left out"),
            (self.tallies.aux_records, "records of AUX data (Intel PT, ARM SPE, …) were left out"),
        ];
        causes.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"))
    }

    /// Returns notes on what the file lacks and what was left out.
    pub(super) fn notes(&self) -> Vec<String> {
        let cut = self.cut.as_ref().map(|why| format!("{why}: the part before was imported"));
        let mut notes: Vec<String> = cut.into_iter().chain(self.left_out()).collect();
        let mut count = |n: u64, what: &str| {
            if n > 0 {
                notes.push(format!("{n} {what}"));
            }
        };
        count(
            self.tallies.members,
            "samples are of events that were read when the leader of their group was sampled (perf record :S)",
        );
        count(
            self.call_stacks.left_out,
            "samples have no call stack here: the profile has more different ones than a recording may contain",
        );
        count(
            self.tallies.deferred_chains,
            "samples have the user's part of their call stack in a record of its own, which Dwell cannot read",
        );
        if self.tallies.branch_stacks > 0 {
            notes.push(stacks_note(self.tallies.branch_stacks, self.branches.branches));
        }
        notes.extend(self.remarks.iter().cloned());
        for ((name, _), tally) in self.attributes.iter().zip(&self.events) {
            if tally.period_max > tally.period_min {
                notes.push(format!(
                    "{name}: periods varied from {} to {} (perf record -F): each sample is weighted by its period",
                    tally.period_min, tally.period_max
                ));
            }
        }
        notes
    }

    /// Returns the epoch's metadata.
    pub(super) fn epoch(
        &self,
        request: &ImportFile,
        events: &[Event],
        notes: Vec<String>,
        now: Timestamp,
    ) -> Epoch {
        let mut records: BTreeMap<Event, EventRecord> = BTreeMap::new();
        for ((event, (name, attribute)), tally) in events.iter().zip(&self.attributes).zip(&self.events) {
            if tally.samples == 0 && records.contains_key(event) {
                continue;
            }
            let mean = tally.periods / u128::from(tally.samples.max(1));
            let record = records.entry(event.clone()).or_insert(EventRecord {
                period: u64::try_from(mean).unwrap_or(u64::MAX).max(1),
                unit: match self.in_ns.contains(name) {
                    true => Unit::Nanoseconds,
                    false => unit_of(event, attribute.as_ref()),
                },
                samples: 0,
                lost: 0,
                throttled: 0,
                unknown: 0,
                running_share: None,
            });
            record.samples = record.samples.saturating_add(tally.samples);
            record.lost = record.lost.saturating_add(tally.lost);
            record.throttled = record.throttled.saturating_add(tally.throttled);
            record.unknown = record.unknown.saturating_add(tally.unknown);
        }
        let number = |i: usize| self.origin.cpu.get(i).and_then(|t| t.parse().ok()).unwrap_or(0);
        Epoch {
            id: EpochId::new(now),
            name: request.name.clone(),
            start: now,
            end: None,
            host: Host {
                name: self.origin.host.clone().unwrap_or_else(|| "import".to_owned()),
                kernel_release: self.origin.release.clone().unwrap_or_default(),
            },
            cpu: Cpu {
                arch: self.origin.arch.clone().unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
                vendor: self.origin.cpu.get(1).cloned().unwrap_or_default(),
                model_name: self.origin.cpu.first().cloned().unwrap_or_default(),
                family: number(2),
                model: number(3),
                stepping: number(4),
                count: self.origin.cpus,
                clock_hz: request.clock_hz,
                clock_hz_range: None,
                machine_model: None,
            },
            backend: "import".to_owned(),
            scope: Scope::Import(match self.origin.command.is_empty() {
                true => request.path.display().to_string(),
                false => format!("{} ({})", request.path.display(), self.origin.command.join(" ")),
            }),
            events: records,
            notes,
            bursts: None,
            breakpoints: None,
            counts: None,
            call_stacks: None,
            collector: None,
        }
    }
}

/// Returns the event for the name that perf, or the text of another tool, has for it.
pub fn event_of(name: &str) -> Event {
    if name.is_empty() { Event::named("event") } else { Event::named(name) }
}

fn unit_of(event: &Event, attribute: Option<&PerfEventAttr>) -> Unit {
    match attribute.map(|a| &a.type_) {
        Some(PerfEventType::Software(SoftwareCounterType::CpuClock | SoftwareCounterType::TaskClock)) => {
            Unit::Nanoseconds
        }
        None if event.base_name() == Event::CPU_CLOCK.name() => Unit::Nanoseconds,
        _ if event.base_name() == Event::CYCLES.name() => Unit::Cycles,
        _ => Unit::Events,
    }
}
