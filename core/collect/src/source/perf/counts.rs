//! Queries events for the number of records that found no room, and for how long they counted.
//!
//! Enters: events. Leaves: sums by event. Never here: records. A query interrupts the event's CPU, so it is not made in each
//! round.

use dwell_profile::CpuId;

use super::{Opening, PerfSource, RingKind, Role};
use crate::sys::event_times::EventTimes;

impl PerfSource {
    /// Queries each event for the number of its records that found no room since the last query, and for how long it has
    /// counted.
    pub(super) fn ask(&mut self) {
        for sampler in &mut self.samplers {
            // An event that is being revoked returns an error.
            let Ok(counts) = sampler.event.counts() else { continue };
            sampler.times = counts.times;
            let more = counts.lost.saturating_sub(sampler.lost);
            sampler.lost += more;
            if more > 0 && self.granted.counts_lost {
                self.seen.lost.push((sampler.role.counted(), more));
            }
        }
    }

    /// Keeps the times of a CPU's events before they are closed.
    pub(super) fn keep_times(&mut self, cpu: CpuId) {
        for sampler in self.samplers.iter().filter(|s| s.cpu == cpu) {
            *self.times_of_gone.entry(sampler.role).or_default() += sampler.times;
        }
    }

    /// Returns how long each sampled event has counted.
    pub(super) fn query_times(&mut self) -> Vec<EventTimes> {
        self.ask();
        let is_event = |opening: &&Opening| matches!(opening.role, Role::Sampled(_) | Role::Waits(_));
        let mut roles: Vec<Role> =
            self.openings.iter().filter(is_event).map(|opening| opening.role).collect();
        roles.sort_by_key(|role| role.counted());
        roles.into_iter().map(|role| self.times_of(role)).collect()
    }

    /// Returns the times of the events of a role. A task has one event for each CPU, and all of them are enabled while the task runs on
    /// any CPU.
    fn times_of(&self, role: Role) -> EventTimes {
        let mut sum = self.times_of_gone.get(&role).copied().unwrap_or_default();
        self.samplers.iter().filter(|s| s.role == role).for_each(|s| sum += s.times);
        if self.cpu_watch.is_none() {
            let cpus = self.cpus.iter().filter(|c| c.kind == RingKind::Records).count();
            sum.enabled_ns /= cpus.max(1) as u64;
        }
        sum
    }
}
