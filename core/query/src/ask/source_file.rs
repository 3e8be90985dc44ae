//! One source file in the images that were built from it.
//!
//! Input: the path of a file, as an editor spells it. Output: the procedures with samples that the file was compiled into.
//! Each one comes with the file as its image knows it: its spelling of the path, and the text that it was built from. Lines
//! of an image whose text cannot be mapped to the current text are never returned.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

use dwell_profile::path_to_text;

use crate::{
    Cancel, Query, QueryError,
    analyse::{
        costs::ProcedureCosts,
        line_sums::{FileOfImage, LineSums, procedure_cost},
        procedures::ProcedureSamples,
    },
    answer::{FileCosts, SourceState},
    ask::rebuilt,
    load::source::Compared,
    parallel::in_parallel,
    query::View,
};

/// A source file in a view.
pub(crate) struct SourceFile {
    spellings: Vec<Spelling>,
    /// Procedures (indices) with samples that begin in the file, each with its current line.
    pub begins: Vec<(u32, usize)>,
}

/// A spelling of the file's path that some of the images use.
struct Spelling {
    file: Arc<str>,
    /// Procedures (indices) with instructions from the file, ascending, each with its image (an index).
    procedures: Vec<(usize, usize)>,
    /// Comparison of the current file with the one that each image (an index) was built from. Lines of an old build may be
    /// at other places than those of a new one.
    images: BTreeMap<usize, Compared>,
}

/// An analysed procedure (its index) with instructions from the file.
pub(crate) type Analysed<'f> = (usize, FileOfImage<'f>, Arc<ProcedureCosts>);

impl Query {
    /// Returns the cost of each line of the source file at `path`.
    pub fn file_costs(
        &self,
        epochs: &[String],
        path: &Path,
        cancel: &Cancel,
    ) -> Result<FileCosts, QueryError> {
        let view = self.view(epochs)?;
        let procedures = self.procedures(&view, cancel)?;
        let file = self.source_file(&view, path, cancel)?;
        let asked = path_to_text(path).into_owned();
        let mut sums = LineSums::new(&view.selection, &asked);
        for (p, of, costs) in file.analysed(self, &view, procedures, cancel)? {
            sums.add(p, &costs, &of);
        }
        let mut begins = Vec::new();
        for &(line, p) in &file.begins {
            cancel.check()?;
            let costs = self.costs_or_places(&view, &procedures[p]);
            begins.push(procedure_cost(&view.selection, &procedures[p], line, costs.as_deref()));
        }
        begins.sort_by_key(|p| p.line);
        let programs = rebuilt::programs(&view.selection, file.images());
        let notes: BTreeSet<String> = file.notes().chain(rebuilt::notes(&programs)).collect();
        Ok(FileCosts {
            schema: 1,
            epochs: view.selection.epochs.iter().map(|e| e.id.to_string()).collect(),
            source: file.state(),
            stale: sums.stale(),
            lines: sums.finish(procedures),
            procedures: begins,
            programs,
            notes: notes.into_iter().collect(),
            file: asked,
        })
    }

    /// Returns what the images know of the file at `path`.
    pub(crate) fn source_file(
        &self,
        view: &View,
        path: &Path,
        cancel: &Cancel,
    ) -> Result<SourceFile, QueryError> {
        let all = self.procedures(view, cancel)?;
        let index = self.files(view, path, cancel)?;
        let mut of = SourceFile { spellings: Vec::new(), begins: Vec::new() };
        for file in index.spellings(path, &self.sources) {
            cancel.check()?;
            let procedures: Vec<_> = index.procedures_in(&file).map(|p| (p, all[p].image)).collect();
            let mut images = BTreeMap::new();
            let begins = index.procedures_beginning_in(&file).map(|(_, p)| all[p].image);
            for image in procedures.iter().map(|(_, image)| *image).chain(begins) {
                images.entry(image).or_insert_with(|| self.compare(image, view, &file, path));
            }
            for (line, p) in index.procedures_beginning_in(&file) {
                let lines = images[&all[p].image].lines.as_ref();
                of.begins.extend(lines.and_then(|m| m.now(line)).map(|line| (line, p)));
            }
            of.spellings.push(Spelling { file, procedures, images });
        }
        Ok(of)
    }
}

impl SourceFile {
    /// Analyses the procedures with instructions from the file, on all processors. A procedure is left out if its image was
    /// built from a text that cannot be mapped, or if it cannot be analysed.
    pub fn analysed(
        &self,
        query: &Query,
        view: &View,
        all: &[ProcedureSamples],
        cancel: &Cancel,
    ) -> Result<Vec<Analysed<'_>>, QueryError> {
        let mapped = self.spellings.iter().flat_map(|spelling| {
            let mapped = spelling.procedures.iter().filter_map(|(p, image)| {
                let map = spelling.images[image].lines.as_ref()?;
                Some((*p, FileOfImage { file: &spelling.file, map }))
            });
            mapped.collect::<Vec<_>>()
        });
        let mapped: Vec<(usize, FileOfImage<'_>)> = mapped.collect();
        let analysed = in_parallel(&mapped, |(p, of)| {
            cancel.check().ok()?;
            Some((*p, *of, query.costs_or_places(view, &all[*p])?))
        });
        cancel.check()?;
        Ok(analysed)
    }

    /// Returns how the current file relates to the file that was built.
    fn state(&self) -> SourceState {
        SourceState::of_all(&self.compared().map(|c| c.state).collect::<BTreeSet<_>>())
    }

    /// Returns notes on the comparison of the current file with the one that was built.
    fn notes(&self) -> impl Iterator<Item = String> {
        self.compared().filter_map(|c| c.note.clone())
    }

    /// Returns the images (indices) that the file was compiled into.
    fn images(&self) -> BTreeSet<usize> {
        self.spellings.iter().flat_map(|s| s.images.keys().copied()).collect()
    }

    fn compared(&self) -> impl Iterator<Item = &Compared> {
        self.spellings.iter().flat_map(|s| s.images.values())
    }
}
