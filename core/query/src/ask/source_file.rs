//! One source file in the images that were built from it.
//!
//! Enters: a path as an editor knows it. Leaves: the procedures with samples that the file was compiled into, each with the
//! file as its image knows it: spelled in its way, built from this text or another. Never here: a line of an image whose
//! text cannot be mapped to the one that is there now.

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
    /// Procedures (indices) with samples that begin in it, each with the line as it is now.
    pub begins: Vec<(u32, usize)>,
}

/// The file as some of the images spell it.
struct Spelling {
    file: Arc<str>,
    /// Procedures (indices) with instructions from it, ascending, and their images.
    procedures: Vec<(usize, usize)>,
    /// Each image has its own idea of the file: an old build's lines are elsewhere than a new one's.
    images: BTreeMap<usize, Compared>,
}

/// A procedure (an index) with instructions from the file, analysed.
pub(crate) type Analysed<'f> = (usize, FileOfImage<'f>, Arc<ProcedureCosts>);

impl Query {
    /// What each line of the source file at `path` costs.
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

    /// What the images know of the file at `path`.
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
    /// Procedures of images that were built from another text that cannot be mapped are left out, and those that cannot be
    /// analysed. On all processors.
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

    /// How the file as it is relates to the file as it was built.
    fn state(&self) -> SourceState {
        SourceState::of_all(&self.compared().map(|c| c.state).collect::<BTreeSet<_>>())
    }

    /// What one must know of that.
    fn notes(&self) -> impl Iterator<Item = String> {
        self.compared().filter_map(|c| c.note.clone())
    }

    /// The images (indices) that it was compiled into.
    fn images(&self) -> BTreeSet<usize> {
        self.spellings.iter().flat_map(|s| s.images.keys().copied()).collect()
    }

    fn compared(&self) -> impl Iterator<Item = &Compared> {
        self.spellings.iter().flat_map(|s| s.images.values())
    }
}
