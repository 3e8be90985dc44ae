//! One epoch that stands for many: the metadata of their sum.
//!
//! Enters: the metadata of epochs. Leaves: which of them can be summed up, and the metadata of the sum. Never here: samples.

use std::collections::{BTreeMap, BTreeSet};

use crate::{CallStacksRecord, CollectorRecord, Epoch, EpochId, Event, EventRecord, Host, Scope};

/// Number of notes of the summed epochs that are kept.
const NOTES_MAX: usize = 20;

/// What epochs must have in common to be summed up: the processor, the kernel, and the meaning of a sample. The estimates of
/// their sum are then those of one machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EpochKind {
    /// Architecture, vendor and name of the processor's model, and the machine model that the user chose.
    cpu: [String; 4],
    /// Family, model and stepping of the processor.
    stepping: [u32; 3],
    kernel_release: String,
    backend: String,
    /// Name, period and unit of each event.
    events: Vec<(Event, u64, &'static str)>,
    /// Samples per second that should have a call stack.
    stacks_hz: Option<u32>,
    /// Applications whose samples were kept; empty: those of all.
    apps: Vec<String>,
}

impl Epoch {
    /// Returns what other epochs must have in common with this one to be summed up with it.
    pub fn kind(&self) -> EpochKind {
        let cpu = &self.cpu;
        let machine_model = cpu.machine_model.clone().unwrap_or_default();
        EpochKind {
            cpu: [cpu.arch.clone(), cpu.vendor.clone(), cpu.model_name.clone(), machine_model],
            stepping: [cpu.family, cpu.model, cpu.stepping],
            kernel_release: self.host.kernel_release.clone(),
            backend: self.backend.clone(),
            events: self.events.iter().map(|(e, r)| (e.clone(), r.period, r.unit.name())).collect(),
            stacks_hz: self.call_stacks.as_ref().map(|stacks| stacks.hz),
            apps: self.collector.as_ref().map_or_else(Vec::new, |collector| collector.apps.clone()),
        }
    }

    /// Returns the metadata of the sum of epochs of one kind; `None` without epochs. Losses and unknown samples are summed up. What
    /// counting executions did and cost on each machine is left out; the counts themselves are kept.
    pub fn sum(id: EpochId, epochs: &[Epoch]) -> Option<Epoch> {
        let newest = epochs.iter().max_by_key(|epoch| epoch.start)?;
        let hosts: BTreeSet<&str> = epochs.iter().map(|epoch| epoch.host.name.as_str()).collect();
        let name = match hosts.first() {
            Some(host) if hosts.len() == 1 => (*host).to_owned(),
            _ => format!("{} hosts", hosts.len()),
        };
        let mut cpu = newest.cpu.clone();
        cpu.count = epochs.iter().map(|epoch| epoch.cpu.count).max().unwrap_or_default();
        cpu.clock_hz = mean_clock(epochs);
        let ranges = || epochs.iter().filter_map(|epoch| epoch.cpu.clock_hz_range);
        let lowest = ranges().map(|(low, _)| low).min_by(f64::total_cmp);
        cpu.clock_hz_range = lowest.zip(ranges().map(|(_, high)| high).max_by(f64::total_cmp));
        Some(Epoch {
            id,
            name: None,
            start: epochs.iter().map(|epoch| epoch.start).min()?,
            end: epochs.iter().map(|epoch| epoch.end.unwrap_or(epoch.start)).max(),
            host: Host { name, kernel_release: newest.host.kernel_release.clone() },
            cpu,
            backend: newest.backend.clone(),
            scope: Scope::Sum {
                recordings: epochs.len() as u64,
                hosts: hosts.len() as u64,
                sampled_ns: epochs.iter().fold(0_u64, |sum, epoch| sum.saturating_add(epoch.sampled_ns())),
            },
            events: events(epochs),
            notes: notes(epochs),
            bursts: None,
            breakpoints: None,
            counts: None,
            call_stacks: call_stacks(epochs),
            collector: collector(epochs),
        })
    }

    /// Returns the number of recordings in it: one, unless it is a sum.
    pub fn recordings(&self) -> u64 {
        match self.scope {
            Scope::Sum { recordings, .. } => recordings,
            _ => 1,
        }
    }

    /// Returns the duration of sampling in ns, without pauses; of a sum, that of all its recordings. Without an end it is
    /// zero.
    pub fn sampled_ns(&self) -> u64 {
        if let Scope::Sum { sampled_ns, .. } = self.scope {
            return sampled_ns;
        }
        let lasted_ns = self.end.map_or(0, |end| end.duration_since(self.start).as_nanos());
        let paused_ns = self.collector.as_ref().map_or(0, |collector| collector.paused_ns);
        u64::try_from(lasted_ns).unwrap_or(0).saturating_sub(paused_ns)
    }
}

/// Returns the mean clock rate in Hz, weighted by samples.
fn mean_clock(epochs: &[Epoch]) -> Option<f64> {
    let (mut sum, mut weights) = (0.0, 0.0);
    for epoch in epochs {
        let Some(hz) = epoch.cpu.clock_hz else { continue };
        let weight = epoch.events.values().map(|record| record.samples as f64).sum::<f64>().max(1.0);
        sum += hz * weight;
        weights += weight;
    }
    (weights > 0.0).then(|| sum / weights)
}

fn events(epochs: &[Epoch]) -> BTreeMap<Event, EventRecord> {
    let mut sums: BTreeMap<Event, EventRecord> = BTreeMap::new();
    for (event, record) in epochs.iter().flat_map(|epoch| &epoch.events) {
        let Some(sum) = sums.get_mut(event) else {
            sums.insert(event.clone(), record.clone());
            continue;
        };
        for (sum, one) in [
            (&mut sum.samples, record.samples),
            (&mut sum.lost, record.lost),
            (&mut sum.throttled, record.throttled),
            (&mut sum.unknown, record.unknown),
        ] {
            *sum = sum.saturating_add(one);
        }
        sum.running_share = [sum.running_share, record.running_share].into_iter().flatten().reduce(f64::min);
    }
    sums
}

/// Returns the notes, each once, with how many epochs have it.
fn notes(epochs: &[Epoch]) -> Vec<String> {
    let mut counted: BTreeMap<&str, usize> = BTreeMap::new();
    for note in epochs.iter().flat_map(|epoch| epoch.notes.iter().collect::<BTreeSet<_>>()) {
        *counted.entry(note).or_default() += 1;
    }
    let others = counted.len().saturating_sub(NOTES_MAX);
    let mut notes: Vec<String> = counted
        .into_iter()
        .take(NOTES_MAX)
        .map(|(note, number)| format!("{number} of {} recordings: {note}", epochs.len()))
        .collect();
    if others > 0 {
        notes.push(format!("{others} further notes of these recordings are left out"));
    }
    notes
}

fn call_stacks(epochs: &[Epoch]) -> Option<CallStacksRecord> {
    let mut records = epochs.iter().filter_map(|epoch| epoch.call_stacks.as_ref());
    let mut sum = records.next()?.clone();
    for record in records {
        sum.samples = sum.samples.saturating_add(record.samples);
        add_causes(&mut sum.incomplete, &record.incomplete);
    }
    Some(sum)
}

/// Returns the causes of losses and of unknown samples, and those of other applications; `None` if none was recorded.
fn collector(epochs: &[Epoch]) -> Option<CollectorRecord> {
    let mut sum = CollectorRecord { began: "sum".to_owned(), ..CollectorRecord::default() };
    for record in epochs.iter().filter_map(|epoch| epoch.collector.as_ref()) {
        add_causes(&mut sum.lost, &record.lost);
        add_causes(&mut sum.unknown, &record.unknown);
        sum.apps.clone_from(&record.apps); // Epochs of one kind have the same.
        sum.other_apps = record.other_apps.map(|others| sum.other_apps.unwrap_or(0).saturating_add(others));
    }
    let shows = !sum.lost.is_empty() || !sum.unknown.is_empty() || sum.other_apps.is_some();
    shows.then_some(sum)
}

fn add_causes(sums: &mut BTreeMap<String, u64>, causes: &BTreeMap<String, u64>) {
    for (cause, number) in causes {
        let sum = sums.entry(cause.clone()).or_default();
        *sum = sum.saturating_add(*number);
    }
}
