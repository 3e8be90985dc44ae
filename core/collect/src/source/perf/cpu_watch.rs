//! CPUs that come online or go, and events that the kernel revokes.
//!
//! Enters: the list of online CPUs. Leaves: events opened and closed to follow it. Never here: records.

use std::collections::BTreeSet;
use std::os::fd::AsFd;

use dwell_profile::CpuId;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{PerfSource, is_hung_up};
use crate::{
    CollectError,
    source::cpus::{OnlineCpus, online_cpus},
};

type ListCpus = Box<dyn Fn() -> Result<Vec<CpuId>, CollectError>>;

/// Watches for CPUs that come online or go.
pub(super) struct CpuWatch {
    /// Lists the online CPUs.
    pub(super) list: ListCpus,
    pub(super) next_look_ns: u64,
    /// CPUs for which the user was warned that they cannot be sampled.
    pub(super) refused: Vec<CpuId>,
}

impl CpuWatch {
    /// Returns a watch. If the list of CPUs cannot be kept open, it cannot be read later either: then CPUs that come or go are
    /// not noticed.
    pub(super) fn new() -> Self {
        let list: ListCpus = match OnlineCpus::open() {
            Ok(online) => Box::new(move || online.list()),
            Err(_) => Box::new(online_cpus),
        };
        CpuWatch { list, next_look_ns: 0, refused: Vec::new() }
    }
}

impl PerfSource {
    /// Opens events on CPUs that came online and closes those of CPUs that are gone.
    pub(super) fn look_for_cpus(&mut self, warn: &mut dyn FnMut(String)) {
        let Some(Ok(online)) = self.cpu_watch.as_ref().map(|watch| (watch.list)()) else { return };
        self.look_for_revoked(&online, warn);
        let went = self.cpus.iter().filter(|c| !c.gone && !online.contains(&c.cpu)).map(|c| c.cpu);
        let went: BTreeSet<CpuId> = went.collect();
        went.into_iter().for_each(|cpu| self.forget_cpu(cpu));
        for cpu in online {
            if self.cpus.iter().any(|c| c.cpu == cpu && !c.gone) {
                continue;
            }
            let opened = self.open_cpu(cpu);
            if opened.is_err() {
                self.abandon_cpu(cpu);
            }
            let Some(CpuWatch { refused, .. }) = &mut self.cpu_watch else { return };
            match opened {
                Ok(()) => refused.retain(|c| *c != cpu),
                Err(_) if refused.contains(&cpu) => {}
                Err(error) => {
                    refused.push(cpu);
                    warn(format!("CPU {cpu} is not sampled: {error}"));
                }
            }
        }
    }

    /// Finds revoked events. The kernel revokes an event when its provider goes (a PMU's driver, a suspended machine's PMU).
    fn look_for_revoked(&mut self, online: &[CpuId], warn: &mut dyn FnMut(String)) {
        let fds = self.samplers.iter().map(|s| s.event.fd().as_fd());
        let mut polled: Vec<PollFd<'_>> =
            fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::empty())).collect();
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        if !matches!(poll(&mut polled, Some(&at_once)), Ok(1..)) {
            return;
        }
        let revoked = self.samplers.iter().zip(&polled).filter(|(_, p)| is_hung_up(p));
        let mut cpus: Vec<CpuId> = revoked.map(|(s, _)| s.cpu).filter(|cpu| online.contains(cpu)).collect();
        cpus.dedup();
        for cpu in cpus {
            warn(format!("the kernel revoked events on CPU {cpu}; they are opened again"));
            self.forget_cpu(cpu);
        }
    }

    /// Closes a CPU's events; its rings stay until they have been drained.
    pub(super) fn forget_cpu(&mut self, cpu: CpuId) {
        self.ask();
        self.cpus.iter_mut().filter(|c| c.cpu == cpu).for_each(|c| c.gone = true);
        self.keep_times(cpu);
        self.retain_samplers(|s| s.cpu != cpu);
    }

    /// Closes what was opened of a CPU that could not be opened completely.
    fn abandon_cpu(&mut self, cpu: CpuId) {
        self.cpus.retain(|c| c.cpu != cpu || c.gone);
        self.retain_samplers(|s| s.cpu != cpu);
    }
}
