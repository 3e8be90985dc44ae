//! Split debug information: the part of a unit that the linker does not process, in a `.dwo` file or a `.dwp` package (DWARF
//! 5 §7.3; before that, GNU's extension of DWARF 4).
//!
//! Input: a skeleton unit of the image, and a file that may contain its other part. Output: that part, identified by its id,
//! with the addresses of the image. Where such files are looked for is decided elsewhere.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gimli::{AttributeValue, Unit, UnitRef};

use super::sections::{Reader, Sections};
use super::units::{AbbreviationsCache, Units};
use crate::data::Data;
use crate::elf::Elf;

/// Largest length of a name in bytes; a longer one is no path.
const NAME_BYTES_MAX: usize = 4096;

/// A unit whose functions are in another file. The image contains only its addresses and lines.
pub(crate) struct Skeleton {
    /// Path of the other file, as the compiler recorded it.
    pub(crate) name: PathBuf,
    /// Folder that the compiler ran in.
    pub(crate) folder: Option<PathBuf>,
    id: u64,
}

impl Skeleton {
    /// Returns the skeleton of a unit; `None` if the unit has no part in another file.
    pub(crate) fn of(unit: UnitRef<'_, Reader<'_>>) -> Option<Skeleton> {
        let mut entries = unit.entries();
        entries.next_dfs().ok()??;
        let root = entries.current()?;
        let name: AttributeValue<Reader<'_>> =
            root.attr_value(gimli::DW_AT_dwo_name).or_else(|| root.attr_value(gimli::DW_AT_GNU_dwo_name))?;
        let path = |text: Reader<'_>| {
            let bytes = text.slice().get(..text.len().min(NAME_BYTES_MAX))?;
            Some(PathBuf::from(OsStr::from_bytes(bytes)))
        };
        let name = path(unit.attr_string(name).ok()?)?;
        Some(Skeleton { name, folder: unit.comp_dir.and_then(path), id: unit.dwo_id?.0 })
    }
}

/// A file with the split parts of units, of a whole program or of one object file.
pub(crate) struct SplitFile {
    data: Arc<Data>,
    sections: Sections,
}

impl SplitFile {
    /// Opens a file. The error is `None` if there is no such file, or a reason if it cannot be used.
    pub(crate) fn open(path: &Path) -> Result<SplitFile, Option<String>> {
        if !path.is_file() {
            return Err(None);
        }
        let refuse = |why: String| Some(format!("{} {why}", path.display()));
        let data = Data::open(path).map_err(|error| refuse(format!("cannot be read: {error}")))?;
        SplitFile::of(Arc::new(data)).map_err(|why| refuse(format!("is unusable: {why}")))
    }

    pub(crate) fn of(data: Arc<Data>) -> Result<SplitFile, String> {
        let elf = Elf::parse(data.bytes()).map_err(|error| error.to_string())?;
        let sections = Sections::load_split(&elf, data.bytes());
        Ok(SplitFile { data, sections })
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.data.memory_bytes() + self.sections.memory_bytes()
    }

    /// Returns whether the file is a package that contains the other part of the unit, judged by its index.
    pub(crate) fn lists(&self, skeleton: &Skeleton) -> bool {
        let package = self.sections.package(self.data.bytes());
        package.is_some_and(|package| package.cu_index.find(skeleton.id).is_some())
    }

    /// Calls `read` with the other part of a unit of the image and returns its result. Returns `None` if the part is not in
    /// this file. `read` also gets all units that are beside it. (The parameter is not a `UnitRef`, because its lifetime
    /// cannot be shortened to that of this file.)
    pub(crate) fn read<'s, T>(
        &'s self,
        skeleton: &Skeleton,
        whole: &gimli::Dwarf<Reader<'s>>,
        unit: &Unit<Reader<'s>>,
        read: &dyn Fn(UnitRef<'_, Reader<'_>>, &Units) -> T,
    ) -> Option<T> {
        let of_dwarf = |dwarf: &gimli::Dwarf<Reader<'s>>| {
            let units = Units::read(dwarf);
            let mut cache = AbbreviationsCache::default();
            let with_id = |number| {
                let part = units.open(dwarf, number, &mut cache)?;
                (part.split_id() == Some(skeleton.id)).then_some(part)
            };
            let mut part = (0..units.count()).find_map(with_id)?;
            part.complete_from(unit);
            Some(read(part.unit_ref(dwarf), &units))
        };
        let bytes = self.data.bytes();
        if let Some(package) = self.sections.package(bytes) {
            return of_dwarf(&package.find_cu(gimli::DwoId(skeleton.id), whole).ok()??);
        }
        self.sections.split(bytes).into_iter().find_map(|mut dwarf| {
            dwarf.make_dwo(whole);
            of_dwarf(&dwarf)
        })
    }
}
