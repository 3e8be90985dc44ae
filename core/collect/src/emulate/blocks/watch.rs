//! Finds moments of a thread while its blocks run.
//!
//! Enters: the moments that are awaited. Leaves: the blocks before which a moment may be. Never here: what follows from that
//! ([`crate::emulate::moments`]).
//!
//! A block begins wherever a moment may be. Its code is preceded by a comparison of one register, which is another one when the first
//! choice has the moment's value too often.

use super::{Blocks, Next};
use crate::{
    emulate::{
        moments::{Moment, Moments},
        translate::{Exit, Value},
    },
    sys::native::area::JUMP_BYTES,
};

/// Most other choices of registers in one run.
const CHOICES_MAX: u32 = 256;
/// The register that the comparison itself uses.
const RCX: usize = 1;
/// The first choice: an argument, which is often a pointer.
const RDI: usize = 7;

/// A block whose registers are looked at before it begins.
pub struct Watch {
    pub pc: u64,
    /// The awaited moments there: one value of each.
    values: Vec<Value>,
    /// The address of the block's code and what it begins with, if it begins with something else now.
    diverted: Option<(u64, [u8; JUMP_BYTES])>,
}

impl Watch {
    fn new(pc: u64, moments: &[&Moment]) -> Watch {
        let values = moments.iter().map(|moment| (RDI, moment.general[RDI])).collect();
        Watch { pc, values, diverted: None }
    }

    /// Forgets the block's code, which was discarded.
    pub fn forget(&mut self) {
        self.diverted = None;
    }

    /// Chooses other values, after one of each moment that is not there was. Returns whether there are any.
    fn choose(&mut self, moments: &[&Moment], general: &[u64; 16]) -> bool {
        let mut is_changed = false;
        for ((number, value), moment) in self.values.iter_mut().zip(moments) {
            let differs = |number: &usize| *number != RCX && general[*number] != moment.general[*number];
            if !differs(number)
                && let Some(other) = (0..16).find(differs)
            {
                (*number, *value, is_changed) = (other, moment.general[other], true);
            }
        }
        is_changed
    }
}

/// Returns the awaited moments at an address.
fn awaited_at<'m>(moments: &Moments<'m>, pc: u64) -> Vec<&'m Moment> {
    moments.awaited().filter(|moment| moment.pc == pc).collect()
}

impl Blocks {
    /// Looks whether a moment is before what is next, after so many system calls. Returns the number of steps so far if something is
    /// known of moments now that was not known before; or if `is_long`, because many were made since the last time.
    pub(super) fn look(
        &mut self,
        moments: &mut Moments,
        next: Next,
        calls: usize,
        is_long: bool,
    ) -> Option<usize> {
        let mut is_changed = moments.set_calls(calls);
        if let Next::Look(pc) = next {
            let general = self.area.registers().general;
            let is_met = moments.is_awaited(pc, &general) && {
                let path = self.path(pc);
                moments.note(pc, &general, path)
            };
            is_changed |= is_met;
            if !is_met {
                self.choose(pc, moments);
            }
        }
        let made = (is_changed || is_long).then(|| self.made())?;
        if moments.pass(made) | is_changed {
            self.watch(Some(moments));
        }
        Some(made)
    }

    /// Lets blocks begin where a moment may be found, and no other go on there.
    pub(super) fn cut(&mut self, moments: &Moments) {
        self.cuts = moments.pcs();
        self.choices = 0;
        let is_cut = |block: &&super::Block| {
            let after = block.pcs.get(1..).unwrap_or_default();
            after.iter().any(|pc| self.cuts.binary_search(pc).is_ok())
        };
        let cut = self.blocks.iter().filter(is_cut);
        let cut: Vec<(u64, u64)> = cut.filter_map(|block| Some((block.span.first, block.code?))).collect();
        for (pc, code) in cut {
            // Whatever leads there goes on to the new block as soon as that was compiled.
            let out =
                self.translator.way_out(self.area.next(), Exit::To { pc, patch: code + 1 }, &mut self.ways);
            if let Some(out) = out.and_then(|out| self.area.append(&out)) {
                self.area.divert(code, out);
            }
            self.by_pc.remove(&pc);
        }
    }

    /// Looks at registers where the awaited moments may be found, and nowhere else.
    pub(super) fn watch(&mut self, moments: Option<&Moments>) {
        for (code, before) in std::mem::take(&mut self.watched).into_iter().filter_map(|watch| watch.diverted)
        {
            self.area.replace(code, before);
        }
        let Some(moments) = moments else { return };
        for pc in moments.awaited().map(|moment| moment.pc) {
            if !self.is_watched(pc) {
                self.watched.push(Watch::new(pc, &awaited_at(moments, pc)));
                let code = self.by_pc.get(&pc).and_then(|number| self.block(*number).code);
                self.watch_block(pc, code);
            }
        }
    }

    pub(super) fn is_watched(&self, pc: u64) -> bool {
        self.watched.iter().any(|watch| watch.pc == pc)
    }

    /// Lets a block with this code be left before it begins, if its registers are to be looked at.
    pub(super) fn watch_block(&mut self, pc: u64, code: Option<u64>) {
        let Some((watch, code)) = self.watched.iter_mut().find(|watch| watch.pc == pc).zip(code) else {
            return;
        };
        let at = self.area.next();
        let look = self.translator.look(at, Exit::Look { pc }, &watch.values, code, &mut self.ways);
        let Some((look, begin)) = look else { return };
        if self.area.append(&look).is_some() {
            let before = self.area.divert(code, begin);
            // It may have been diverted before, to another comparison.
            watch.diverted.get_or_insert((code, before));
        }
    }

    /// Compares other registers after a look in vain.
    fn choose(&mut self, pc: u64, moments: &Moments) {
        let general = self.area.registers().general;
        let Some(watch) = self.watched.iter_mut().find(|watch| watch.pc == pc) else { return };
        if self.choices < CHOICES_MAX && watch.choose(&awaited_at(moments, pc), &general) {
            self.choices += 1;
            let code = watch.diverted.map(|diverted| diverted.0);
            self.watch_block(pc, code);
        }
    }
}
