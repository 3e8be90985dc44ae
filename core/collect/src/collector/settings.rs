//! What a collector counts and keeps beside samples and their places. It is set before the first record.
//!
//! Enters: choices of the user and abilities of the source. Leaves: parts of the collector that are switched on. Never here: records.

use dwell_profile::DimensionSet;

use super::{Collector, DataReferences, LoopCounters, Waits};
use crate::host::Host;

impl<H: Host> Collector<H> {
    /// Counts samples of pid 0 as `[outside]`, not `[idle]`: processes outside of our pid namespace have that pid too.
    pub fn call_hidden_processes(&mut self) {
        self.attribution.call_hidden_processes();
    }

    /// Keeps samples of these applications only; those of others are just counted. Without any, all are kept.
    pub fn keep_only(&mut self, apps: Vec<String>) {
        self.attribution.apps.keep_only(apps);
    }

    /// Returns the applications whose samples are kept; empty: all.
    pub fn kept_apps(&self) -> &[String] {
        self.attribution.apps.kept()
    }

    /// Selects the dimensions (thread, CPU, container) that are stored with each sample.
    pub fn keep_dimensions(&mut self, dimensions: DimensionSet) {
        self.attribution.keep_dimensions(dimensions);
    }

    /// Starts to count what samples refer to.
    pub fn keep_data(&mut self) {
        self.data = Some(DataReferences::default());
    }

    /// Sets the rate at which stacks are sampled, which the epoch reports.
    pub fn set_stacks_rate(&mut self, hz: u32) {
        self.call_stacks.set_rate(hz);
    }

    /// Starts to count the time that threads are off the CPU.
    pub fn keep_waits(&mut self, waits: Waits) {
        self.waits = Some(waits);
    }

    /// Returns the time that threads are off the CPU, if it is counted.
    pub fn waits(&mut self) -> Option<&mut Waits> {
        self.waits.as_mut()
    }

    /// Starts to pair samples in loops.
    pub fn keep_loops(&mut self) {
        self.loops = Some(LoopCounters::default());
    }

    /// Starts to keep what each pid was until [`Collector::end_interval`], because the source aggregates samples.
    pub fn keep_spaces(&mut self) {
        self.attribution.processes.keep_past();
        self.branches.expect_aggregated();
    }
}
