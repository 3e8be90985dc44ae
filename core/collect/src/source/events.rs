//! The table of events, and the periods that correspond to sampling rates.
//!
//! Enters: names as perf spells them, a rate, the measured clock. Leaves: configurations of events. Never here: opening events.

use dwell_profile::{Event, Unit};
use perf_event_open_sys::bindings as abi;

use crate::{CollectError, source::Rate, sys::event::Counter};

/// An event to sample, with its period.
#[derive(Clone, Debug, PartialEq)]
pub struct EventConfig {
    /// The event's name.
    pub event: Event,
    /// The kernel's number of the event.
    pub counter: Counter,
    /// The unit of its period.
    pub unit: Unit,
    /// Mean occurrences between two samples.
    pub period: u64,
    /// The resulting number of samples per second of a busy CPU, at most.
    pub rate_hz: f64,
    /// The requested precision of a sample's instruction: `precise_ip`.
    pub precise: u8,
    /// Share of its samples that carry a call stack, from 0 to 1.
    pub stacks: f64,
}

impl EventConfig {
    /// Returns the configuration for sampling an event at a rate. `clock_hz` is the measured core clock.
    pub fn new(event: &Event, rate: Rate, clock_hz: Option<f64>) -> Result<EventConfig, CollectError> {
        let Some(known) = KNOWN.iter().find(|k| k.name == event.name()) else {
            let (name, why) = (event.name().to_owned(), "dwell does not know it".to_owned());
            return Err(CollectError::NoSuchEvent { name, why, known: known_names() });
        };
        let per_second = match (known.unit, known.cycles_apart) {
            (Unit::Nanoseconds, _) => NANOSECONDS,
            (_, 0) => 1.0, // Page faults etc.: sample each one, unless a period is given.
            (_, apart) => clock_hz.unwrap_or(CLOCK_HZ_ASSUMED) / apart as f64,
        };
        let period = match rate {
            Rate::Continuous { hz_max } => continuous_period(known, per_second, hz_max),
            asked => period_of(asked, per_second)?,
        };
        if known.unit == Unit::Nanoseconds && period < TIMER_PERIOD_NS_MIN {
            let expected = format!("a period of at least {TIMER_PERIOD_NS_MIN} ns");
            return Err(CollectError::BadRate {
                asked: format!("{} every {period} ns", known.name),
                expected,
            });
        }
        // Each event has one name in the database.
        let event = match known.name {
            "cpu-cycles" => Event::CYCLES,
            "branch-instructions" => Event::named("branches"),
            name => Event::named(name),
        };
        let counter = Counter { kind: known.kind, config: u64::from(known.config) };
        let rate_hz = if known.cycles_apart == 0 && known.unit == Unit::Events {
            1e3
        } else {
            per_second / period as f64
        };
        Ok(EventConfig { event, counter, unit: known.unit, period, rate_hz, precise: 0, stacks: 0.0 })
    }

    /// Returns the configuration of an event that never occurs. It carries the records that come with any event.
    pub fn side_band() -> Self {
        let config = u64::from(abi::PERF_COUNT_SW_DUMMY);
        let counter = Counter { kind: abi::PERF_TYPE_SOFTWARE, config };
        let event = Event::named("side-band");
        EventConfig { event, counter, unit: Unit::Events, period: 1, rate_hz: 0.0, precise: 0, stacks: 0.0 }
    }

    /// Returns whether the event is a counter of the processor.
    pub fn is_hardware(&self) -> bool {
        matches!(self.counter.kind, abi::PERF_TYPE_HARDWARE | abi::PERF_TYPE_HW_CACHE)
    }

    /// Returns whether the registers of its samples are those of the sampled instruction. Registers of a precise sample
    /// belong, on many processors, to the later interrupt that reported the sample: they would give wrong directions of
    /// branches.
    pub fn samples_registers(&self) -> bool {
        self.precise == 0
    }

    /// Returns whether the kernel samples the event by a timer.
    pub fn is_timer(&self) -> bool {
        self.unit == Unit::Nanoseconds && !self.is_wait()
    }

    /// Returns whether the event is the time that threads are off the CPU. The kernel reports each context switch, and a wait
    /// counts for each period that it lasts.
    pub fn is_wait(&self) -> bool {
        self.event == Event::OFF_CPU
    }

    /// Returns this configuration with a period that is `times` as long.
    pub fn rarer(self, times: u64) -> Self {
        EventConfig {
            period: self.period.saturating_mul(times),
            rate_hz: self.rate_hz / times as f64,
            ..self
        }
    }

    /// Returns this configuration with `hz` samples per second that carry a call stack, or all of them if there are fewer.
    ///
    /// Such samples come from an event of their own, beside that of the others, and both together have the event's rate. The rate
    /// of stacks is changed by 1.3 % so that it is no simple fraction of the other one. Otherwise two events that start at
    /// the same time, as those of a command do, would take each second sample at the same moment.
    pub fn with_stacks(self, hz: u32) -> Self {
        /// Makes the two periods drift against each other by a few microseconds in each period.
        const INCOMMENSURATE: f64 = 1.0133;
        /// With a shorter period, nothing can be shared out: each occurrence is sampled.
        const PERIOD_MIN: u64 = 16;
        let share = f64::from(hz) * INCOMMENSURATE / self.rate_hz.max(1e-3);
        let stacks = if hz > 0 && self.period < PERIOD_MIN { 1.0 } else { share.min(1.0) };
        EventConfig { stacks, ..self }
    }

    /// Returns this configuration for the part of the event's samples that has this share of them.
    pub fn part(self, share: f64) -> Self {
        let period = (self.period as f64 / share).round().max(1.0) as u64;
        EventConfig { period, rate_hz: self.rate_hz * share, ..self }
    }

    /// Returns the number of samples per second of a busy CPU, at most, that another period would give.
    pub fn rate_hz_at(&self, period: u64) -> f64 {
        self.rate_hz * self.period as f64 / period.max(1) as f64
    }

    /// Returns whether the samples come from interrupts of a counter or a clock. Page faults and similar events are sampled
    /// where they happen, without an interrupt.
    pub fn interrupts(&self) -> bool {
        let Counter { kind, config } = self.counter;
        let clocks = [abi::PERF_COUNT_SW_CPU_CLOCK, abi::PERF_COUNT_SW_TASK_CLOCK];
        kind != abi::PERF_TYPE_SOFTWARE || clocks.iter().any(|clock| u64::from(*clock) == config)
    }
}

/// A row of the table of events.
struct Known {
    name: &'static str,
    kind: u32,
    config: u32,
    unit: Unit,
    /// Typical number of cycles between two occurrences, which converts a rate to a period. 0: the period is 1.
    cycles_apart: u64,
}

const fn hardware(name: &'static str, config: u32, unit: Unit, cycles_apart: u64) -> Known {
    Known { name, kind: abi::PERF_TYPE_HARDWARE, config, unit, cycles_apart }
}

const fn software(name: &'static str, config: u32, unit: Unit) -> Known {
    Known { name, kind: abi::PERF_TYPE_SOFTWARE, config, unit, cycles_apart: 0 }
}

/// Loads that missed in a cache or TLB. perf encodes the cache, the operation and the result in three bytes.
const fn load_misses(name: &'static str, cache: u32, cycles_apart: u64) -> Known {
    let (load, missed) = (abi::PERF_COUNT_HW_CACHE_OP_READ, abi::PERF_COUNT_HW_CACHE_RESULT_MISS);
    let config = cache | load << 8 | missed << 16;
    Known { name, kind: abi::PERF_TYPE_HW_CACHE, config, unit: Unit::Events, cycles_apart }
}

const KNOWN: [Known; 24] = [
    hardware("cycles", abi::PERF_COUNT_HW_CPU_CYCLES, Unit::Cycles, 1),
    hardware("cpu-cycles", abi::PERF_COUNT_HW_CPU_CYCLES, Unit::Cycles, 1),
    hardware("instructions", abi::PERF_COUNT_HW_INSTRUCTIONS, Unit::Events, 1),
    hardware("cache-references", abi::PERF_COUNT_HW_CACHE_REFERENCES, Unit::Events, 20),
    hardware("cache-misses", abi::PERF_COUNT_HW_CACHE_MISSES, Unit::Events, 100),
    hardware("branches", abi::PERF_COUNT_HW_BRANCH_INSTRUCTIONS, Unit::Events, 5),
    hardware("branch-instructions", abi::PERF_COUNT_HW_BRANCH_INSTRUCTIONS, Unit::Events, 5),
    hardware("branch-misses", abi::PERF_COUNT_HW_BRANCH_MISSES, Unit::Events, 200),
    hardware("bus-cycles", abi::PERF_COUNT_HW_BUS_CYCLES, Unit::Events, 30),
    hardware("stalled-cycles-frontend", abi::PERF_COUNT_HW_STALLED_CYCLES_FRONTEND, Unit::Cycles, 4),
    hardware("stalled-cycles-backend", abi::PERF_COUNT_HW_STALLED_CYCLES_BACKEND, Unit::Cycles, 2),
    load_misses("L1-dcache-load-misses", abi::PERF_COUNT_HW_CACHE_L1D, 50),
    load_misses("L1-icache-load-misses", abi::PERF_COUNT_HW_CACHE_L1I, 100),
    load_misses("dTLB-load-misses", abi::PERF_COUNT_HW_CACHE_DTLB, 200),
    load_misses("iTLB-load-misses", abi::PERF_COUNT_HW_CACHE_ITLB, 500),
    software("cpu-clock", abi::PERF_COUNT_SW_CPU_CLOCK, Unit::Nanoseconds),
    software("task-clock", abi::PERF_COUNT_SW_TASK_CLOCK, Unit::Nanoseconds),
    software("off-cpu", abi::PERF_COUNT_SW_CONTEXT_SWITCHES, Unit::Nanoseconds),
    software("page-faults", abi::PERF_COUNT_SW_PAGE_FAULTS, Unit::Events),
    software("minor-faults", abi::PERF_COUNT_SW_PAGE_FAULTS_MIN, Unit::Events),
    software("major-faults", abi::PERF_COUNT_SW_PAGE_FAULTS_MAJ, Unit::Events),
    software("context-switches", abi::PERF_COUNT_SW_CONTEXT_SWITCHES, Unit::Events),
    software("cpu-migrations", abi::PERF_COUNT_SW_CPU_MIGRATIONS, Unit::Events),
    software("alignment-faults", abi::PERF_COUNT_SW_ALIGNMENT_FAULTS, Unit::Events),
];

/// The core clock that is assumed where none could be measured.
const CLOCK_HZ_ASSUMED: f64 = 2e9;
/// Shortest period of a timer: the kernel rounds shorter ones up.
const TIMER_PERIOD_NS_MIN: u64 = 10_000;
const FREQUENCY_MAX: u32 = 100_000;
const NANOSECONDS: f64 = 1e9;

/// Returns the names that [`EventConfig::new`] accepts.
pub fn known_names() -> Vec<&'static str> {
    KNOWN.iter().map(|k| k.name).collect()
}

fn period_of(rate: Rate, per_second: f64) -> Result<u64, CollectError> {
    match rate {
        Rate::Frequency(hz @ 1..=FREQUENCY_MAX) => Ok((per_second / f64::from(hz)).round().max(1.0) as u64),
        Rate::Frequency(hz) => Err(CollectError::BadRate {
            asked: format!("at {hz} Hz"),
            expected: format!("a frequency from 1 to {FREQUENCY_MAX} Hz"),
        }),
        Rate::Period(0) => Err(CollectError::BadRate {
            asked: "with a period of 0".to_owned(),
            expected: "a period of at least 1".to_owned(),
        }),
        Rate::Period(period) => Ok(period),
        Rate::Continuous { .. } => unreachable!("the caller knows the event, which this takes"),
    }
}

/// The period that DCPI used (§4.1.1: 60 to 64 thousand cycles).
const CONTINUOUS_CYCLES: u64 = 62_000;
/// The rate of a timer. Its interrupt costs more than a counter's, and at a clock of a few GHz 62,000 cycles would be 50
/// kHz.
const CONTINUOUS_TIMER_HZ: u32 = 1000;

/// Returns the period of [`Rate::Continuous`] for an event that occurs `per_second` times a second.
fn continuous_period(known: &Known, per_second: f64, hz_max: u32) -> u64 {
    let slowest = (per_second / f64::from(hz_max.max(1))).ceil() as u64;
    let wanted = match (known.unit, known.cycles_apart) {
        (Unit::Nanoseconds, _) => (per_second / f64::from(CONTINUOUS_TIMER_HZ)) as u64,
        (_, 0) => return 1, // Page faults etc.: sample each one.
        (_, apart) => CONTINUOUS_CYCLES / apart,
    };
    wanted.max(slowest).max(1)
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn rates_become_periods() {
        let describe = |name: &str, rate| match EventConfig::new(&Event::named(name), rate, Some(3e9)) {
            Ok(p) => format!("{} {} {}\n", p.event, p.period, p.unit.name()),
            Err(e) => format!("{e}\n"),
        };
        let texts = [
            describe("cpu-clock", Rate::Frequency(5000)),
            describe("cpu-clock", Rate::Period(250_000)),
            describe("cpu-clock", Rate::Period(2)),
            describe("cpu-cycles", Rate::Frequency(1000)),
            describe("cache-misses", Rate::Frequency(1000)),
            describe("page-faults", Rate::Frequency(1000)),
            describe("cpu-clock", Rate::Continuous { hz_max: 8000 }),
            describe("cpu-clock", Rate::Continuous { hz_max: 500 }),
            describe("cycles", Rate::Continuous { hz_max: 100_000 }),
            describe("cycles", Rate::Continuous { hz_max: 8000 }),
            describe("page-faults", Rate::Continuous { hz_max: 8000 }),
            describe("cycles", Rate::Frequency(0)),
            describe("cycles", Rate::Period(0)),
            describe("dTLB-load-misses", Rate::Frequency(1000)),
            describe("cucumbers", Rate::Period(7)),
        ]
        .concat();
        expect![[r#"
            cpu-clock 200000 ns
            cpu-clock 250000 ns
            cannot sample cpu-clock every 2 ns: expected a period of at least 10000 ns
            cycles 3000000 cycles
            cache-misses 30000 events
            page-faults 1 events
            cpu-clock 1000000 ns
            cpu-clock 2000000 ns
            cycles 62000 cycles
            cycles 375000 cycles
            page-faults 1 events
            cannot sample at 0 Hz: expected a frequency from 1 to 100000 Hz
            cannot sample with a period of 0: expected a period of at least 1
            dTLB-load-misses 15000 events
            cannot sample event 'cucumbers': dwell does not know it; known events: cycles, cpu-cycles, instructions, cache-references, cache-misses, branches, branch-instructions, branch-misses, bus-cycles, stalled-cycles-frontend, stalled-cycles-backend, L1-dcache-load-misses, L1-icache-load-misses, dTLB-load-misses, iTLB-load-misses, cpu-clock, task-clock, off-cpu, page-faults, minor-faults, major-faults, context-switches, cpu-migrations, alignment-faults
        "#]]
        .assert_eq(&texts);
    }
    /// The expected numbers are those that perf uses (`perf stat -vv -e NAME`).
    #[test]
    fn caches_are_numbered_as_perf_does() {
        let counter =
            |name| EventConfig::new(&Event::named(name), Rate::Period(1), None).expect("known").counter;
        let config = |name| (counter(name).kind, counter(name).config);
        let names =
            ["L1-dcache-load-misses", "L1-icache-load-misses", "dTLB-load-misses", "iTLB-load-misses"];
        assert_eq!(names.map(config), [(3, 0x10000), (3, 0x10001), (3, 0x10003), (3, 0x10004)]);
    }
}
