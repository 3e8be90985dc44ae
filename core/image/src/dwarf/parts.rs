//! Other files that contain debug information of one file: the file with shared entries (`.gnu_debugaltlink`, `.debug_sup`),
//! the package of split debug information beside it, and `.dwo` files.
//!
//! Input: places where these files may be. Output: what is read from them, and one sentence about what is missing. A file of
//! another build is never used; each file is verified by an id.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use gimli::{Unit, UnitRef};

use super::index::Index;
use super::places::{self, AltLink, Places};
use super::sections::{Reader, Sections};
use super::split::{Skeleton, SplitFile};
use super::units::{AbbreviationsCache, Units};
use crate::BuildId;
use crate::data::Data;
use crate::elf::Elf;

/// Largest number of files and places that a message about missing ones names.
const NAMED_MAX: usize = 3;

/// Other files with debug information of one file.
#[derive(Default)]
pub(crate) struct Parts {
    /// Places to look in; `None` if the files are not looked for.
    places: Option<Places>,
    alt: OnceLock<Alt>,
    package: OnceLock<Option<SplitFile>>,
    /// Units whose split part could not be used, each with the reason.
    refused: Mutex<BTreeMap<usize, String>>,
    /// Units whose split part was not found anywhere.
    absent: OnceLock<BTreeSet<usize>>,
}

/// State of the file with shared entries.
enum Alt {
    NotNamed,
    Found(AltFile),
    Missing { id: Option<BuildId>, why: String },
}

/// An opened file with shared entries.
pub(crate) struct AltFile {
    data: Arc<Data>,
    sections: Sections,
    units: OnceLock<Units>,
}

impl AltFile {
    pub(crate) fn new(elf: &Elf, data: Arc<Data>) -> AltFile {
        let sections = Sections::load(elf, data.bytes());
        AltFile { data, sections, units: OnceLock::new() }
    }

    pub(crate) fn dwarf(&self) -> gimli::Dwarf<Reader<'_>> {
        self.sections.dwarf(self.data.bytes())
    }

    pub(crate) fn units(&self) -> &Units {
        self.units.get_or_init(|| Units::read(&self.dwarf()))
    }
}

impl Parts {
    /// Creates parts that are looked for in `places` when they are needed.
    pub(crate) fn in_places(places: Places) -> Parts {
        Parts { places: Some(places), ..Parts::default() }
    }

    /// Creates parts that are all in one file, whatever the file is.
    pub(crate) fn within(elf: &Elf, data: &Arc<Data>) -> Parts {
        let parts = Parts::default();
        let _ = parts.alt.set(Alt::Found(AltFile::new(elf, data.clone())));
        let _ = parts.package.set(SplitFile::of(data.clone()).ok());
        parts
    }

    /// Returns the file that `elf` shares debug information with.
    pub(crate) fn alt(&self, elf: &Elf, bytes: &[u8]) -> Option<&AltFile> {
        let places = self.places.as_ref();
        let open = || match (places::alt_link(elf, bytes), places) {
            (None, _) => Alt::NotNamed,
            (Some(link), None) => Alt::Missing {
                id: link.build_id(),
                why: format!("{} was not looked for", link.name.display()),
            },
            (Some(link), Some(places)) => open_alt(&link, elf, places),
        };
        match self.alt.get_or_init(open) {
            Alt::Found(file) => Some(file),
            Alt::NotNamed | Alt::Missing { .. } => None,
        }
    }

    /// Returns the build ID of the file that `elf` shares debug information with, if that file was not found.
    pub(crate) fn missing_alt(&self, elf: &Elf, bytes: &[u8]) -> Option<BuildId> {
        self.alt(elf, bytes);
        match self.alt.get()? {
            Alt::Missing { id, .. } => id.clone(),
            Alt::Found(_) | Alt::NotNamed => None,
        }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let alt = match self.alt.get() {
            Some(Alt::Found(file)) => file.data.memory_bytes() + file.sections.memory_bytes(),
            _ => 0,
        };
        alt + self.package.get().and_then(Option::as_ref).map_or(0, SplitFile::memory_bytes)
    }

    /// Calls `read` with the split part of the unit `number` and returns its result. Returns `None` if the unit has no split
    /// part, or the part is not available.
    pub(crate) fn split<T>(
        &self,
        number: usize,
        whole: &gimli::Dwarf<Reader<'_>>,
        unit: &Unit<Reader<'_>>,
        read: &dyn Fn(UnitRef<'_, Reader<'_>>, &Units) -> T,
    ) -> Option<T> {
        let skeleton = Skeleton::of(UnitRef::new(whole, unit))?;
        if let Some(found) = self.package().and_then(|package| package.read(&skeleton, whole, unit, read)) {
            return Some(found);
        }
        let mut refused = Vec::new();
        for place in self.places.iter().flat_map(|places| places.of_split(&skeleton)) {
            match SplitFile::open(&place) {
                Ok(file) => match file.read(&skeleton, whole, unit, read) {
                    Some(found) => return Some(found),
                    None => refused.push(format!("{} belongs to another build", place.display())),
                },
                Err(why) => refused.extend(why),
            }
        }
        if !refused.is_empty() {
            self.refused().insert(number, refused.join("; "));
        }
        None
    }

    /// Returns a sentence about what is missing. Looks for the files of all units, but does not open them.
    pub(crate) fn missing(&self, dwarf: &gimli::Dwarf<Reader<'_>>, index: &Index) -> Option<String> {
        let alt = match self.alt.get() {
            Some(Alt::Missing { why, .. }) => {
                Some(format!("debug information that several files share is missing: {why}"))
            }
            _ => None,
        };
        let missing: Vec<String> = alt.into_iter().chain(self.missing_split(dwarf, index)).collect();
        (!missing.is_empty()).then(|| missing.join("; "))
    }

    fn missing_split(&self, dwarf: &gimli::Dwarf<Reader<'_>>, index: &Index) -> Option<String> {
        let mut cache = AbbreviationsCache::default();
        let mut skeleton = |unit| Skeleton::of(index.units.open(dwarf, unit, &mut cache)?.unit_ref(dwarf));
        let mut is_absent = |unit: usize| skeleton(unit).is_none_or(|skeleton| !self.is_there(&skeleton));
        let absent =
            self.absent.get_or_init(|| index.skeletons.iter().copied().filter(|u| is_absent(*u)).collect());
        let refused = self.refused();
        let missing: BTreeSet<usize> = absent.iter().chain(refused.keys()).copied().collect();
        let first = skeleton(*missing.first()?)?;
        let names: BTreeSet<String> = missing
            .iter()
            .filter_map(|unit| {
                refused.get(unit).cloned().or_else(|| Some(skeleton(*unit)?.name.display().to_string()))
            })
            .collect();
        let text = |place: PathBuf| place.display().to_string();
        let looked = self.places.as_ref().map_or("nowhere".to_owned(), |places| {
            let package =
                places.of_package().next().map_or(String::new(), |p| format!("; as a package: {}", text(p)));
            list(places.of_split(&first).map(text)) + &package
        });
        let (count, all) = (missing.len(), index.skeletons.len());
        let names = list(names.into_iter());
        Some(format!(
            "split debug information is missing for {count} of {all} units: {names} (looked for: {looked})"
        ))
    }

    fn is_there(&self, skeleton: &Skeleton) -> bool {
        self.package().is_some_and(|package| package.lists(skeleton))
            || self.places.iter().flat_map(|places| places.of_split(skeleton)).any(|place| place.is_file())
    }

    fn package(&self) -> Option<&SplitFile> {
        let open = || self.places.as_ref()?.of_package().find_map(|place| SplitFile::open(&place).ok());
        self.package.get_or_init(open).as_ref()
    }

    /// Locks the reasons even if a thread panicked while it held the lock: a panic leaves no half-done change behind it.
    fn refused(&self) -> std::sync::MutexGuard<'_, BTreeMap<usize, String>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn open_alt(link: &AltLink, elf: &Elf, places: &Places) -> Alt {
    let candidates: Vec<PathBuf> = places.of_alt(link).collect();
    let mut refused = Vec::new();
    for place in candidates.iter().filter(|place| place.is_file()) {
        let data = match Data::open(place) {
            Ok(data) => data,
            Err(error) => {
                refused.push(format!("{} cannot be read: {error}", place.display()));
                continue;
            }
        };
        match Elf::parse(data.bytes()) {
            Ok(alt) if places::is_alt(&alt, data.bytes(), link) => {
                return Alt::Found(AltFile::new(&alt, Arc::new(data)));
            }
            Ok(alt) if alt.arch == elf.arch => refused.push(format!("{} has another id", place.display())),
            Ok(_) => refused.push(format!("{} is for another architecture", place.display())),
            Err(error) => refused.push(format!("{} is unusable: {error}", place.display())),
        }
    }
    let looked = list(candidates.iter().map(|p| p.display().to_string()));
    let why = if refused.is_empty() { String::new() } else { format!("; {}", list(refused.into_iter())) };
    let why = format!("{} with build id {} (looked for: {looked}{why})", link.name.display(), link.id_hex());
    Alt::Missing { id: link.build_id(), why }
}

/// Lists the first few items of possibly thousands, and the number of the others.
fn list(items: impl Iterator<Item = String>) -> String {
    let mut seen = BTreeSet::new();
    let items: Vec<String> = items.filter(|item| seen.insert(item.clone())).collect();
    let named = items.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
    match items.len().saturating_sub(NAMED_MAX) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}
