//! The database that requests are answered from, and the caches for what takes long to compute.
//!
//! The merged samples, the procedures, the analysed procedures and the index of source files are computed once for each set
//! of epochs and generation of the database, and shared between threads. The requests themselves are in `ask`.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use dwell_image::{Image, LruCache};
use dwell_profile::{Database, DatabaseError, Epoch, EpochId, ImageRecord, name_to_text, text_to_path};
use once_cell::sync::OnceCell;
use rustc_hash::FxHashMap;

use crate::{
    Cancel, QueryError, SampleFilter,
    analyse::{
        costs::ProcedureCosts,
        file_index::FileIndex,
        procedures::{self, ProcedureSamples},
        scales::{self, Scales},
        stored,
        totals::Totals,
    },
    answer::CycleSplit,
    ask::stacks::NamedStacks,
    load::{
        images::ImageStore,
        merge::Places,
        selection::Selection,
        source::{self, Built, Compared, SourceMap},
        stored_analyses::StoredAnalyses,
    },
};

/// The places where a [`Query`] looks for profiles, binaries and sources.
#[derive(Clone, Debug)]
pub struct Options {
    /// Folder of the database, or of its cache if its files lie elsewhere.
    pub database: PathBuf,
    /// The database, if its files are not simply those of the folder.
    opened: Option<Database>,
    /// Folders with debug information by build ID; the default is `/usr/lib/debug`.
    pub debug_dirs: Vec<PathBuf>,
    /// Pairs of a source folder, as the debug information spells it, and the folder where these sources are now. The first
    /// pair that matches is used.
    pub source_map: Vec<(PathBuf, PathBuf)>,
    /// The service whose samples alone are read: a part of the path or usual name of their control group. `None`: all samples.
    pub service: Option<String>,
}

impl Options {
    /// Returns options for the database at `path`. Debug information is looked for where Debian installs it and where `dwell
    /// import` stores what it fetched.
    pub fn for_database(path: impl Into<PathBuf>) -> Self {
        let debug_dirs = std::iter::once("/usr/lib/debug".into()).chain(fetched_dir()).collect();
        Options { database: path.into(), opened: None, debug_dirs, source_map: Vec::new(), service: None }
    }

    /// Returns options like [`Options::for_database`] for a database that is open.
    pub fn on(database: Database) -> Self {
        let opened = Some(database.clone());
        Options { opened, ..Options::for_database(database.path()) }
    }

    /// Opens the database.
    pub fn open(&self) -> Result<Database, DatabaseError> {
        self.opened.clone().map_or_else(|| Database::open(&self.database), Ok)
    }
}

/// Returns the folder for images and debug information fetched from debuginfod servers: `$XDG_CACHE_HOME/dwell/debuginfod`,
/// or the same below `~/.cache`. The folder has the layout of `/usr/lib/debug` and need not exist. Returns `None` if neither
/// variable is set.
pub fn fetched_dir() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    Some(cache?.join("dwell/debuginfod"))
}

/// Answers questions about one database.
pub struct Query {
    pub(crate) database: Database,
    pub(crate) store: ImageStore,
    pub(crate) sources: SourceMap,
    pub(crate) service: Option<String>,
    views: Mutex<Views>,
}

/// Views of the current generation, by the epochs that they merge and the samples that they select.
#[derive(Default)]
struct Views {
    generation: u64,
    by_samples: FxHashMap<ViewKey, (usize, ViewSlot)>,
    /// Number of requests so far. It records when each view was last used.
    clock: usize,
}

/// The merged epochs, the samples that are taken, and what is kept of their places.
type ViewKey = (Vec<EpochId>, SampleFilter, Places);

/// A view that may still be being read.
type ViewSlot = Arc<OnceCell<Arc<View>>>;

impl Views {
    /// Returns whether a view has been read.
    fn has(&self, key: &ViewKey) -> bool {
        self.by_samples.get(key).is_some_and(|(_, slot)| slot.get().is_some())
    }

    fn slot(&mut self, key: ViewKey) -> ViewSlot {
        self.clock += 1;
        let known = self.by_samples.contains_key(&key);
        if !known && self.by_samples.len() >= VIEWS_KEPT {
            let oldest =
                self.by_samples.iter().min_by_key(|(_, (used, _))| *used).map(|(key, _)| key.clone());
            oldest.and_then(|oldest| self.by_samples.remove(&oldest));
        }
        let (used, slot) = self.by_samples.entry(key).or_default();
        *used = self.clock;
        slot.clone()
    }
}

/// Analysed procedures by image (an index) and address; `None` if there is nothing to analyse.
type CostsByProcedure = LruCache<(usize, u64), Option<Arc<ProcedureCosts>>>;

/// Number of instructions of analysed procedures that are cached for a view; each takes about half a KiB.
const INSTRUCTIONS_KEPT: usize = 40_000;
/// Number of source file names that are cached with the procedures that were compiled from them.
const FILES_KEPT: usize = 256;
/// Number of views that are cached: the current one, the one it is compared with, and earlier ones.
const VIEWS_KEPT: usize = 6;

/// Number of rows whose CPI and line are cached: those of a list that a user scrolls through.
const ROWS_IN_SIGHT: usize = 20_000;

/// The part of a procedure's row that needs an analysis of the procedure.
pub(crate) struct RowCost {
    /// File and line that the procedure begins at.
    pub(crate) place: Option<(Arc<str>, u32)>,
    pub(crate) totals: Option<Totals>,
    pub(crate) split: Option<CycleSplit>,
}

/// Cached results for one set of epochs.
pub(crate) struct View {
    pub selection: Selection,
    procedures: OnceCell<Vec<ProcedureSamples>>,
    /// Index of each source file name, without folders.
    files: LruCache<Box<str>, OnceCell<Arc<FileIndex>>>,
    costs: CostsByProcedure,
    /// Cost of each procedure's row, by image (an index) and address.
    pub(crate) rows: LruCache<(usize, u64), RowCost>,
    /// Factors for the frequencies of each image's procedures, by image (an index).
    scales: Mutex<FxHashMap<usize, Arc<OnceCell<Scales>>>>,
    /// Analyses of procedures whose images are not at hand.
    pub(crate) stored: StoredAnalyses,
    /// Call stacks of the samples, by name.
    pub(crate) stacks: OnceCell<Arc<NamedStacks>>,
}

impl Query {
    /// Opens the database. An empty or missing database is no error before the first request.
    pub fn open(options: Options) -> Result<Self, QueryError> {
        let database = options.open()?;
        Ok(Query {
            store: ImageStore::new(options.debug_dirs, database.clone()),
            sources: SourceMap::new(options.source_map),
            service: options.service,
            database,
            views: Mutex::default(),
        })
    }

    /// Returns the bytes of a binary as it was sampled, if its file or a copy of it is on this machine.
    pub fn binary(&self, record: &ImageRecord) -> Option<Vec<u8>> {
        self.store.bytes(record)
    }

    /// Returns the generation, which changes whenever an epoch or a segment is added or removed. The call is cheap enough
    /// for polling.
    pub fn generation(&self) -> u64 {
        self.database.generation()
    }

    /// Returns the text of a source file as it was when the image (an index) was built.
    pub(crate) fn text_as_built(&self, view: &View, image: usize, file: &str) -> Option<String> {
        let samples = &view.selection.images[image];
        let snapshot = source::snapshot(&view.selection, samples, file);
        let path = text_to_path(file);
        let here = self.sources.here(&path);
        source::text_as_built(&self.database, snapshot, &here, &self.built_as(&samples.record, file))
    }

    pub(crate) fn compare(&self, image: usize, view: &View, file: &str, path: &Path) -> Compared {
        let image = &view.selection.images[image];
        let built = self.built_as(&image.record, file);
        source::compare(&self.database, source::snapshot(&view.selection, image, file), path, &built)
    }

    pub(crate) fn built_as(&self, record: &ImageRecord, file: &str) -> Built {
        let found = self.store.find(record);
        let image = found.image.as_ref().ok();
        Built {
            md5: image.and_then(|i| i.source_md5(file)),
            image_mtime_ns: record.mtime_ns.or_else(|| source::mtime_ns(&record.path)),
        }
    }

    /// Returns the filter with the service that the query is narrowed to.
    pub(crate) fn narrowed(&self, filter: &SampleFilter) -> SampleFilter {
        SampleFilter { service: self.service.clone(), ..filter.clone() }
    }

    /// Returns the answer about one recording or machine; `None` if the query is narrowed to a service without samples in it.
    pub(crate) fn of_service<T>(&self, answer: Result<T, QueryError>) -> Result<Option<T>, QueryError> {
        match answer {
            Err(QueryError::NothingTaken { .. } | QueryError::NoDimension { .. })
                if self.service.is_some() =>
            {
                Ok(None)
            }
            answer => answer.map(Some),
        }
    }

    pub(crate) fn view(&self, selectors: &[String]) -> Result<Arc<View>, QueryError> {
        self.view_of(selectors, &SampleFilter::default())
    }

    /// Returns the merged epochs. Where the database has sums of some of them, these are read in their place, unless the filter asks
    /// by what sums do not keep.
    pub(crate) fn view_of(
        &self,
        selectors: &[String],
        filter: &SampleFilter,
    ) -> Result<Arc<View>, QueryError> {
        self.view_with(selectors, filter, false, Places::Each)
    }

    /// Returns the merged epochs, each read by itself, for answers about single epochs.
    pub(crate) fn view_apart(
        &self,
        selectors: &[String],
        filter: &SampleFilter,
    ) -> Result<Arc<View>, QueryError> {
        self.view_with(selectors, filter, true, Places::Each)
    }

    /// Returns the merged epochs with what an answer needs of them: `are_apart` if it tells of single epochs, instances, threads, CPUs or
    /// control groups, which sums do not keep; `places` if not of the code in an image.
    pub(crate) fn view_with(
        &self,
        selectors: &[String],
        filter: &SampleFilter,
        are_apart: bool,
        places: Places,
    ) -> Result<Arc<View>, QueryError> {
        let epochs = self.selected(selectors)?;
        let are_apart = are_apart || self.narrowed(filter).has_dimensions();
        let epochs = if are_apart { epochs } else { self.database.in_few(epochs)? };
        self.view_on(epochs, filter, places)
    }

    fn selected(&self, selectors: &[String]) -> Result<Vec<Epoch>, QueryError> {
        let latest = ["latest".to_owned()];
        Ok(self.database.resolve_all(if selectors.is_empty() { &latest } else { selectors })?)
    }

    fn view_on(
        &self,
        epochs: Vec<Epoch>,
        filter: &SampleFilter,
        places: Places,
    ) -> Result<Arc<View>, QueryError> {
        let filter = &self.narrowed(filter);
        let generation = self.database.generation();
        let key = |places| (epochs.iter().map(|e| e.id.clone()).collect(), filter.clone(), places);
        let found_again = self.store.look_again();
        let mut views = lock(&self.views);
        if views.generation != generation || found_again {
            *views = Views { generation, ..Views::default() };
        }
        // A view with places serves who needs none.
        let places = if views.has(&key(Places::Each)) { Places::Each } else { places };
        let slot = views.slot(key(places));
        drop(views); // Reading a large epoch must not block threads that need another epoch.
        let read = || {
            let selection = Selection::read(&self.database, &epochs, filter, places)?;
            Ok::<_, QueryError>(Arc::new(View {
                selection,
                procedures: OnceCell::default(),
                files: LruCache::new(FILES_KEPT),
                costs: LruCache::new(INSTRUCTIONS_KEPT),
                rows: LruCache::new(ROWS_IN_SIGHT),
                scales: Mutex::default(),
                stored: StoredAnalyses::of(&epochs, filter),
                stacks: OnceCell::default(),
            }))
        };
        slot.get_or_try_init(read).cloned()
    }

    pub(crate) fn procedures<'v>(
        &self,
        view: &'v View,
        cancel: &Cancel,
    ) -> Result<&'v [ProcedureSamples], QueryError> {
        let sampled = || procedures::sampled(&view.selection, &self.store, cancel);
        view.procedures.get_or_try_init(sampled).map(Vec::as_slice)
    }

    /// Returns the index of the source files that have the same name as the file at `path`.
    pub(crate) fn files(
        &self,
        view: &View,
        path: &Path,
        cancel: &Cancel,
    ) -> Result<Arc<FileIndex>, QueryError> {
        let procedures = self.procedures(view, cancel)?;
        let name = path.file_name().map(name_to_text).unwrap_or_default();
        let slot = view.files.get(&name.as_ref().into(), OnceCell::default, |_| 1);
        let build =
            || FileIndex::build(&view.selection, &self.store, procedures, &name, cancel).map(Arc::new);
        slot.get_or_try_init(build).cloned()
    }

    pub(crate) fn costs(&self, view: &View, procedure: &ProcedureSamples) -> Option<Arc<ProcedureCosts>> {
        let key = (procedure.image, procedure.address?.0);
        let instructions =
            |costs: &Option<Arc<ProcedureCosts>>| 1 + costs.as_ref().map_or(0, |c| c.instructions.len());
        (*view.costs.get(&key, || self.analyse(view, procedure), instructions)).clone()
    }

    /// Returns the same as [`Query::costs`] if the image is on this machine; otherwise the places that the profile names,
    /// without estimates.
    pub(crate) fn costs_or_places(
        &self,
        view: &View,
        procedure: &ProcedureSamples,
    ) -> Option<Arc<ProcedureCosts>> {
        let of_places = || ProcedureCosts::of_places(&view.selection, procedure).map(Arc::new);
        self.costs(view, procedure).or_else(of_places)
    }

    /// Returns the same as [`Query::costs`] but does not cache the result. It is for one pass over more procedures than the
    /// cache can hold.
    pub(crate) fn costs_once(
        &self,
        view: &View,
        procedure: &ProcedureSamples,
    ) -> Option<Arc<ProcedureCosts>> {
        match view.costs.peek(&(procedure.image, procedure.address?.0)) {
            Some(known) => (*known).clone(),
            None => self.analyse(view, procedure),
        }
    }

    fn analyse(&self, view: &View, procedure: &ProcedureSamples) -> Option<Arc<ProcedureCosts>> {
        let found = self.store.find(&view.selection.images[procedure.image].record);
        let Some(image) = found.image.as_ref().ok().cloned() else {
            let stored = self.stored_costs(view, procedure);
            return stored.map_err(|why| view.stored.add_unread(why)).ok().flatten().map(Arc::new);
        };
        let slot = lock(&view.scales).entry(procedure.image).or_default().clone();
        let scales = self.scales(view, procedure.image, &image, &slot);
        let scaled = scales.zip(procedure.address).and_then(|(scales, address)| scales.get(&address.0));
        ProcedureCosts::new(&view.selection, procedure, image, scaled).map(Arc::new)
    }
}

impl Query {
    /// Returns the analysis of a procedure whose image is not at hand: `None` if none was stored, or the reason why it cannot be read.
    pub(crate) fn stored_costs(
        &self,
        view: &View,
        procedure: &ProcedureSamples,
    ) -> Result<Option<ProcedureCosts>, String> {
        let Some(start) = procedure.address else { return Ok(None) };
        let image = &view.selection.images[procedure.image].record.id;
        let text = view.stored.text(&self.database, image, start.0)?;
        let read = |text: Box<str>| stored::read(&view.selection, procedure, &text);
        text.map(read).transpose().map_err(|why| format!("stored analysis of {}: {why}", procedure.name))
    }

    /// Returns the factors that make the frequencies of an image's procedures agree with those of their callers and callees.
    fn scales<'s>(
        &self,
        view: &View,
        index: usize,
        image: &Image,
        slot: &'s OnceCell<Scales>,
    ) -> Option<&'s Scales> {
        let scales = slot.get_or_try_init(|| {
            let all = self.procedures(view, &Cancel::default())?;
            let own: Vec<&ProcedureSamples> = all.iter().filter(|p| p.image == index).collect();
            Ok::<Scales, QueryError>(scales::of_image(&view.selection, image, &own))
        });
        scales.ok()
    }
}

/// Locks a mutex even if a thread panicked while it held the lock: a panic leaves no half-done change behind these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
