//! Notes that are added to an epoch while it goes on: samples that are missing because tasks were created, that the kernel
//! withholds, or that have no certain name.
//!
//! Enters: tallies. Leaves: notes, each of which is added once and then updated. Never here: notes about the start.

use crate::options::Progress;

use super::Session;

/// Share of samples missing because of created tasks above which a note is added.
const TOLD_MISSING: f64 = 0.01;

impl Session {
    /// Adds a note on how many samples are missing in tasks that inherited the events, if that is significant. They cannot
    /// be corrected for, because the instructions that they would have named are not known.
    pub(super) fn note_births(&mut self) {
        let born = self.source.tally().born - self.at_epoch.born;
        let missing = born * self.plans.len() as u64 / 2; // On average, half a period of each event is missing.
        let share = missing as f64 / (missing + self.samples()).max(1) as f64;
        if share < TOLD_MISSING && self.births_note.is_none() {
            return;
        }
        let notes = &mut self.store.epoch.notes;
        let note = births_note(born, missing, share);
        if let Some(at) = self.births_note {
            notes[at] = note;
        } else {
            self.births_note = Some(notes.len());
            notes.push(note);
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
        if uncertain == 0 && self.names_note.is_none() {
            return;
        }
        let note = format!(
            "{uncertain} samples of code that was generated in memory have no name: its process replaced it at their addresses \
             while they were taken"
        );
        let notes = &mut self.store.epoch.notes;
        match self.names_note {
            Some(at) => notes[at] = note,
            None => {
                self.names_note = Some(notes.len());
                notes.push(note);
            }
        }
    }
}

fn births_note(born: u64, missing: u64, share: f64) -> String {
    format!(
        "{born} processes and threads were born, each of which the kernel begins to sample at a period's start: some {missing} samples \
         ({:.1}%) are missing; `record -a` has them",
        100.0 * share
    )
}
