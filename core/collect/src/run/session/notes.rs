//! Notes of an epoch: what a reader of its counts must know.
//!
//! Enters: notes about the start; tallies while the epoch goes on, from which notes follow about samples that are missing
//! because tasks were created, that the kernel withholds, or that have no certain name. Leaves: the texts.

use dwell_profile::CollectorRecord;

use super::Session;
use crate::{
    host::linux_host::LinuxHost,
    run::options::Progress,
    source::{Backend, choose::OpenedSource, events::EventConfig, paranoid, sees_all_processes},
};

/// Share of samples missing because of created tasks above which a note is added.
const MISSING_SHARE_MIN: f64 = 0.01;

/// The subject of a note that changes while the epoch goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    /// How many branch stacks were recorded.
    BranchStacks,
    /// The time that sampling was paused.
    Paused,
    /// Samples of applications that are not kept.
    OtherApps,
    /// Samples that are missing because new tasks were created.
    NewTasks,
    /// Generated code whose names are uncertain.
    UncertainNames,
}

/// The notes in their order, each with its subject if it may change.
#[derive(Clone, Debug, Default)]
pub(super) struct Notes(Vec<(Option<Subject>, String)>);

impl Notes {
    /// Adds a note that does not change.
    pub(super) fn add(&mut self, text: String) {
        self.0.push((None, text));
    }

    /// Adds the note on a subject, or replaces its text.
    pub(super) fn set(&mut self, subject: Subject, text: String) {
        match self.0.iter_mut().find(|(known, _)| *known == Some(subject)) {
            Some((_, known)) => *known = text,
            None => self.0.push((Some(subject), text)),
        }
    }

    /// Removes the note on a subject.
    pub(super) fn remove(&mut self, subject: Subject) {
        self.0.retain(|(known, _)| *known != Some(subject));
    }

    /// Returns whether there is a note on a subject.
    pub(super) fn has(&self, subject: Subject) -> bool {
        self.0.iter().any(|(known, _)| *known == Some(subject))
    }

    /// Returns all texts in their order.
    pub(super) fn texts(&self) -> Vec<String> {
        self.0.iter().map(|(_, text)| text.clone()).collect()
    }
}

impl Session {
    /// Adds a note to the epoch.
    pub fn note(&mut self, text: &str) {
        self.notes.add(text.to_owned());
        self.store.epoch.notes = self.notes.texts();
    }

    /// Adds the epoch's note on a subject, or replaces its text.
    pub(super) fn set_note(&mut self, subject: Subject, text: String) {
        self.notes.set(subject, text);
        self.store.epoch.notes = self.notes.texts();
    }

    /// Adds notes on how long sampling was paused and on samples that were not kept, by the collector's account of itself.
    pub(super) fn note_account(&mut self) {
        let Some(CollectorRecord { paused_ns, apps, other_apps, .. }) = &self.store.epoch.collector else {
            return;
        };
        let paused = (*paused_ns > 0)
            .then(|| format!("sampling was paused for {:.1} s", *paused_ns as f64 / 1e9))
            .map(|text| (Subject::Paused, text));
        let others = other_apps.map(|others| {
            let others = match others {
                0 => String::new(),
                others => format!(": {others} samples of other applications were not"),
            };
            (Subject::OtherApps, format!("only samples of {} are kept{others}", apps.join(", ")))
        });
        paused.into_iter().chain(others).for_each(|(subject, text)| self.set_note(subject, text));
    }

    /// Adds a note on how many samples are missing in tasks that inherited the events, if that is significant. They cannot
    /// be corrected for, because the instructions that they would have named are not known.
    pub(super) fn note_new_tasks(&mut self) {
        let born = self.source_tally().born - self.at_epoch.born;
        // On average, half a period of each event is missing. Samples with stacks come from an event of their own.
        let split = self.configs.iter().filter(|config| (0.001..0.999).contains(&config.stacks)).count();
        let sampled = self.configs.iter().filter(|config| !config.is_wait()).count();
        let missing = born * (sampled + split) as u64 / 2;
        let share = missing as f64 / (missing + self.samples()).max(1) as f64;
        if share >= MISSING_SHARE_MIN || self.notes.has(Subject::NewTasks) {
            self.set_note(Subject::NewTasks, new_tasks_note(born, missing, share));
        }
    }

    /// Reports, in the epoch and to the user, the programs whose samples the kernel withholds.
    pub fn note_withheld(&mut self, progress: &mut dyn FnMut(Progress)) {
        for program in self.collector.withheld.take() {
            let note = format!(
                "the kernel withholds the samples of {program}, which has more rights than dwell (setuid or file capabilities): \
                 record it as root"
            );
            if !self.store.epoch.notes.contains(&note) {
                self.note(&note);
                progress(Progress::Warning(note));
            }
        }
    }

    /// Adds a note on how many samples of generated code have no name because it is uncertain.
    pub(super) fn note_uncertain_names(&mut self) {
        let uncertain = self.collector.uncertain_names();
        if uncertain > 0 || self.notes.has(Subject::UncertainNames) {
            let note = format!(
                "{uncertain} samples of generated code have no name: the process replaced the code at their addresses while \
                 they were taken"
            );
            self.set_note(Subject::UncertainNames, note);
        }
    }
}

fn new_tasks_note(tasks: u64, missing: u64, share: f64) -> String {
    format!(
        "{tasks} new processes and threads restarted the sampling period: about {missing} samples ({:.1}%) are missing. Use \
         `record -a` to avoid this.",
        100.0 * share
    )
}

/// Returns the note about branch stacks where a processor may support them.
pub(super) fn branch_stacks_note(opened: &OpenedSource, hz: u32) -> Option<String> {
    if opened.source.features().branch_stacks {
        return Some(format!("branch stacks (LBR, BRBE) are recorded, about {hz} per second of a busy CPU"));
    }
    let is_asked = hz > 0 && opened.source.backend() == Backend::Perf;
    (is_asked && opened.configs.iter().any(EventConfig::is_hardware))
        .then(|| "no branch stacks: this machine has none (LBR, BRBE)".to_owned())
}

/// Adds notes about the conditions of sampling that the user should know.
pub(super) fn add_notes(opened: &mut OpenedSource, host: &LinuxHost, branches: bool, is_whole_machine: bool) {
    let features = opened.source.features();
    if features.user_only {
        opened.notes.push(format!("user mode only: perf_event_paranoid is {}", paranoid()));
    } else if !host.sees_kernel_addresses() {
        let note = "kernel symbols are hidden: kernel.kptr_restrict forbids reading addresses";
        opened.notes.push(note.to_owned());
    }
    if is_whole_machine && !sees_all_processes() {
        let note = "dwell runs in a pid namespace: programs outside of it are shown as [outside], and most of their code as unknown";
        opened.notes.push(note.to_owned());
    }
    let has_waits = opened.configs.iter().any(EventConfig::is_wait);
    if has_waits && opened.configs.iter().any(|config| config.event.is_time()) {
        let note = "executions are not counted beside off-cpu: threads that are stopped for it would wait";
        opened.notes.push(note.to_owned());
    }
    if features.user_only && has_waits {
        let note = "where threads wait is not known: the kernel shows that only to users who may sample it \
                    (perf_event_paranoid <= 1, or root)";
        opened.notes.push(note.to_owned());
    }
    if features.escaped > 0 {
        let note = format!(
            "{} threads were created while Dwell attached to their processes: some may not be sampled",
            features.escaped
        );
        opened.notes.push(note);
    }
    if branches && !features.registers {
        let note = "branch directions are not recorded: this kernel does not sample registers";
        opened.notes.push(note.to_owned());
    }
}
