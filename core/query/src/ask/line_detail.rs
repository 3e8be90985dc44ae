//! Request `line_detail`: the instructions of one source line, with inlined copies separated by their callers.
//!
//! Input: a line of the current text of a file. Output: at most [`PLACES_MAX`] places of at most [`INSTRUCTIONS_MAX`]
//! instructions, so that the answer fits into an editor's hover. Cost: the analysis of the procedures that the file was
//! compiled into, shared with [`Query::file_costs`].

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
    sync::Arc,
};

use dwell_analysis::StallKind;
use dwell_profile::path_to_text;

use crate::{
    Cancel, Query, QueryError,
    analyse::{costs::ProcedureCosts, line_sums::FileOfImage, listing},
    answer::{LineCaller, LineDetail, LineInstruction, LinePlace, LineStall, ListingStall},
    load::selection::Selection,
    query::View,
};

const PLACES_MAX: usize = 8;
const INSTRUCTIONS_MAX: usize = 16;

/// A place that the line was compiled into: a procedure (an index) and the chain of inlined calls.
type Way = (usize, Vec<LineCaller>);

impl Query {
    /// Returns the instructions of line `line` (from 1) of the source file at `path`.
    pub fn line_detail(
        &self,
        epochs: &[String],
        path: &Path,
        line: u32,
        cancel: &Cancel,
    ) -> Result<LineDetail, QueryError> {
        let view = self.view(epochs)?;
        let mut places: Vec<LinePlace> = Vec::new();
        let procedures = self.procedures(&view, cancel)?;
        let file = self.source_file(&view, path, cancel)?;
        for (p, of, costs) in file.analysed(self, &view, procedures, cancel)? {
            for ((_, callers), indices) in ways(p, &costs, &of, line) {
                let subject = Subject { selection: &view.selection, costs: &costs, of: &of, path };
                places.push(LinePlace {
                    procedure: procedures[p].id.clone(),
                    demangled: procedures[p].demangled.clone(),
                    callers,
                    ..subject.place(indices)
                });
            }
        }
        places.sort_by(|a, b| b.share.total_cmp(&a.share));
        let omitted_places = places.len().saturating_sub(PLACES_MAX);
        places.truncate(PLACES_MAX);
        Ok(LineDetail { schema: 1, epochs: ids(&view), line, places, omitted_places })
    }
}

fn ids(view: &View) -> Vec<String> {
    view.selection.epochs.iter().map(|e| e.id.to_string()).collect()
}

/// Groups the line's instructions (indices) by procedure and chain of inlined calls.
fn ways(p: usize, costs: &ProcedureCosts, of: &FileOfImage<'_>, line: u32) -> BTreeMap<Way, Vec<usize>> {
    let mut ways: BTreeMap<Way, Vec<usize>> = BTreeMap::new();
    for (i, place) in costs.lines.iter().enumerate() {
        let here = place.as_ref().filter(|(file, _)| **file == *of.file);
        if here.and_then(|(_, built)| of.map.now(*built)) != Some(line) {
            continue;
        }
        // Places that only the profile names have no known callers here; the callers are in the listing.
        let frames = costs.image.as_ref().map(|image| image.frames(costs.instructions[i].address));
        let callers = frames.into_iter().flatten().skip(1).map(|f| LineCaller {
            function: f.function,
            file: f.file.map(|f| f.to_string()),
            line: f.line,
        });
        ways.entry((p, callers.collect())).or_default().push(i);
    }
    ways
}

/// Data that the answer for one procedure is built from.
struct Subject<'a> {
    selection: &'a Selection,
    costs: &'a Arc<ProcedureCosts>,
    of: &'a FileOfImage<'a>,
    path: &'a Path,
}

impl Subject<'_> {
    /// Builds a place, without its name.
    fn place(&self, mut indices: Vec<usize>) -> LinePlace {
        let totals = self.costs.totals(indices.iter().copied());
        let omitted_instructions = indices.len().saturating_sub(INSTRUCTIONS_MAX);
        let samples = |i: &usize| self.costs.analysis.instructions[*i].head_samples;
        indices.sort_by(|a, b| samples(b).total_cmp(&samples(a)));
        indices.truncate(INSTRUCTIONS_MAX);
        indices.sort_unstable();
        LinePlace {
            procedure: String::new(),
            demangled: String::new(),
            callers: Vec::new(),
            share: totals.head_samples / self.selection.primary_total().max(1) as f64,
            scale: self.costs.analysis.scale.kind,
            cpi: totals.cpi(),
            cpi_min: totals.cpi_interval().min,
            cpi_max: listing::bounded(totals.cpi_interval()),
            instructions: indices.iter().map(|i| self.instruction(*i)).collect(),
            omitted_instructions,
        }
    }

    fn instruction(&self, index: usize) -> LineInstruction {
        let all = listing::instruction(self.selection, self.costs, index, self.selection.period_cycles());
        let positions: HashMap<u64, usize> =
            self.costs.instructions.iter().enumerate().map(|(i, at)| (at.address.0, i)).collect();
        LineInstruction {
            address: all.address,
            text: all.text,
            head_samples: all.head_samples,
            executions: all.executions,
            executions_relative: all.executions_relative,
            cpi: all.cpi,
            cpi_min: all.cpi_min,
            cpi_max: all.cpi_max,
            confidence: all.confidence,
            stalls: all.stalls.into_iter().map(|s| self.stall(s, &positions)).collect(),
        }
    }

    fn stall(&self, stall: ListingStall, positions: &HashMap<u64, usize>) -> LineStall {
        let is_bounded = self.costs.is_absolute() || stall.kind == StallKind::Static;
        let culprit = stall.culprit_address.and_then(|a| positions.get(&a).copied());
        let place = culprit.and_then(|i| self.costs.lines[i].clone());
        let (file, line) = match place {
            None => (None, None),
            // A culprit in this file moves with its line. If its line was edited, only the file is kept.
            Some((file, line)) if *file == *self.of.file => {
                (Some(path_to_text(self.path).into_owned()), self.of.map.now(line))
            }
            Some((file, line)) => (Some(file.to_string()), Some(line)),
        };
        LineStall {
            kind: stall.kind,
            cause: stall.cause,
            label: stall.label,
            cycles_min: stall.cycles_min,
            cycles_max: Some(stall.cycles_max).filter(|_| is_bounded),
            share_min: stall.share_min,
            share_max: stall.share_max,
            levels: stall.levels,
            sources: stall.sources,
            culprit_address: stall.culprit_address,
            culprit_text: culprit.map(|i| self.costs.instructions[i].text.to_string()),
            file,
            line,
        }
    }
}
