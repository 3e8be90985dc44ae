//! Request `file_functions`: the functions of a source file that are in call stacks, with their callers.
//!
//! Input: named call stacks, the path of a file. Output: functions by their lines in the file as it is now. A line that was edited
//! since the program was built has no place. Cost: a few passes over the frames for each function of the file.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

use super::{
    callers::{Within, direct_callers},
    stacks::NamedStacks,
};
use crate::{
    Cancel, Query, QueryError, SampleFilter,
    analyse::file_index::spellings,
    answer::{FileFunction, FileFunctions},
    load::source::Compared,
    query::View,
};

/// A function of the file, as it was built.
#[derive(Default)]
struct Found {
    /// Lines where the function begins.
    begin: Option<u32>,
    /// Lines of samples and calls.
    lines: BTreeSet<u32>,
}

impl Query {
    /// Returns the functions of the source file at `path` that are in call stacks.
    pub fn file_functions(
        &self,
        epochs: &[String],
        path: &Path,
        cancel: &Cancel,
    ) -> Result<FileFunctions, QueryError> {
        let filter = SampleFilter::default();
        let view = self.view_of(epochs, &filter)?;
        let named = self.named_stacks(&view, &filter, cancel)?;
        let stacks = &named.stacks;
        let mut functions = Vec::new();
        for (file, found) in self.found_in(&named, path) {
            let mut compared: BTreeMap<usize, Compared> = BTreeMap::new();
            for (function, found) in found {
                cancel.check()?;
                let Some(image) = image_of(&view, &stacks.functions[function as usize].build_id) else {
                    continue;
                };
                let compared =
                    compared.entry(image).or_insert_with(|| self.compare(image, &view, &file, path));
                functions.extend(shown(&named, function, &found, compared));
            }
        }
        functions.sort_by(|a, b| (a.line, a.lines, &a.function).cmp(&(b.line, b.lines, &b.function)));
        Ok(FileFunctions {
            schema: 1,
            epochs: stacks.epochs.clone(),
            event: stacks.event.name.clone(),
            samples: stacks.samples(),
            functions,
            notes: stacks.notes.clone(),
        })
    }

    /// Returns the functions (indices) of the file by each spelling of its path.
    fn found_in(&self, named: &NamedStacks, path: &Path) -> Vec<(Arc<str>, BTreeMap<u32, Found>)> {
        let is_called = |file: &str| Path::new(file).file_name() == path.file_name();
        let mut files: BTreeMap<Arc<str>, BTreeMap<u32, Found>> = BTreeMap::new();
        for node in &named.stacks.nodes {
            let Some((file, line)) = node.line.as_ref().filter(|(file, _)| is_called(file)) else { continue };
            let found = match files.get_mut(&**file) {
                Some(functions) => functions,
                None => files.entry(Arc::from(&**file)).or_default(),
            };
            found.entry(node.function).or_default().lines.insert(*line);
        }
        for (file, functions) in &mut files {
            for (function, found) in functions {
                let begin = named.begin(*function).filter(|begin| *begin.file == **file);
                found.begin = begin.map(|begin| begin.line);
            }
        }
        let known: Vec<&Arc<str>> = files.keys().collect();
        let spelled = spellings(known, path, &self.sources);
        files.into_iter().filter(|(file, _)| spelled.contains(file)).collect()
    }
}

fn image_of(view: &View, build_id: &str) -> Option<usize> {
    view.selection.images.iter().position(|image| image.record.id.to_string() == build_id)
}

/// Returns a function with its lines as they are now; `None` if the file cannot be compared with the one that was built.
fn shown(named: &NamedStacks, function: u32, found: &Found, compared: &Compared) -> Option<FileFunction> {
    let map = compared.lines.as_ref()?;
    let within = Within::new(&named.stacks, &[function]);
    let mut lines = found.lines.iter().filter_map(|line| map.now(*line));
    let first = lines.next();
    let of = &named.stacks.functions[function as usize];
    Some(FileFunction {
        function: of.name.clone(),
        image: of.image.clone(),
        line: found.begin.and_then(|line| map.now(line)),
        lines: first
            .map(|first| lines.fold((first, first), |(min, max), line| (min.min(line), max.max(line)))),
        samples: within.samples(),
        own: within.own(),
        rows: direct_callers(named, &within),
    })
}
