//! Executions found out beside samples: who does it, and when its turn comes.
//!
//! Enters: what was asked for, the thread sampled last. Leaves: path bursts and counted windows among the records, and what is
//! told of them. Never here: how threads are followed ([`crate::paths`]) and executions counted ([`crate::windows`]).

use dwell_profile::{CountsRecord, PathsRecord, WindowsRecord};

use crate::{CollectError, items::Item, options::RecordOptions, paths::Paths, windows::Windows};

use super::Session;

/// What finds out executions beside samples; by default nothing.
#[derive(Default)]
pub struct Counting {
    /// Follows threads now and then.
    pub paths: Option<Paths>,
    /// Counts executions now and then.
    pub windows: Option<Windows>,
    /// Watches the exits of loops whose registers count; without it no counter is believed.
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    pub exits: Option<crate::counts::exits::ExitWatcher>,
    /// Once threads cannot be followed, windows are to be counted for so many percent of the target's CPU time.
    pub stand_in_percent: Option<f64>,
}

impl Counting {
    /// To be called early: the process that follows threads is a fork of this one, the smaller the better.
    pub fn start(options: &RecordOptions) -> Result<Self, CollectError> {
        let (paths_percent, windows_percent) = (options.paths_percent, options.windows_percent);
        let stand_in = options.windows_stand_in;
        let paths = match (paths_percent > 0.0).then(|| Paths::start(paths_percent, !stand_in)) {
            Some(Err(error)) if !stand_in => return Err(CollectError::Paths(error)),
            started => started.and_then(Result::ok),
        };
        let (now, later) =
            if stand_in && paths.is_some() { (0.0, windows_percent) } else { (windows_percent, 0.0) };
        Ok(Counting {
            paths,
            windows: (now > 0.0).then(|| Windows::start(now)),
            #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
            exits: Some(crate::counts::exits::ExitWatcher::start()),
            stand_in_percent: (later > 0.0).then_some(later),
        })
    }
}

impl Session {
    /// Offers the thread that was sampled last for path bursts.
    pub(super) fn offer_thread(&mut self) {
        let latest = self.collector.take_latest();
        let cpu_ns = self.cpu_ns();
        if let (Some(paths), Some((pid, tid))) = (&mut self.counting.paths, latest)
            && pid != std::process::id()
            && Some(pid) != paths.tracer()
        {
            paths.offer(pid, tid, cpu_ns);
        }
        self.stand_in();
        self.count_windows(latest, cpu_ns);
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        self.watch_exits(cpu_ns);
    }

    /// Goes over to windows where threads turn out not to be followed.
    fn stand_in(&mut self) {
        if self.counting.paths.as_ref().is_some_and(Paths::is_on) {
            return;
        }
        if let Some(percent) = self.counting.stand_in_percent.take() {
            self.counting.windows = Some(Windows::start(percent));
            self.collector.keep_recent();
        }
    }

    /// Counts executions of what was sampled most, in windows of that thread's time. They begin after every record that was
    /// applied.
    fn count_windows(&mut self, latest: Option<(u32, u32)>, cpu_ns: f64) {
        let recent = self.collector.take_recent();
        let Some(windows) = self.counting.windows.as_mut().filter(|w| w.is_on()) else { return };
        recent.into_iter().for_each(|(pid, pc)| windows.sample(pid, pc));
        if let Some((pid, tid)) = latest.filter(|(pid, _)| *pid != std::process::id()) {
            for (begin_ns, window) in windows.count(pid, tid, cpu_ns) {
                self.merger.push(begin_ns, Item::Window(Box::new(window)));
            }
        }
    }

    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    /// Watches the exits of a loop that the latest samples are in, if it is time. The window begins after every record that was
    /// applied.
    fn watch_exits(&mut self, cpu_ns: f64) {
        let Some(exits) = self.counting.exits.as_mut().filter(|exits| exits.is_due(cpu_ns)) else { return };
        let Some(watch) = self.collector.loop_to_watch().filter(|w| w.pid != std::process::id()) else {
            return;
        };
        if let Some((begin_ns, raw)) = exits.watch(&watch, cpu_ns) {
            self.merger.push(begin_ns, Item::Exits(Box::new(raw)));
        }
    }

    pub(super) fn counts_record(&self) -> Option<CountsRecord> {
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        if let Some(exits) = &self.counting.exits {
            let mut record = CountsRecord { cpu_ns: self.cpu_ns() as u64, ..exits.record().clone() };
            self.collector.add_loops_to(&mut record);
            if self.counting.windows.is_none() {
                record.samples_dropped = self.collector.stepping().window_samples;
            }
            return Some(record);
        }
        None
    }

    pub(super) fn paths_record(&self) -> Option<PathsRecord> {
        let left_out = self.collector.stepping();
        self.counting.paths.as_ref().map(|paths| PathsRecord {
            cpu_ns: self.cpu_ns() as u64,
            samples_dropped: left_out.samples,
            opaque_steps: left_out.opaque_steps,
            ..paths.record().clone()
        })
    }

    pub(super) fn windows_record(&self) -> Option<WindowsRecord> {
        self.counting.windows.as_ref().map(|windows| WindowsRecord {
            cpu_ns: self.cpu_ns() as u64,
            samples_dropped: self.collector.stepping().window_samples,
            ..windows.record().clone()
        })
    }
}
