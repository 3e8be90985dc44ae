//! What a continuous collection did and cost in an epoch: what its user must know to believe it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Event;

/// The collector's own account of an epoch. Fields may be added; each has a default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CollectorRecord {
    /// Why the epoch began: `start`, `asked`, `schedule`, `size`, `rebuilt: …`, `rate: …`, `clock: …`, `events: …`.
    pub began: String,
    /// How long was sampled, in ns: without what the machine slept or the collection was paused.
    pub elapsed_ns: u64,
    /// What the machine was suspended for meanwhile, in ns.
    pub suspended_ns: u64,
    /// How often the wall clock was set by more than a second.
    pub clock_steps: u64,
    /// The sum of those steps, in ns; forward is positive.
    pub clock_step_ns: i64,
    /// What sampling may cost: percent of each CPU.
    pub budget_percent: f64,
    /// What it cost: percent of each CPU, the collector's CPU time and the interrupts' (measured on this machine, times
    /// the samples) together.
    pub cost_percent: f64,
    /// CPU time of the collector in user mode, in ns.
    pub cpu_user_ns: u64,
    /// CPU time of the collector in the kernel, in ns.
    pub cpu_kernel_ns: u64,
    /// What the samples' interrupts took of everybody's CPU time, in ns.
    pub interrupt_ns: u64,
    /// The part of the asked rate that was in force, 0 to 1. An epoch has one rate.
    pub rate_share: f64,
    /// How often the rate was lowered to stay within the budget, since the collector started.
    pub rate_lowered: u64,
    /// How often it was raised again.
    pub rate_raised: u64,
    /// Resident memory, in bytes, when this was written.
    pub memory_bytes: u64,
    /// The most that it was since the collector started, as the kernel counts it (VmHWM); of processes that it starts for a
    /// while, nothing is in it.
    pub memory_bytes_max: u64,
    /// The epoch's files, in bytes.
    pub disk_bytes: u64,
    /// How often the database refused what should have been stored; it was kept and stored later, or counted as lost.
    pub stores_failed: u64,
    /// How often the events had gone silent and were opened again, since the collector started.
    pub events_reopened: u64,
    /// Samples lost, by cause; the sum over events of `lost`.
    pub lost: BTreeMap<String, u64>,
    /// Samples under `unknown`, by cause; the sum over events of `unknown`.
    pub unknown: BTreeMap<String, u64>,
    /// Samples by event; the n-th number is CPU n's.
    pub samples_by_cpu: BTreeMap<Event, Vec<u64>>,
    /// How well the kernel aggregated, where it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<TableRecord>,
    /// Samples that fell into the idle task and are counted nowhere else, where the kernel's part counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle: Option<u64>,
    /// How often registers that were to be handed out found no room, or the thread had entered the kernel or ran 32-bit code,
    /// where its part counts that: fewer directions of branches, no fewer samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub registers_lost: Option<u64>,
    /// Samples in the kernel that found no room to be counted once more at the user's instruction that entered it
    /// ([`Event::KERNEL_TIME`]), where the kernel's part does so. No sample is lost by that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_time_lost: Option<u64>,
    /// Executions of programs that the kernel's part had no room to tell of: whose samples are had to be learned in other ways,
    /// or they are among the unknown ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub executions_lost: Option<u64>,
    /// For how long events were to count that others' pinned events had left no counter, added up over CPUs, in ns, where the
    /// kernel's part tells: of that time there are no samples, and how many it took is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub given_up_ns: Option<u64>,
    /// Records that came after their turn in time had passed, since the collector started.
    pub late_records: u64,
    /// By how much at most, in ns: the skew between the CPUs' streams that was not absorbed.
    pub skew_ns_max: u64,
}

/// What the table of the kernel's part did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TableRecord {
    /// Samples that came to it.
    pub samples: u64,
    /// Of those, the ones that found their entry there.
    pub found: u64,
}

impl TableRecord {
    /// The share of samples that found their entry; 0 where there was none.
    pub fn hit_rate(&self) -> f64 {
        self.found as f64 / self.samples.max(1) as f64
    }
}
