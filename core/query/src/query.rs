//! Questions and the caches behind them.
//!
//! Everything dear is computed once for each (set of epochs, generation of the database) and shared: the merged
//! samples, the procedures, the analysed procedures, the index of source files. Any number of threads may ask.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use dwell_image::Image;
use dwell_profile::{Database, Epoch, EpochId, ImageRecord};
use rustc_hash::FxHashMap;

use crate::{
    Cancel, QueryError, TopBy, TopRequest,
    answer::{EpochList, FileCosts, Listing, SourceState, Top, TopRow},
    brief,
    costs::{ProcedureCosts, line_of},
    epochs,
    file_costs::{FileIndex, FileOfImage, LineSums, procedure_cost},
    images::ImageStore,
    listing,
    once::Once,
    procedures,
    procedures::ProcedureSamples,
    rebuilt,
    scales::{self, Scales},
    selection::{ImageSamples, Selection},
    source::{self, Built, Compared, SourceMap},
    summary,
    top::{self, Candidate},
};

/// Where a [`Query`] looks.
#[derive(Clone, Debug)]
pub struct Options {
    /// The database's folder.
    pub database: PathBuf,
    /// Folders with debug information by build id; `/usr/lib/debug` where there are none.
    pub debug_dirs: Vec<PathBuf>,
    /// Folders of sources as the debug information spells them, and where they are here; the first that fits counts.
    pub source_map: Vec<(PathBuf, PathBuf)>,
}

impl Options {
    /// The database at `path`, debug information where Debian keeps it and where `dwell import` keeps what it fetched.
    pub fn for_database(path: impl Into<PathBuf>) -> Self {
        let debug_dirs = std::iter::once("/usr/lib/debug".into()).chain(fetched_dir()).collect();
        Options { database: path.into(), debug_dirs, source_map: Vec::new() }
    }
}

/// The folder for images and debug information that debuginfod's servers sent, laid out as `/usr/lib/debug` is:
/// `$XDG_CACHE_HOME/dwell/debuginfod`, else in `~/.cache`; `None` where neither is known. It need not exist.
pub fn fetched_dir() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    Some(cache?.join("dwell/debuginfod"))
}

/// Answers questions about one database.
pub struct Query {
    pub(crate) database: Database,
    pub(crate) store: ImageStore,
    sources: SourceMap,
    views: Mutex<Views>,
}

/// Views of the current generation by the epochs they merge.
#[derive(Default)]
struct Views {
    generation: u64,
    by_epochs: FxHashMap<Vec<EpochId>, Arc<Once<Arc<View>>>>,
}

/// Analysed procedures by image (an index) and address; `None`: there is nothing to analyse.
type CostsByProcedure = FxHashMap<(usize, u64), Option<Arc<ProcedureCosts>>>;

/// Of a ranking, the procedures that are likely to be asked about next: their analyses are kept. All of a long list would
/// fill the memory.
const ROWS_KEPT: usize = 200;

/// What is known of one set of epochs.
pub(crate) struct View {
    pub selection: Selection,
    procedures: Once<Vec<ProcedureSamples>>,
    files: Once<FileIndex>,
    costs: Mutex<CostsByProcedure>,
    /// By image: what to multiply its procedures' frequencies by.
    scales: Mutex<FxHashMap<usize, Arc<Once<Scales>>>>,
}

impl Query {
    /// Opens the database; an empty or missing one is no error until it is asked.
    pub fn open(options: Options) -> Result<Self, QueryError> {
        let database = Database::open(&options.database)?;
        Ok(Query {
            store: ImageStore::new(options.debug_dirs, database.clone()),
            sources: SourceMap::new(options.source_map),
            database,
            views: Mutex::default(),
        })
    }

    /// Changes whenever an epoch or a segment appears or goes. Cheap: for watching.
    pub fn generation(&self) -> u64 {
        self.database.generation()
    }

    /// Every epoch, newest last.
    pub fn epochs(&self) -> Result<EpochList, QueryError> {
        Ok(epochs::list(self.database.epochs()?))
    }

    /// Where the time goes.
    pub fn top(&self, request: &TopRequest, cancel: &Cancel) -> Result<Top, QueryError> {
        let view = self.view(&request.epochs)?;
        if let (true, TopBy::Procedure, Some(limit)) = (request.brief, request.by, request.limit) {
            return self.brief_top(&view, request, limit, cancel);
        }
        let sampled = matches!(request.by, TopBy::Procedure | TopBy::Line);
        let procedures = if sampled { self.procedures(&view, cancel)? } else { &[] };
        let costs_of = |p: &ProcedureSamples| self.costs(&view, p);
        let rows = top::candidates(&view.selection, &self.store, procedures, request, &costs_of, cancel)?;
        let end = request.limit.map(|n| n.saturating_add(request.offset));
        let (mut top, rows) = top::answer(&view.selection, rows, end);
        for (at, candidate) in rows.into_iter().enumerate().skip(request.offset) {
            cancel.check()?;
            let row = |c| self.row_with_cpi(&view, c, at < ROWS_KEPT, request.split);
            top.rows.push(if request.bare { candidate.row } else { row(candidate) });
        }
        top.notes.extend(top::image_notes(&view.selection, &self.store, request));
        Ok(top)
    }

    fn brief_top(
        &self,
        view: &View,
        request: &TopRequest,
        limit: usize,
        cancel: &Cancel,
    ) -> Result<Top, QueryError> {
        let hottest = brief::hottest(&view.selection, &self.store, request, limit, cancel)?;
        let rows = hottest.procedures.into_iter().map(|p| top::by_procedure(&view.selection, p)).collect();
        let (mut top, rows) = top::answer(&view.selection, rows, Some(limit));
        top.omitted_rows += hottest.others;
        let estimated = request.cpi || top::tells_executions(&view.selection);
        for (at, candidate) in rows.into_iter().enumerate() {
            cancel.check()?;
            let row = |c| if estimated { self.row_with_cpi(view, c, at < ROWS_KEPT, false) } else { c.row };
            top.rows.push(row(candidate));
        }
        top.notes.extend(hottest.notes);
        Ok(top)
    }

    /// One procedure, instruction by instruction; `name` is `NAME` or `IMAGE:NAME`.
    pub fn listing(&self, epochs: &[String], name: &str, cancel: &Cancel) -> Result<Listing, QueryError> {
        let view = self.view(epochs)?;
        let sampled = self.procedures(&view, cancel)?;
        let procedure = procedures::by_name(&view.selection, &self.store, sampled, name)?;
        cancel.check()?;
        let Some(costs) = self.costs(&view, &procedure) else {
            return Err(QueryError::NoInstructions {
                name: name.to_owned(),
                why: self.why_none(&view, &procedure),
            });
        };
        let mut listing = listing::listing(&view.selection, &procedure, &costs);
        let record = &view.selection.images[procedure.image].record;
        listing::add_source_lines(&mut listing, |file| {
            self.text_as_built(&view, procedure.image, Path::new(file))
        });
        listing.notes.extend(self.store.find(record).lines_note().map(str::to_owned));
        Ok(listing)
    }

    /// What each line of the source file at `path` costs.
    pub fn file_costs(
        &self,
        epochs: &[String],
        path: &Path,
        cancel: &Cancel,
    ) -> Result<FileCosts, QueryError> {
        let view = self.view(epochs)?;
        let procedures = self.procedures(&view, cancel)?;
        let index = self.files(&view, cancel)?;
        let mut answer = FileCosts {
            schema: 1,
            epochs: view.selection.epochs.iter().map(|e| e.id.to_string()).collect(),
            file: path.display().to_string(),
            source: SourceState::Unchecked,
            lines: Vec::new(),
            procedures: Vec::new(),
            stale: Vec::new(),
            programs: Vec::new(),
            notes: Vec::new(),
        };
        let mut images = BTreeSet::new();
        let asked = path.display().to_string();
        let mut sums = LineSums::new(&view.selection, &asked);
        let mut states = BTreeSet::new();
        for file in index.spellings(path, &self.sources) {
            // Each image has its own idea of the file: an old build's lines are elsewhere than a new one's.
            let mut by_image: BTreeMap<usize, Compared> = BTreeMap::new();
            for p in index.procedures_in(&file) {
                cancel.check()?;
                let image = procedures[p].image;
                let compared = by_image
                    .entry(image)
                    .or_insert_with(|| self.compare(&view.selection.images[image], &view, &file, path));
                if let (Some(map), Some(costs)) = (&compared.lines, self.costs(&view, &procedures[p])) {
                    sums.add(p, &costs, &FileOfImage { file: &file, map });
                }
            }
            for (line, p) in index.procedures_beginning_in(&file) {
                cancel.check()?;
                let map = by_image.get(&procedures[p].image).and_then(|c| c.lines.as_ref());
                let Some(line) = map.and_then(|m| m.now(line)) else { continue };
                let costs = self.costs(&view, &procedures[p]);
                answer.procedures.push(procedure_cost(
                    &view.selection,
                    &procedures[p],
                    line,
                    costs.as_deref(),
                ));
            }
            images.extend(by_image.keys().copied());
            states.extend(by_image.values().map(|c| c.state));
            answer.notes.extend(by_image.into_values().filter_map(|c| c.note));
        }
        answer.source = SourceState::of_all(&states);
        answer.programs = rebuilt::programs(&view.selection, images);
        answer.notes.extend(rebuilt::notes(&answer.programs));
        answer.stale = sums.stale();
        answer.lines = sums.finish(procedures);
        answer.procedures.sort_by_key(|p| p.line);
        answer.notes.sort();
        answer.notes.dedup();
        Ok(answer)
    }

    /// Calls `visit` for each procedure (an index) with sampled instructions from the file at `path`, with the file as its
    /// image knows it. Procedures of images that were built from another text that cannot be mapped are left out.
    pub(crate) fn visit_file(
        &self,
        view: &View,
        path: &Path,
        cancel: &Cancel,
        mut visit: impl FnMut(usize, &Arc<ProcedureCosts>, &FileOfImage<'_>) -> Result<(), QueryError>,
    ) -> Result<(), QueryError> {
        let procedures = self.procedures(view, cancel)?;
        let index = self.files(view, cancel)?;
        for file in index.spellings(path, &self.sources) {
            let mut by_image: BTreeMap<usize, Compared> = BTreeMap::new();
            for p in index.procedures_in(&file) {
                cancel.check()?;
                let image = procedures[p].image;
                let compared = by_image
                    .entry(image)
                    .or_insert_with(|| self.compare(&view.selection.images[image], view, &file, path));
                if let (Some(map), Some(costs)) = (&compared.lines, self.costs(view, &procedures[p])) {
                    visit(p, &costs, &FileOfImage { file: &file, map })?;
                }
            }
        }
        Ok(())
    }

    /// Procedures (indices) with samples that begin in the file at `path`, each with the line as it is now.
    pub(crate) fn beginning_in_file(
        &self,
        view: &View,
        path: &Path,
        cancel: &Cancel,
    ) -> Result<Vec<(u32, usize)>, QueryError> {
        let procedures = self.procedures(view, cancel)?;
        let index = self.files(view, cancel)?;
        let mut found = Vec::new();
        for file in index.spellings(path, &self.sources) {
            let mut by_image: BTreeMap<usize, Compared> = BTreeMap::new();
            for (line, p) in index.procedures_beginning_in(&file) {
                let image = procedures[p].image;
                let compared = by_image
                    .entry(image)
                    .or_insert_with(|| self.compare(&view.selection.images[image], view, &file, path));
                found.extend(compared.lines.as_ref().and_then(|m| m.now(line)).map(|line| (line, p)));
            }
        }
        Ok(found)
    }

    /// Keeps the source files of the epoch's sampled lines, as they are now, for later readers to compare with; call
    /// it when the epoch's last sample has been stored. Files that are not the ones that were compiled are left out.
    /// Returns how many were kept.
    pub fn keep_sources(&self, epoch: &EpochId) -> Result<usize, QueryError> {
        let view = self.view(&[epoch.to_string()])?;
        let mut texts = Vec::new();
        for (file, record) in self.sampled_files(&view.selection) {
            let path = Path::new(file.as_ref());
            let Ok(text) = source::read(path) else { continue };
            if self.built_as(record, &file).is(&text, source::mtime_ns(path)) == Some(true) {
                texts.push((path.to_owned(), text));
            }
        }
        // In batches: each holds the metadata's lock for some fsyncs.
        for batch in texts.chunks(100) {
            let batch: Vec<(&Path, &[u8])> = batch.iter().map(|(p, t)| (p.as_path(), t.as_slice())).collect();
            self.database.put_sources(epoch, &batch)?;
        }
        Ok(texts.len())
    }

    /// Files of sampled lines, each with an image that it was compiled into. Images of less than a thousandth of the
    /// samples are passed over: nobody edits by them, and opening hundreds of images is dear.
    fn sampled_files<'s>(&self, selection: &'s Selection) -> BTreeMap<Arc<str>, &'s ImageRecord> {
        let mut files = BTreeMap::new();
        for samples in selection.images.iter().filter(|i| selection.share(&i.total) >= 0.001) {
            let found = self.store.find(&samples.record);
            let Ok(image) = &found.image else { continue };
            for (offset, _) in samples.points.iter() {
                if let Some((file, _)) = image.address_of(offset).and_then(|a| line_of(image, a)) {
                    files.entry(file).or_insert(&samples.record);
                }
            }
        }
        files
    }

    /// What is dear, for the rows that are shown: the line a procedure begins at, its CPI and, where asked for, its split.
    /// `keep`: the analysis too.
    fn row_with_cpi(&self, view: &View, candidate: Candidate, keep: bool, split: bool) -> TopRow {
        let Some(procedure) = candidate.procedure else { return candidate.row };
        let found = self.store.find(&view.selection.images[procedure.image].record);
        let place = procedure.address.and_then(|a| found.image.as_ref().ok()?.procedure_line(a));
        let (file, line) = place.map_or((None, None), |(f, l)| (Some(f.to_string()), Some(l)));
        let costs = if keep { self.costs(view, &procedure) } else { self.costs_once(view, &procedure) };
        let split = costs.as_ref().filter(|_| split).and_then(|c| summary::split(c));
        TopRow { cpi: costs.and_then(|c| c.all_totals().cpi()), file, line, split, ..candidate.row }
    }

    fn why_none(&self, view: &View, procedure: &ProcedureSamples) -> String {
        match &self.store.find(&view.selection.images[procedure.image].record).image {
            Err(why) => why.clone(),
            Ok(_) => "no symbol covers these samples".to_owned(),
        }
    }

    /// A file's text as it was when the image (an index) was built.
    pub(crate) fn text_as_built(&self, view: &View, image: usize, file: &Path) -> Option<String> {
        let samples = &view.selection.images[image];
        let name = file.to_str()?;
        let snapshot = source::snapshot(&view.selection, samples, name);
        let here = self.sources.here(file);
        source::text_as_built(&self.database, snapshot, &here, &self.built_as(&samples.record, name))
    }

    fn compare(&self, image: &ImageSamples, view: &View, file: &str, path: &Path) -> Compared {
        let built = self.built_as(&image.record, file);
        source::compare(&self.database, source::snapshot(&view.selection, image, file), path, &built)
    }

    fn built_as(&self, record: &ImageRecord, file: &str) -> Built {
        let found = self.store.find(record);
        let image = found.image.as_ref().ok();
        Built {
            md5: image.and_then(|i| i.source_md5(file)),
            image_mtime_ns: record.mtime_ns.or_else(|| source::mtime_ns(&record.path)),
        }
    }

    pub(crate) fn view(&self, selectors: &[String]) -> Result<Arc<View>, QueryError> {
        let generation = self.database.generation();
        let latest = ["latest".to_owned()];
        let selectors = if selectors.is_empty() { &latest } else { selectors };
        let mut epochs =
            selectors.iter().map(|s| self.database.resolve(s)).collect::<Result<Vec<Epoch>, _>>()?;
        epochs.sort_by(|a, b| (a.start, &a.id).cmp(&(b.start, &b.id)));
        epochs.dedup_by(|a, b| a.id == b.id);
        let key: Vec<EpochId> = epochs.iter().map(|e| e.id.clone()).collect();
        let found_again = self.store.look_again();
        let mut views = lock(&self.views);
        if views.generation != generation || found_again {
            *views = Views { generation, ..Views::default() };
        }
        let slot = views.by_epochs.entry(key).or_default().clone();
        drop(views); // Reading a large epoch must not keep those waiting who ask for another.
        let read = || {
            let selection = Selection::read(&self.database, &epochs)?;
            Ok::<_, QueryError>(Arc::new(View {
                selection,
                procedures: Once::default(),
                files: Once::default(),
                costs: Mutex::default(),
                scales: Mutex::default(),
            }))
        };
        slot.get_or_try(read).cloned()
    }

    pub(crate) fn procedures<'v>(
        &self,
        view: &'v View,
        cancel: &Cancel,
    ) -> Result<&'v [ProcedureSamples], QueryError> {
        let sampled = || procedures::sampled(&view.selection, &self.store, cancel);
        view.procedures.get_or_try(sampled).map(Vec::as_slice)
    }

    fn files<'v>(&self, view: &'v View, cancel: &Cancel) -> Result<&'v FileIndex, QueryError> {
        let procedures = self.procedures(view, cancel)?;
        view.files.get_or_try(|| FileIndex::build(&view.selection, &self.store, procedures, cancel))
    }

    pub(crate) fn costs(&self, view: &View, procedure: &ProcedureSamples) -> Option<Arc<ProcedureCosts>> {
        let key = (procedure.image, procedure.address?.0);
        if let Some(costs) = lock(&view.costs).get(&key) {
            return costs.clone();
        }
        let costs = self.analyse(view, procedure);
        lock(&view.costs).entry(key).or_insert(costs).clone()
    }

    /// The same without keeping it: for who passes once over procedures that are too many to be kept.
    pub(crate) fn costs_once(
        &self,
        view: &View,
        procedure: &ProcedureSamples,
    ) -> Option<Arc<ProcedureCosts>> {
        let known = lock(&view.costs).get(&(procedure.image, procedure.address?.0)).cloned();
        known.unwrap_or_else(|| self.analyse(view, procedure))
    }

    fn analyse(&self, view: &View, procedure: &ProcedureSamples) -> Option<Arc<ProcedureCosts>> {
        let found = self.store.find(&view.selection.images[procedure.image].record);
        let image = found.image.as_ref().ok().cloned()?;
        let scale = self.scale(view, procedure, &image);
        ProcedureCosts::new(&view.selection, procedure, image, scale).map(Arc::new)
    }
}

impl Query {
    /// What to multiply the procedure's frequencies by, so that they agree with its callers' and callees'.
    fn scale(&self, view: &View, procedure: &ProcedureSamples, image: &Image) -> f64 {
        let slot = lock(&view.scales).entry(procedure.image).or_default().clone();
        let scales = slot.get_or_try(|| {
            let all = self.procedures(view, &Cancel::default())?;
            let own: Vec<&ProcedureSamples> = all.iter().filter(|p| p.image == procedure.image).collect();
            Ok::<Scales, QueryError>(scales::of_image(&view.selection, image, &own))
        });
        let scale = scales.ok().zip(procedure.address).and_then(|(s, address)| s.get(&address.0));
        scale.copied().unwrap_or(1.0)
    }
}

/// A panic elsewhere leaves nothing half-done behind these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
