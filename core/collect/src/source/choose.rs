//! Chooses the backend and the events: those requested, otherwise the best that work on this machine.
//!
//! Enters: the requested backend, events and rate. Leaves: an open source, and notes that explain the choice.

use dwell_profile::{Dimension, DimensionSet, Event};

use super::{Backend, Source, Tasks, bpf::BpfSource, kmod::KmodSource, perf::PerfSource, sees_all_processes};
use crate::{
    CollectError,
    source::{BackendChoice, Rate, events::EventConfig},
    sys::event::PerfEvent,
};

/// The settings for sampling, as requested.
#[derive(Clone, Copy, Debug)]
pub struct SourceRequest<'a> {
    /// The requested backend.
    pub backend: BackendChoice,
    /// The requested events. If empty: hardware cycles and instructions, otherwise the timer.
    pub events: &'a [Event],
    /// The sampling rate.
    pub rate: Rate,
    /// Whether to sample registers.
    pub registers: bool,
    /// Whether each sample must be a record of its own, with time and thread. Tables cannot provide that.
    pub one_by_one: bool,
    /// The dimensions to record of each sample beside its place.
    pub dimensions: DimensionSet,
    /// Branch stacks per second of a busy CPU, beside hardware events from rings; 0: none.
    pub branch_stacks_hz: u32,
    /// Number of samples per second of a thread or CPU that carry a call stack; 0: none.
    pub stacks_hz: u32,
    /// The measured core clock in Hz.
    pub clock_hz: Option<f64>,
}

/// An open source and its events.
pub struct OpenedSource {
    /// The source, disabled.
    pub source: Box<dyn Source>,
    /// The events that it samples.
    pub configs: Vec<EventConfig>,
    /// Explains which choices were replaced by others, and why.
    pub notes: Vec<String>,
}

/// Opens the requested backend, or the best one: for whole machines the kernel module, then BPF, then rings; for commands
/// and processes rings, since all tasks of the machine share the tables.
pub fn open_source(request: &SourceRequest<'_>, tasks: &Tasks) -> Result<OpenedSource, CollectError> {
    match request.backend {
        BackendChoice::Kmod => open_with(Backend::Kmod, request, tasks),
        BackendChoice::Bpf => open_with(Backend::Bpf, request, tasks),
        BackendChoice::Perf => open_with(Backend::Perf, request, tasks),
        BackendChoice::Auto if !matches!(tasks, Tasks::All) => open_with(Backend::Perf, request, tasks),
        BackendChoice::Auto => open_first(&[Backend::Kmod, Backend::Bpf, Backend::Perf], request, tasks),
    }
}

/// Opens the first backend that works. Notes contain the reasons why those before it do not.
fn open_first(
    backends: &[Backend],
    request: &SourceRequest<'_>,
    tasks: &Tasks,
) -> Result<OpenedSource, CollectError> {
    let (last, better) = backends.split_last().expect("the list of backends is not empty");
    let mut reasons = Vec::new();
    for backend in better {
        match open_with(*backend, request, tasks) {
            Err(CollectError::Backend { why, .. }) => reasons.push(format!("{backend} does not work: {why}")),
            opened => return opened.map(|opened| add_backend_note(*backend, reasons, opened)),
        }
    }
    open_with(*last, request, tasks).map(|opened| add_backend_note(*last, reasons, opened))
}

fn add_backend_note(backend: Backend, reasons: Vec<String>, mut opened: OpenedSource) -> OpenedSource {
    let why = if reasons.is_empty() { "the best one".to_owned() } else { reasons.join("; ") };
    opened.notes.insert(0, format!("backend {backend} ({why})"));
    opened
}

/// Opens the requested events, or the best ones, with one backend.
fn open_with(
    backend: Backend,
    request: &SourceRequest<'_>,
    tasks: &Tasks,
) -> Result<OpenedSource, CollectError> {
    let open = |events: &[Event]| {
        let configs = configs(backend, events, request)?;
        let source = open_events(backend, tasks, &configs, request)?;
        let notes = precision_note(&configs).into_iter().collect();
        Ok(OpenedSource { source, configs, notes })
    };
    if !request.events.is_empty() {
        return open(request.events);
    }
    let (mut opened, note) = open_best(open)?;
    opened.notes.extend(note);
    Ok(opened)
}

/// Opens the best events that work if none were requested: time, and also instructions where they are counted, since these
/// give frequencies without a model and without a scale to estimate. Returns also what was left out, and why.
fn open_best<T>(
    open: impl Fn(&[Event]) -> Result<T, CollectError>,
) -> Result<(T, Option<String>), CollectError> {
    let refused = match open(&[Event::CYCLES, Event::INSTRUCTIONS]) {
        Err(CollectError::NoSuchEvent { why, .. }) => why,
        Err(error @ CollectError::Open { .. }) => error.to_string(),
        opened => return Ok((opened?, None)),
    };
    match open(&[Event::CYCLES]) {
        Err(CollectError::NoSuchEvent { .. }) => {
            let note = "no hardware cycles on this machine: time is sampled by a timer (cpu-clock)";
            Ok((open(&[Event::CPU_CLOCK])?, Some(note.to_owned())))
        }
        opened => Ok((opened?, Some(format!("instructions are not sampled beside cycles: {refused}")))),
    }
}

/// Ratio of the period of instructions to that of cycles, if both are sampled by default. A processor that executes four
/// instructions a cycle is then interrupted twice as often as by cycles alone, one that executes one a cycle a quarter more
/// often. So the budget of a daemon, and the cost for sampled programs, hardly change.
const INSTRUCTIONS_RARER: u64 = 4;

fn configs(
    backend: Backend,
    events: &[Event],
    request: &SourceRequest<'_>,
) -> Result<Vec<EventConfig>, CollectError> {
    let mut configs = distinct_configs(events, request)?;
    for config in configs.iter_mut().filter(|config| config.event == Event::INSTRUCTIONS) {
        if request.events.is_empty() {
            *config = config.clone().rarer(INSTRUCTIONS_RARER);
        }
        // Only instructions are sampled precisely. The analysis of samples of time assumes where an imprecise interrupt puts
        // them (core/analysis/src/frequency/skid.rs). The kernel module opens its own events and does not support this.
        if backend != Backend::Kmod {
            config.precise = PerfEvent::precise_at_best(config.counter, config.period);
        }
    }
    // The kernel module opens its own events, which have no stacks. They are unwound on x86-64 only.
    let has_stacks = backend != Backend::Kmod && cfg!(target_arch = "x86_64");
    if let Some(first) = configs.iter_mut().find(|config| has_stacks && !config.is_wait()) {
        *first = first.clone().with_stacks(request.stacks_hz);
    }
    // Each wait shows its stack.
    let has_stacks = has_stacks && request.stacks_hz > 0;
    configs.iter_mut().filter(|config| config.is_wait()).for_each(|c| c.stacks = f64::from(has_stacks));
    Ok(configs)
}

/// Returns a note on how far samples of instructions lie from the executed instruction.
fn precision_note(configs: &[EventConfig]) -> Option<String> {
    let config = configs.iter().find(|config| config.event == Event::INSTRUCTIONS)?;
    let precision = match config.precise {
        0 => "imprecise: samples land some instructions later",
        1 => "precise except for a constant skid",
        _ => "precise: samples name the executed instruction",
    };
    Some(format!("instructions are {precision} (precise_ip {})", config.precise))
}

fn distinct_configs(events: &[Event], request: &SourceRequest<'_>) -> Result<Vec<EventConfig>, CollectError> {
    let mut configs: Vec<EventConfig> = Vec::new();
    for event in events {
        let next = EventConfig::new(event, request.rate, request.clock_hz)?;
        if configs.iter().all(|p| p.event != next.event) {
            configs.push(next);
        }
    }
    Ok(configs)
}

fn open_events(
    backend: Backend,
    tasks: &Tasks,
    configs: &[EventConfig],
    request: &SourceRequest<'_>,
) -> Result<Box<dyn Source>, CollectError> {
    let lacks = |why: &str| Err(CollectError::Backend { backend, why: why.to_owned() });
    if request.one_by_one && backend != Backend::Perf {
        return lacks("counting executions beside samples needs each sample as a record of its own");
    }
    if backend != Backend::Perf && configs.iter().any(EventConfig::is_wait) {
        return lacks("it does not record off-cpu; perf does");
    }
    if backend != Backend::Perf && !sees_all_processes() {
        return lacks(
            "dwell runs in a pid namespace, but this backend reports the process numbers of the initial one",
        );
    }
    let unreported = request.dimensions.iter().find(|dimension| !can_report(backend, *dimension));
    if let Some(dimension) = unreported {
        return lacks(&format!("it does not record the {dimension} of a sample; perf does"));
    }
    match backend {
        Backend::Kmod => Ok(Box::new(KmodSource::open(tasks, configs, request.registers)?)),
        Backend::Bpf => Ok(Box::new(BpfSource::open(tasks, configs, request.registers)?)),
        Backend::Perf => {
            let stacks = branch_stacks_config(configs, request)?;
            let mut source = PerfSource::open(tasks, configs, request.registers, stacks.as_ref())?;
            // A thread that has ended waits no longer.
            if request.dimensions.has(Dimension::Thread) || configs.iter().any(EventConfig::is_wait) {
                source.report_threads();
            }
            Ok(Box::new(source))
        }
    }
}

/// Returns the configuration for branch stacks. A stack is taken at every n-th branch, not after a fixed time, so that slow code has
/// no more stacks than its share of executions (AutoFDO does the same: Chen, Li, Moseley, CGO 2016). Stacks are only sampled
/// beside a hardware event: a user who requests a timer may want to leave the counters alone.
fn branch_stacks_config(
    configs: &[EventConfig],
    request: &SourceRequest<'_>,
) -> Result<Option<EventConfig>, CollectError> {
    if request.branch_stacks_hz == 0 || !configs.iter().any(EventConfig::is_hardware) {
        return Ok(None);
    }
    let config = EventConfig::new(
        &Event::named("branches"),
        Rate::Frequency(request.branch_stacks_hz),
        request.clock_hz,
    )?;
    // An odd period visits all branches of a loop whose number of branches is a power of two.
    Ok(Some(EventConfig { period: config.period | 1, ..config }))
}

/// Returns whether a backend can record a dimension. Tables contain counts by process at most, so samples that they do not
/// distinguish cannot be separated later. BPF has a table for each CPU.
fn can_report(backend: Backend, dimension: Dimension) -> bool {
    match backend {
        Backend::Kmod => false,
        Backend::Bpf => dimension == Dimension::Cpu,
        Backend::Perf => true,
    }
}

#[cfg(test)]
mod tests {
    use dwell_profile::DimensionSet;
    use expect_test::expect;

    use super::*;

    fn lacking(name: &str) -> CollectError {
        CollectError::NoSuchEvent { name: name.into(), why: "not counted".into(), known: Vec::new() }
    }

    /// Opens the best events of a machine that has these.
    fn best_events(has: &[Event]) -> String {
        let open = |events: &[Event]| match events.iter().find(|event| !has.contains(event)) {
            Some(missing) => Err(lacking(missing.name())),
            None => Ok(events.iter().map(Event::name).collect::<Vec<_>>().join(" + ")),
        };
        match open_best(open) {
            Ok((opened, note)) => format!("{opened}; {}\n", note.unwrap_or_default()),
            Err(error) => format!("{error}\n"),
        }
    }

    #[test]
    fn instructions_are_sampled_beside_cycles_if_possible() {
        let all = [Event::CYCLES, Event::INSTRUCTIONS, Event::CPU_CLOCK];
        let texts = [
            best_events(&all),
            best_events(&[Event::CYCLES, Event::CPU_CLOCK]),
            best_events(&[Event::CPU_CLOCK]),
        ];
        expect![[r#"
            cycles + instructions; 
            cycles; instructions are not sampled beside cycles: not counted
            cpu-clock; no hardware cycles on this machine: time is sampled by a timer (cpu-clock)
        "#]]
        .assert_eq(&texts.concat());
    }

    /// An error is returned at once to a user who may not sample at all, and to one who must take another backend.
    #[test]
    fn other_failures_are_returned_at_once() {
        let tries = std::cell::Cell::new(0);
        let opened = open_best::<()>(|_| {
            tries.set(tries.get() + 1);
            Err(CollectError::SystemDenied { why: String::new() })
        });
        assert!(matches!(opened, Err(CollectError::SystemDenied { .. })) && tries.get() == 1);
    }

    #[test]
    fn instructions_are_rarer_unless_requested() {
        let periods = |requested: &[Event]| {
            let request = SourceRequest {
                backend: BackendChoice::Perf,
                events: requested,
                rate: Rate::Frequency(1000),
                registers: true,
                one_by_one: false,
                dimensions: DimensionSet::NONE,
                branch_stacks_hz: 0,
                stacks_hz: 0,
                clock_hz: Some(3e9),
            };
            let configs = configs(Backend::Perf, &[Event::CYCLES, Event::INSTRUCTIONS], &request).unwrap();
            configs.iter().map(|config| (config.period, config.rate_hz)).collect::<Vec<_>>()
        };
        assert_eq!(periods(&[]), [(3_000_000, 1000.0), (12_000_000, 250.0)]);
        assert_eq!(periods(&[Event::CYCLES, Event::INSTRUCTIONS]), [(3_000_000, 1000.0); 2]);
    }
}
