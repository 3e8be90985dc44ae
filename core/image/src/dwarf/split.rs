//! Split debug information: the part of a unit that the linker never saw, in a `.dwo` file or a `.dwp` package (DWARF 5
//! §7.3; before, GNU's extension of DWARF 4).
//!
//! Enters: a skeleton unit of the image, and a file that may have its other part. Leaves: that part, by its id, with the
//! image's addresses. Never here: where such files are looked for.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gimli::{AttributeValue, Unit, UnitRef};

use super::sections::{Reader, Sections};
use super::units::{AbbreviationsCache, Units};
use crate::data::Data;
use crate::elf::Elf;

/// A longer name is no path.
const NAME_BYTES_MAX: usize = 4096;

/// A unit whose functions are in another file; the image has its addresses and lines only.
pub(crate) struct Skeleton {
    /// The file with the rest, as the compiler spelled it.
    pub(crate) name: PathBuf,
    /// The folder that the compiler ran in.
    pub(crate) folder: Option<PathBuf>,
    id: u64,
}

impl Skeleton {
    /// `None` for a unit that is whole.
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

/// A file with the split parts of units: of one program, or of one object file.
pub(crate) struct SplitFile {
    data: Arc<Data>,
    sections: Sections,
}

impl SplitFile {
    /// Opens a file; `None` where there is no such file, a reason where it cannot be used.
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

    /// Whether it is a package with the rest of the unit, by its index alone.
    pub(crate) fn lists(&self, skeleton: &Skeleton) -> bool {
        let package = self.sections.package(self.data.bytes());
        package.is_some_and(|package| package.cu_index.find(skeleton.id).is_some())
    }

    /// What `read` makes of the rest of a unit of the image; `None` where it is not here. `read` also gets all units that are
    /// beside it. (Not a `UnitRef`: its lifetime cannot be shortened to this file's.)
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
