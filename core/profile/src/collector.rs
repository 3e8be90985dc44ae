//! The collector's account of what it did and cost in an epoch, by which a user judges how far the samples can be
//! trusted.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Event;

/// The collector's own account of an epoch. Fields may be added; each has a default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CollectorRecord {
    /// The reason why the epoch began: `start`, `asked`, `schedule`, `size`, `rebuilt: …`, `rate: …`, `clock: …`,
    /// `events: …`, `applications: …`.
    pub began: String,
    /// Time during which samples were taken, in ns. Time when the machine was suspended or the collection was paused is
    /// not included.
    pub elapsed_ns: u64,
    /// Time during which no samples were taken because sampling was paused or the events were closed, in ns.
    pub paused_ns: u64,
    /// Time during which the machine was suspended in this epoch, in ns.
    pub suspended_ns: u64,
    /// Number of times the wall clock was set by more than a second.
    pub clock_steps: u64,
    /// The sum of those clock steps, in ns; forward is positive.
    pub clock_step_ns: i64,
    /// The share of each CPU that sampling may cost, in percent.
    pub budget_percent: f64,
    /// The share of each CPU that sampling cost, in percent. It includes the collector's CPU time and the time of the
    /// interrupts (their cost as measured on this machine, times the number of samples).
    pub cost_percent: f64,
    /// CPU time of the collector in user mode, in ns.
    pub cpu_user_ns: u64,
    /// CPU time of the collector in the kernel, in ns.
    pub cpu_kernel_ns: u64,
    /// CPU time that the interrupts of the samples took from all processes, in ns.
    pub interrupt_ns: u64,
    /// The share of the requested sampling rate that was in force, 0 to 1. An epoch has one rate.
    pub rate_share: f64,
    /// Number of times the rate was lowered to stay within the budget, since the collector started.
    pub rate_lowered: u64,
    /// Number of times the rate was raised again, since the collector started.
    pub rate_raised: u64,
    /// Resident memory of the collector when this record was written, in bytes.
    pub memory_bytes: u64,
    /// Peak resident memory since the collector started, in bytes, as the kernel counts it (VmHWM). Memory of its
    /// short-lived child processes is not included.
    pub memory_bytes_max: u64,
    /// Size of the epoch's files, in bytes.
    pub disk_bytes: u64,
    /// Number of times the database could not store samples. They were kept and stored later, or counted as lost.
    pub stores_failed: u64,
    /// Number of times the events had stopped delivering samples and were opened again, since the collector started.
    pub events_reopened: u64,
    /// Lost samples by cause; the sum over all events of `lost`.
    pub lost: BTreeMap<String, u64>,
    /// Samples in the image `unknown` by cause; the sum over all events of `unknown`.
    pub unknown: BTreeMap<String, u64>,
    /// Applications whose samples are kept. Empty: those of all applications.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub apps: Vec<String>,
    /// Samples of other (or unknown) applications, which were taken and not kept; `None` if those of all are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_apps: Option<u64>,
    /// Samples by event; element n belongs to CPU n.
    pub samples_by_cpu: BTreeMap<Event, Vec<u64>>,
    /// How well the kernel part aggregated samples; `None` if it did not aggregate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<TableRecord>,
    /// Samples of the idle task, which are counted nowhere else; `None` if the kernel part does not count them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle: Option<u64>,
    /// Number of times the kernel part could not deliver the registers of a sample: there was no room for them, the
    /// thread had entered the kernel, or it ran 32-bit code. The samples are counted, but give no directions of
    /// branches. `None` if the kernel part does not count this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub registers_lost: Option<u64>,
    /// Samples in the kernel that could not be counted a second time at the user instruction that entered the kernel
    /// ([`Event::KERNEL_TIME`]), because there was no room. The samples themselves are not lost. `None` if the kernel
    /// part does not count kernel time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_time_lost: Option<u64>,
    /// Executions of programs that the kernel part could not report because it had no room. The programs of their
    /// samples had to be found in other ways, or the samples are in the image `unknown`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub executions_lost: Option<u64>,
    /// Time during which our events had no hardware counter because pinned events of others took it, in ns, summed over
    /// CPUs. There are no samples of this time, and their number is not known. `None` if the kernel part does not
    /// report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub given_up_ns: Option<u64>,
    /// Number of records that arrived too late to be processed in order of time, since the collector started.
    pub late_records: u64,
    /// The largest delay of such a record, in ns: the skew between the streams of the CPUs that was not absorbed.
    pub skew_ns_max: u64,
}

/// What the aggregation table of the kernel part did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TableRecord {
    /// Samples that were offered to the table.
    pub samples: u64,
    /// Samples whose entry was in the table already.
    pub found: u64,
}

impl TableRecord {
    /// Returns the share of samples whose entry was in the table already; 0 if there were no samples.
    pub fn hit_rate(&self) -> f64 {
        self.found as f64 / self.samples.max(1) as f64
    }
}
