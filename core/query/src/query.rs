//! The database that requests are answered from, and the caches behind them.
//!
//! What takes long is computed once for each (set of epochs, generation of the database) and shared between threads: the
//! merged samples, the procedures, the analysed procedures, the index of source files. Never here: requests.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use dwell_image::{Image, LruCache};
use dwell_profile::{Database, Epoch, EpochId, ImageRecord, name_to_text, text_to_path};
use rustc_hash::FxHashMap;

use crate::{
    Cancel, QueryError, SampleFilter,
    analyse::{
        costs::ProcedureCosts,
        file_index::FileIndex,
        procedures::{self, ProcedureSamples},
        scales::{self, Scales},
        totals::Totals,
    },
    answer::CycleSplit,
    load::{
        images::ImageStore,
        selection::Selection,
        source::{self, Built, Compared, SourceMap},
    },
    once::Once,
};

/// The places where a [`Query`] looks for profiles, binaries and sources.
#[derive(Clone, Debug)]
pub struct Options {
    /// The database's folder.
    pub database: PathBuf,
    /// Folders with debug information by build id; `/usr/lib/debug` where there are none.
    pub debug_dirs: Vec<PathBuf>,
    /// Folders of sources as the debug information spells them, and where they are here; the first that fits counts.
    pub source_map: Vec<(PathBuf, PathBuf)>,
    /// Whether the kernel's text is looked for. Its addresses are above 2^53, which numbers in JavaScript
    /// cannot hold.
    pub kernel_text: bool,
}

impl Options {
    /// The database at `path`, debug information where Debian keeps it and where `dwell import` keeps what it fetched.
    pub fn for_database(path: impl Into<PathBuf>) -> Self {
        let debug_dirs = std::iter::once("/usr/lib/debug".into()).chain(fetched_dir()).collect();
        Options { database: path.into(), debug_dirs, source_map: Vec::new(), kernel_text: true }
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
    pub(crate) sources: SourceMap,
    views: Mutex<Views>,
}

/// Views of the current generation by the epochs they merge and the samples they take.
#[derive(Default)]
struct Views {
    generation: u64,
    by_samples: FxHashMap<(Vec<EpochId>, SampleFilter), (usize, ViewSlot)>,
    /// Counts the questions: when a view was asked last.
    clock: usize,
}

/// A view, perhaps while it is being read.
type ViewSlot = Arc<Once<Arc<View>>>;

impl Views {
    fn slot(&mut self, key: (Vec<EpochId>, SampleFilter)) -> ViewSlot {
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

/// Analysed procedures by image (an index) and address; `None`: there is nothing to analyse.
type CostsByProcedure = LruCache<(usize, u64), Option<Arc<ProcedureCosts>>>;

/// Instructions of analysed procedures that are kept for a view; each takes about half a KiB.
const INSTRUCTIONS_KEPT: usize = 40_000;
/// Names of source files that are kept with the procedures they were compiled into.
const FILES_KEPT: usize = 256;
/// Views that are kept: what is shown, what it is compared with, and those before.
const VIEWS_KEPT: usize = 6;

/// Rows whose CPI and line are kept: those of a list that somebody scrolls through.
const ROWS_IN_SIGHT: usize = 20_000;

/// The part of a procedure's row that takes an analysis.
pub(crate) struct RowCost {
    /// File and line that the procedure begins at.
    pub(crate) place: Option<(Arc<str>, u32)>,
    pub(crate) totals: Option<Totals>,
    pub(crate) split: Option<CycleSplit>,
}

/// Cached results for one set of epochs.
pub(crate) struct View {
    pub selection: Selection,
    procedures: Once<Vec<ProcedureSamples>>,
    /// By name, without folders.
    files: LruCache<Box<str>, Once<Arc<FileIndex>>>,
    costs: CostsByProcedure,
    /// By image (an index) and address.
    pub(crate) rows: LruCache<(usize, u64), RowCost>,
    /// By image: what to multiply its procedures' frequencies by.
    scales: Mutex<FxHashMap<usize, Arc<Once<Scales>>>>,
}

impl Query {
    /// Opens the database; an empty or missing one is no error until it is asked.
    pub fn open(options: Options) -> Result<Self, QueryError> {
        let database = Database::open(&options.database)?;
        Ok(Query {
            store: ImageStore::new(options.debug_dirs, database.clone(), options.kernel_text),
            sources: SourceMap::new(options.source_map),
            database,
            views: Mutex::default(),
        })
    }

    /// Changes whenever an epoch or a segment appears or goes. Cheap: for watching.
    pub fn generation(&self) -> u64 {
        self.database.generation()
    }

    /// A file's text as it was when the image (an index) was built.
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

    pub(crate) fn view(&self, selectors: &[String]) -> Result<Arc<View>, QueryError> {
        self.view_of(selectors, &SampleFilter::default())
    }

    pub(crate) fn view_of(
        &self,
        selectors: &[String],
        filter: &SampleFilter,
    ) -> Result<Arc<View>, QueryError> {
        let generation = self.database.generation();
        let latest = ["latest".to_owned()];
        let selectors = if selectors.is_empty() { &latest } else { selectors };
        let mut epochs =
            selectors.iter().map(|s| self.database.resolve(s)).collect::<Result<Vec<Epoch>, _>>()?;
        epochs.sort_by(|a, b| (a.start, &a.id).cmp(&(b.start, &b.id)));
        epochs.dedup_by(|a, b| a.id == b.id);
        let key = (epochs.iter().map(|e| e.id.clone()).collect(), filter.clone());
        let found_again = self.store.look_again();
        let mut views = lock(&self.views);
        if views.generation != generation || found_again {
            *views = Views { generation, ..Views::default() };
        }
        let slot = views.slot(key);
        drop(views); // Reading a large epoch must not keep those waiting who ask for another.
        let read = || {
            let selection = Selection::read(&self.database, &epochs, filter)?;
            Ok::<_, QueryError>(Arc::new(View {
                selection,
                procedures: Once::default(),
                files: LruCache::new(FILES_KEPT),
                costs: LruCache::new(INSTRUCTIONS_KEPT),
                rows: LruCache::new(ROWS_IN_SIGHT),
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

    /// The procedures by files that are called as the one at `path`.
    pub(crate) fn files(
        &self,
        view: &View,
        path: &Path,
        cancel: &Cancel,
    ) -> Result<Arc<FileIndex>, QueryError> {
        let procedures = self.procedures(view, cancel)?;
        let name = path.file_name().map(name_to_text).unwrap_or_default();
        let slot = view.files.get(&name.as_ref().into(), Once::default, |_| 1);
        let build =
            || FileIndex::build(&view.selection, &self.store, procedures, &name, cancel).map(Arc::new);
        slot.get_or_try(build).cloned()
    }

    pub(crate) fn costs(&self, view: &View, procedure: &ProcedureSamples) -> Option<Arc<ProcedureCosts>> {
        let key = (procedure.image, procedure.address?.0);
        let instructions =
            |costs: &Option<Arc<ProcedureCosts>>| 1 + costs.as_ref().map_or(0, |c| c.instructions.len());
        (*view.costs.get(&key, || self.analyse(view, procedure), instructions)).clone()
    }

    /// Like [`Query::costs`]; where the image is not on this machine, the places that the profile names, without estimates.
    pub(crate) fn costs_or_places(
        &self,
        view: &View,
        procedure: &ProcedureSamples,
    ) -> Option<Arc<ProcedureCosts>> {
        let of_places = || ProcedureCosts::of_places(&view.selection, procedure).map(Arc::new);
        self.costs(view, procedure).or_else(of_places)
    }

    /// Like [`Query::costs`], without keeping the result in the cache: for one pass over more procedures than the cache
    /// holds.
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
        let image = found.image.as_ref().ok().cloned()?;
        let slot = lock(&view.scales).entry(procedure.image).or_default().clone();
        let scales = self.scales(view, procedure.image, &image, &slot);
        let scaled = scales.zip(procedure.address).and_then(|(scales, address)| scales.get(&address.0));
        ProcedureCosts::new(&view.selection, procedure, image, scaled).map(Arc::new)
    }
}

impl Query {
    /// What to multiply the frequencies of an image's procedures by, so that they agree with their callers' and callees'.
    fn scales<'s>(
        &self,
        view: &View,
        index: usize,
        image: &Image,
        slot: &'s Once<Scales>,
    ) -> Option<&'s Scales> {
        let scales = slot.get_or_try(|| {
            let all = self.procedures(view, &Cancel::default())?;
            let own: Vec<&ProcedureSamples> = all.iter().filter(|p| p.image == index).collect();
            Ok::<Scales, QueryError>(scales::of_image(&view.selection, image, &own))
        });
        scales.ok()
    }
}

/// A panic elsewhere leaves nothing half-done behind these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
