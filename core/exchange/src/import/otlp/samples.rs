//! Samples: which event, process and stack each belongs to, and what it counts.
//!
//! Enters: decoded messages. Leaves: sums of samples, and remarks on what was left out. Never here: bytes; where addresses are in
//! files.
//!
//! A sample has values, times, or as many of both. A profile whose type is `samples` counts occurrences of what its period is of;
//! any other one has values of its own type: times (`off_cpu` in nanoseconds), or counts. Without values each time counts 1.
//! Source: the comments of `Sample` and `Profile` in `profiles.proto`, opentelemetry-proto 1.10.

use std::{borrow::Cow, collections::BTreeSet, time::Duration};

use dwell_attribution::ExecutionId;
use dwell_profile::{Event, Pid};
use dwell_unwind::FRAMES_MAX;
use rustc_hash::FxHashMap;

use super::{
    message::{Profile, ProfilesData, ResourceProfiles, Sample},
    places::{KnownImages, Tables},
    process::{AttributeValue, ProcessName},
};
use crate::import::{
    call_stacks::Place,
    imported::{EventTally, ImportedProfile},
    locate::Locator,
};

const EVENTS_MAX: usize = 255;
/// Limit of the sum of an event, so that no later sum overflows. It is 146 years in nanoseconds.
const SUM_MAX: u128 = 1 << 62;
/// Number of keys of attributes that a remark names.
const KEYS_MAX: usize = 12;
/// The name of the scope that Dwell's own exports have, and the type of their profile of estimated executions.
const OWN: (&[u8], &str) = (b"dwell", "instructions");

/// What the values of a profile mean.
#[derive(Clone, Copy)]
struct Measure {
    event: usize,
    /// What a value is multiplied by: the period of counts, or the unit of times in ns.
    scale: u64,
    /// The period of times in ns, by which they are divided to count samples; `None` if each observation is one sample.
    period_ns: Option<u64>,
    is_time: bool,
}

/// Numbers of what remarks report.
#[derive(Default)]
struct Tallies {
    with_links: u64,
    empty: u64,
    uneven: u64,
    executions: bool,
    times_of_counted: u64,
    hosts: BTreeSet<String>,
    keys: BTreeSet<String>,
    payloads: BTreeSet<String>,
}

/// Reads messages one after the other.
pub struct Importer<'l> {
    imported: ImportedProfile,
    known: KnownImages<'l>,
    events: FxHashMap<String, usize>,
    sums: Vec<u128>,
    processes: FxHashMap<ProcessName, ExecutionId>,
    tallies: Tallies,
    took_ns: u64,
}

impl<'l> Importer<'l> {
    /// Returns a reader that has read nothing.
    pub fn new(locator: &'l Locator<'l>) -> Self {
        Importer {
            imported: ImportedProfile::default(),
            known: KnownImages::new(locator),
            events: FxHashMap::default(),
            sums: Vec::new(),
            processes: FxHashMap::default(),
            tallies: Tallies::default(),
            took_ns: 0,
        }
    }

    /// Adds the samples of a message.
    pub fn add(&mut self, message: &ProfilesData) -> Result<(), String> {
        let Some(dictionary) = &message.dictionary else {
            return match message.resource_profiles.is_empty() {
                // Fields of other signals are unknown here, and so not seen.
                true => Err("it has no profiles; traces, metrics and logs are not read".to_owned()),
                false => {
                    Err("it has no dictionary: written for opentelemetry-proto before 1.7, or not profiles"
                        .to_owned())
                }
            };
        };
        let mut tables = Tables::new(dictionary)?;
        let mut named = Vec::new();
        for resource in &message.resource_profiles {
            let process = self.process(resource, &tables)?;
            if let Some(file) = process.path().rsplit('/').next().filter(|file| !file.is_empty()) {
                self.known.paths.entry(file.into()).or_insert_with(|| process.path().into());
            }
            named.push(process);
        }
        for (resource, process) in message.resource_profiles.iter().zip(&named) {
            for scoped in &resource.scope_profiles {
                let is_own = scoped.scope.as_ref().is_some_and(|scope| scope.name == OWN.0);
                let counted = counted(&scoped.profiles, &tables)?;
                for profile in &scoped.profiles {
                    let kind = profile.sample_type.unwrap_or_default();
                    let kind = (tables.text(kind.type_strindex)?, tables.text(kind.unit_strindex)?);
                    if is_own && kind.0 == OWN.1 {
                        self.tallies.executions = true;
                    } else if counted.contains(&kind) {
                        self.tallies.times_of_counted += 1;
                    } else {
                        self.profile(profile, process, &mut tables)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns what was read, with remarks.
    pub fn finish(mut self) -> ImportedProfile {
        self.imported.end_named_stacks();
        let Tallies { with_links, empty, uneven, executions, times_of_counted, hosts, keys, payloads } =
            &self.tallies;
        let remarks = &mut self.imported.remarks;
        let mut count = |n: u64, what: &str| {
            if n > 0 {
                remarks.push(format!("{n} {what}"));
            }
        };
        count(*empty, "samples have neither values nor times and were left out");
        count(*uneven, "samples have another number of times than of values: the values were used");
        count(*with_links, "samples are linked to spans of traces; the links were left out");
        count(
            *times_of_counted,
            "profiles have the time of samples that another profile counts, and were left out",
        );
        if *executions {
            remarks.push(
                "the estimated executions of an export of Dwell's are no samples and were left out"
                    .to_owned(),
            );
        }
        if !keys.is_empty() {
            let mut some: Vec<&str> = keys.iter().map(String::as_str).take(KEYS_MAX).collect();
            if keys.len() > KEYS_MAX {
                some.push("…");
            }
            remarks.push(format!("attributes that were left out: {}", some.join(", ")));
        }
        if !payloads.is_empty() {
            let formats: Vec<&str> = payloads.iter().map(String::as_str).collect();
            remarks.push(format!("profiles in their original form were left out: {}", formats.join(", ")));
        }
        if hosts.len() > 1 {
            remarks.push(format!("the samples of {} hosts were added up", hosts.len()));
        }
        remarks.push("a profile of OpenTelemetry contains neither the processor nor executions".to_owned());
        self.imported.origin.host = hosts.first().filter(|_| hosts.len() == 1).cloned();
        self.imported.origin.took = (self.took_ns > 0).then(|| Duration::from_nanos(self.took_ns));
        self.imported
    }

    /// Returns what the attributes of a resource say about its process.
    fn process(&mut self, resource: &ResourceProfiles, tables: &Tables<'_>) -> Result<ProcessName, String> {
        let mut process = ProcessName::default();
        for attribute in resource.resource.iter().flat_map(|resource| &resource.attributes) {
            let value = tables.value(attribute.value.as_ref())?;
            let key = match &attribute.key[..] {
                [] => tables.text(attribute.key_strindex)?,
                key => String::from_utf8_lossy(key),
            };
            match (&*key, &value) {
                ("host.arch", AttributeValue::Text(arch)) => {
                    let arch = match &**arch {
                        "amd64" => "x86_64",
                        "arm64" => "aarch64",
                        arch => arch,
                    };
                    self.imported.origin.arch = Some(arch.to_owned());
                }
                _ => process.set(&key, &value, &mut self.tallies.keys),
            }
        }
        if !process.host().is_empty() {
            self.tallies.hosts.insert(process.host().to_owned());
        }
        Ok(process)
    }

    fn profile(
        &mut self,
        profile: &Profile,
        process: &ProcessName,
        tables: &mut Tables<'_>,
    ) -> Result<(), String> {
        self.took_ns = self.took_ns.max(profile.duration_nano);
        let format = String::from_utf8_lossy(&profile.original_payload_format);
        if !format.is_empty() {
            self.tallies.payloads.insert(format.into_owned());
        }
        if profile.samples.is_empty() {
            return Ok(());
        }
        let measure = self.measure(profile, tables)?;
        let mut executions = FxHashMap::default();
        let mut frames: Vec<Place> = Vec::new();
        for sample in &profile.samples {
            let execution = match executions.get(&sample.attribute_indices) {
                Some(known) => *known,
                None => {
                    let execution = self.execution(sample, process, tables)?;
                    executions.insert(sample.attribute_indices.clone(), execution);
                    execution
                }
            };
            self.tallies.with_links += u64::from(sample.link_index != 0);
            let Some((periods, count)) = self.observed(sample, measure)? else { continue };
            self.sample(sample, measure.event, execution, (periods, count), &mut frames, tables)?;
        }
        Ok(())
    }

    fn sample(
        &mut self,
        sample: &Sample,
        event: usize,
        execution: ExecutionId,
        (periods, count): (u64, u64),
        frames: &mut Vec<Place>,
        tables: &mut Tables<'_>,
    ) -> Result<(), String> {
        let stack = tables.stack(sample.stack_index)?;
        let (leaf, callers) = stack.split_first().map_or((None, &[][..]), |(leaf, rest)| (Some(leaf), rest));
        let (address, place) = match leaf {
            Some(leaf) => tables.place(*leaf, &mut self.known, &mut self.imported)?,
            None => (0, None),
        };
        let place = self.imported.count_many(event, execution, place, address, periods, count);
        frames.clear();
        frames.push(place);
        // Addresses of callers are inside their calls, as the schema says.
        for caller in callers.iter().take(FRAMES_MAX) {
            let (address, caller) = tables.place(*caller, &mut self.known, &mut self.imported)?;
            frames.push(caller.unwrap_or_else(|| self.imported.unknown_place(address)));
        }
        self.imported.add_named_stack(event, execution, frames, (periods, count));
        Ok(())
    }

    /// Returns the execution of the process that a sample belongs to.
    fn execution(
        &mut self,
        sample: &Sample,
        resource: &ProcessName,
        tables: &Tables<'_>,
    ) -> Result<ExecutionId, String> {
        let mut process = resource.clone();
        for index in &sample.attribute_indices {
            let (key, value) = tables.attribute(*index)?;
            process.set(&key, &value, &mut self.tallies.keys);
        }
        let process = process.without_thread(&mut self.tallies.keys);
        if let Some(execution) = self.processes.get(&process) {
            return Ok(*execution);
        }
        let first = match *resource == ProcessName::default() {
            true => tables.first_file()?,
            false => None,
        };
        let first = first.as_deref().and_then(|path| path.rsplit('/').next()).filter(|name| !name.is_empty());
        let pid = Pid(self.processes.len() as u32 + 1);
        if let Some(name) = process.program().or(first) {
            self.imported.spaces.comm(pid, name);
        }
        let execution = self.imported.spaces.execution(pid);
        self.processes.insert(process, execution);
        Ok(execution)
    }

    /// Returns the sum of a sample's periods and the number of its samples; `None` if there are none.
    fn observed(&mut self, sample: &Sample, measure: Measure) -> Result<Option<(u64, u64)>, String> {
        let (values, times) = (&sample.values, &sample.timestamps_unix_nano);
        if let Some(negative) = values.iter().find(|value| **value < 0) {
            return Err(format!("a sample has the negative value {negative}"));
        }
        self.tallies.empty += u64::from(values.is_empty() && times.is_empty());
        self.tallies.uneven +=
            u64::from(!values.is_empty() && !times.is_empty() && values.len() != times.len());
        let sum = match values.is_empty() {
            true => times.len() as u128,
            false => values.iter().map(|value| u128::from(value.unsigned_abs())).sum(),
        };
        let periods = u128::saturating_mul(sum, measure.scale.into());
        let total = &mut self.sums[measure.event];
        *total = total.saturating_add(periods.max(sum));
        if *total > SUM_MAX {
            return Err(format!("the values of an event add up to over {SUM_MAX}"));
        }
        if sum == 0 {
            return Ok(None);
        }
        let periods = u64::try_from(periods).unwrap_or(u64::MAX);
        let observations = values.iter().filter(|value| **value > 0).count().max(1) as u64;
        let count = match (measure.is_time, measure.period_ns) {
            (false, _) => u64::try_from(sum).unwrap_or(u64::MAX),
            (true, Some(period)) => (periods / period).max(1),
            (true, None) if values.is_empty() => times.len() as u64,
            (true, None) => observations,
        };
        Ok(Some((periods, count)))
    }

    /// Returns the event of a profile, and how its values are counted.
    fn measure(&mut self, profile: &Profile, tables: &Tables<'_>) -> Result<Measure, String> {
        let (of, by) = (profile.sample_type.unwrap_or_default(), profile.period_type.unwrap_or_default());
        let (kind, unit) = (tables.text(of.type_strindex)?, tables.text(of.unit_strindex)?);
        let (period_kind, period_unit) = (tables.text(by.type_strindex)?, tables.text(by.unit_strindex)?);
        let period =
            u64::try_from(profile.period).map_err(|_| format!("the negative period {}", profile.period))?;
        let period_ns =
            nanoseconds(&period_unit).map(|ns| period.saturating_mul(ns)).filter(|period| *period > 0);
        let counts_periods = kind == "samples" && !period_kind.is_empty();
        let (name, is_in_ns) = match counts_periods {
            true => (event_name(&period_kind, period_ns.is_some()), period_ns.is_some()),
            false => (event_name(&kind, nanoseconds(&unit).is_some()), nanoseconds(&unit).is_some()),
        };
        let is_time = !counts_periods && is_in_ns;
        let scale = match (counts_periods, nanoseconds(&unit)) {
            (true, _) => period_ns.unwrap_or(period),
            (false, Some(ns)) => ns,
            (false, None) => 1,
        };
        let event = self.event(&name, is_in_ns)?;
        Ok(Measure { event, scale: scale.max(1), period_ns, is_time })
    }

    /// Returns the index of an event, which is new if its name is.
    fn event(&mut self, name: &str, is_in_ns: bool) -> Result<usize, String> {
        if let Some(index) = self.events.get(name) {
            return Ok(*index);
        }
        let index = self.events.len();
        if index == EVENTS_MAX {
            return Err(format!("its profiles are of over {EVENTS_MAX} events"));
        }
        self.events.insert(name.to_owned(), index);
        self.sums.push(0);
        self.imported.attributes.push((name.to_owned(), None));
        self.imported.events.push(EventTally::default());
        if is_in_ns {
            self.imported.in_ns.insert(name.to_owned());
        }
        Ok(index)
    }
}

/// The type of values and their unit.
type TypeAndUnit<'m> = (Cow<'m, str>, Cow<'m, str>);

/// Returns the types of values that are periods times the numbers of samples in another one of these profiles: a profile of pprof
/// that was converted has both, and each sample counts once.
fn counted<'m>(profiles: &[Profile], tables: &Tables<'m>) -> Result<BTreeSet<TypeAndUnit<'m>>, String> {
    let mut types = BTreeSet::new();
    for profile in profiles {
        let (of, by) = (profile.sample_type.unwrap_or_default(), profile.period_type.unwrap_or_default());
        if tables.text(of.type_strindex)? == "samples" && by.type_strindex != 0 {
            types.insert((tables.text(by.type_strindex)?, tables.text(by.unit_strindex)?));
        }
    }
    Ok(types)
}

/// Returns the nanoseconds of a unit of time.
fn nanoseconds(unit: &str) -> Option<u64> {
    match unit {
        "nanoseconds" | "ns" => Some(1),
        "microseconds" | "us" => Some(1_000),
        "milliseconds" | "ms" => Some(1_000_000),
        "seconds" | "s" => Some(1_000_000_000),
        _ => None,
    }
}

/// Returns Dwell's name of an event.
fn event_name<'k>(kind: &'k str, is_in_ns: bool) -> Cow<'k, str> {
    match kind {
        "cpu" | "samples" if is_in_ns => Event::CPU_CLOCK.name().to_owned().into(),
        "off_cpu" | "off-cpu" if is_in_ns => Event::OFF_CPU.name().to_owned().into(),
        kind => kind.into(),
    }
}
