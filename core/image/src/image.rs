//! An image: the façade of this crate.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use crate::data::Data;
use crate::data_symbols::{DataPlace, DataSymbols};
use crate::debug_files::{self, DebugSearch, DebugState};
use crate::dwarf::places::Places;
use crate::dwarf::{CompiledFrame, Dwarf, Frame};
use crate::elf::Elf;
use crate::landing_pads::LandingPads;
use crate::lru_cache::LruCache;
use crate::procedure::{Procedure, ProcedureTable};
use crate::relocations::Relocations;
use crate::unwind_rows::{self, UnwindRow};
use crate::{Arch, BuildId, ImageAddress, ImageError, ImageOffset, Instruction, decode, minidebug, symbols};

/// An ELF file: executable, shared library, vdso, kernel module or kernel.
///
/// Opening reads the headers. Procedures, line tables and other parts are read on first use and cached. Threads may share an
/// image. In a relocatable file (kernel module), addresses are distances from the place where its code is loaded.
pub struct Image {
    path: Option<PathBuf>,
    own: Dwarf,
    debug: Result<DebugFile, String>,
    procedures: OnceLock<ProcedureTable>,
    /// Demangled names by address. Requests for neighbouring addresses often come one after the other.
    demangled: LruCache<u64, String>,
    relocations: OnceLock<Relocations>,
    data_symbols: OnceLock<DataSymbols>,
    landing_pads: OnceLock<LandingPads>,
    /// If set, offsets are distances from this address, not offsets in the file.
    text: Option<ImageAddress>,
}

/// Debug file of an image.
struct DebugFile {
    path: PathBuf,
    dwarf: Dwarf,
}

/// Largest number of bytes that are disassembled at once: symbols of hostile files may have any size.
const INSTRUCTION_BYTES_MAX: u64 = 4 << 20;
/// Bytes of demangled names that are cached.
const NAME_BYTES_KEPT: usize = 1 << 20;

impl Image {
    /// Opens the image at `path`. Files of more than 8 MiB are mapped, smaller ones are read.
    pub fn open(path: impl AsRef<Path>) -> Result<Image, ImageError> {
        let path = path.as_ref();
        let data = Data::open(path).map_err(|error| ImageError::read(path, error))?;
        Image::from_data(data, Some(path.to_owned()))
    }

    /// Creates an image from bytes: the vdso, a member of an archive, a test.
    pub fn parse(bytes: impl Into<Vec<u8>>) -> Result<Image, ImageError> {
        Image::from_data(Data::Memory(bytes.into()).widened(), None)
    }

    fn from_data(data: Data, path: Option<PathBuf>) -> Result<Image, ImageError> {
        let elf = Elf::parse(data.bytes())?;
        let why = match elf.relocatable {
            true => "debug information of relocatable files is not read: its addresses are not yet known",
            false => "the file has no debug information, and no other file was searched",
        };
        let debug = Err(why.to_owned());
        let own = Dwarf::new(elf, Arc::new(data));
        let (procedures, relocations, data_symbols, landing_pads) = Default::default();
        let demangled = LruCache::new(NAME_BYTES_KEPT);
        Ok(Image {
            path,
            own,
            debug,
            procedures,
            demangled,
            relocations,
            data_symbols,
            landing_pads,
            text: None,
        })
    }

    /// Looks for the image's debug file, unless the image contains debug information, and sets the places of the other files
    /// that its debug information is in. Cached results are dropped, since the debug file also has symbols.
    pub fn attach_debug(&mut self, search: &DebugSearch) {
        if self.elf().relocatable {
            return;
        }
        let places = |file: Option<&Path>| Places {
            search: search.clone(),
            image: self.path.clone(),
            file: file.map(Path::to_owned),
            build_id: self.elf().build_id.clone(),
        };
        if self.elf().has_dwarf() {
            let places = places(self.path.as_deref());
            return self.own.look_in(places);
        }
        let found = debug_files::find(search, self.elf(), self.own.bytes(), self.path.as_deref());
        self.debug = found.map(|found| {
            let mut dwarf = Dwarf::new(found.elf, Arc::new(found.data));
            dwarf.look_in(places(Some(&found.path)));
            DebugFile { path: found.path, dwarf }
        });
        self.procedures = OnceLock::new();
        self.demangled = LruCache::new(NAME_BYTES_KEPT);
        self.data_symbols = OnceLock::new();
    }

    /// Uses the image itself for all other files that its debug information is in, if it may be such a file. This is for
    /// fuzzing.
    pub(crate) fn attach_itself(&mut self) -> bool {
        let names = [".gnu_debugaltlink", ".debug_sup", ".debug_info.dwo", ".debug_cu_index"];
        let may_be = names.iter().any(|name| self.elf().section(name).is_some());
        if may_be {
            self.own.look_within();
        }
        may_be
    }

    /// Returns whether the image's source lines are known, or the reason why not.
    pub fn debug_state(&self) -> DebugState {
        let state = match &self.debug {
            _ if self.elf().has_dwarf() => DebugState::Present,
            Ok(found) if found.dwarf.elf().has_dwarf() => DebugState::Separate(found.path.clone()),
            Ok(found) => {
                return DebugState::Missing(format!("{} has no debug information", found.path.display()));
            }
            Err(why) => return DebugState::Missing(self.with_packed(why)),
        };
        let missing = self.dwarf().missing_parts(&|a| self.elf().is_code(a));
        missing.map_or(state, DebugState::Incomplete)
    }

    /// Returns the build ID of the file that the debug information shares entries with (`.gnu_debugaltlink`), if that file
    /// was not found.
    pub fn missing_shared_debug(&self) -> Option<BuildId> {
        self.dwarf().missing_alt()
    }

    /// Returns the path from which the image was opened.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Returns the instruction set of the image.
    pub fn arch(&self) -> Arch {
        self.elf().arch
    }

    /// Returns the build ID of the image, if the linker gave it one.
    pub fn build_id(&self) -> Option<&BuildId> {
        self.elf().build_id.as_ref()
    }

    /// Returns the address that the byte at `offset` in the file is loaded at, before relocation; `None` if it is not
    /// loaded.
    pub fn address_of(&self, offset: ImageOffset) -> Option<ImageAddress> {
        let Some(text) = self.text else { return self.elf().address_of(offset) };
        let address = ImageAddress(text.0.checked_add(offset.0)?);
        self.elf().is_code(address).then_some(address)
    }

    /// Returns the address that the page at `offset` in the file has in an executable mapping, before relocation; `None` if no code
    /// is mapped from there.
    pub fn address_of_code_page(&self, offset: ImageOffset) -> Option<ImageAddress> {
        self.elf().address_of_code_page(offset)
    }

    /// Returns the offset in the file of the byte that is loaded at `address`; `None` if no byte of the file is (`.bss`).
    pub fn offset_of(&self, address: ImageAddress) -> Option<ImageOffset> {
        match self.text {
            Some(text) => address.0.checked_sub(text.0).map(ImageOffset),
            None => self.elf().offset_of(address),
        }
    }

    /// Converts the offsets of this image to those that the collector records for the kernel: distances from `_text`, or
    /// from `_stext` if there is no such symbol. Returns `None` if the image has neither symbol.
    pub fn as_kernel(mut self) -> Option<Image> {
        let address = |name| symbols::address_of(self.elf(), self.own.bytes(), name);
        self.text = Some(address("_text").or_else(|| address("_stext"))?);
        Some(self)
    }

    /// Copies loaded bytes, with pointers as the dynamic linker fills them in. Returns `false`, with `into` unchanged, if
    /// not all bytes are in the file. The first call reads the relocations.
    pub fn read(&self, address: ImageAddress, into: &mut [u8]) -> bool {
        match self.elf().loaded(self.own.bytes(), address).get(..into.len()) {
            Some(bytes) => {
                into.copy_from_slice(bytes);
                let parse = || Relocations::parse(self.elf(), self.own.bytes());
                self.relocations.get_or_init(parse).apply(address.0, into);
                true
            }
            None => false,
        }
    }

    /// Returns all procedures, one for each start address. The first call takes O(n log n) in the number of symbols.
    pub fn procedures(&self) -> &ProcedureTable {
        self.procedures.get_or_init(|| {
            let debug = self.debug.as_ref().ok().map(|found| found.dwarf.file());
            ProcedureTable::complete(self.own.file(), debug)
        })
    }

    /// Returns the innermost procedure that contains `address`.
    pub fn procedure_at(&self, address: ImageAddress) -> Option<Procedure<'_>> {
        self.procedures().at(address)
    }

    /// Returns what the image contains at `distance` bytes after the place in memory where the first byte of its file is
    /// mapped. The result covers all of the `size_bytes` bytes from there. The first call takes O(n log n) in the number of
    /// symbols.
    pub fn data_at(&self, distance: u64, size_bytes: u64) -> DataPlace {
        let symbols = self.data_symbols.get_or_init(|| {
            let debug = self.debug.as_ref().ok().map(|found| (found.dwarf.elf(), found.dwarf.bytes()));
            let own = (self.elf(), self.own.bytes());
            DataSymbols::gather(&std::iter::once(own).chain(debug).collect::<Vec<_>>())
        });
        symbols.place(self.elf(), distance, size_bytes)
    }

    /// Returns the instructions in the `size_bytes` bytes from `start`, or as far as the file has bytes; the last one may be
    /// cut off. At most 4 MiB are decoded: no procedure of a compiler is longer, and a hostile one would take gigabytes.
    pub fn instructions(&self, start: ImageAddress, size_bytes: u64) -> Vec<Instruction> {
        let loaded = self.elf().loaded(self.own.bytes(), start);
        let size = size_bytes.min(INSTRUCTION_BYTES_MAX).min(loaded.len() as u64) as usize;
        decode::instructions(self.arch(), &loaded[..size], start)
    }

    /// Returns the executable segments with their addresses.
    pub fn code(&self) -> impl Iterator<Item = (ImageAddress, &[u8])> {
        let segments = self.elf().segments.iter().filter(|segment| segment.executable);
        let addresses = segments.map(|segment| ImageAddress(segment.address));
        addresses.map(|address| (address, self.elf().loaded(self.own.bytes(), address)))
    }

    /// Reads how the caller of each instruction is found, ascending. Empty if that is not known or not for x86-64.
    pub fn unwind_rows(&self) -> Vec<UnwindRow> {
        if self.arch() == Arch::X86_64 { unwind_rows::read(&self.own.file()) } else { Vec::new() }
    }

    /// Returns where the image's table of restartable sequences is (`struct rseq_cs` of Linux), if it has one. Its entries are
    /// relocated when the image is loaded.
    pub fn restartable_sequences(&self) -> Option<Range<ImageAddress>> {
        let section = self.elf().section("__rseq_cs")?;
        Some(ImageAddress(section.address)..ImageAddress(section.address.checked_add(section.size)?))
    }

    /// Returns where the unwinder may continue the function that starts at `start` after an exception, ascending; `None` if
    /// that cannot be read. The first call reads the unwind entries of the whole image.
    pub fn landing_pads(&self, start: ImageAddress) -> Option<Vec<ImageAddress>> {
        let all = self.landing_pads.get_or_init(|| LandingPads::read(&self.own.file()));
        all.of(self.elf(), self.own.bytes(), start)
    }

    /// Returns the source place of `address` and the calls that were inlined around it, innermost first. Without debug
    /// information, the only frame contains the procedure's name. The result is empty if there is no procedure either.
    ///
    /// The first call for a unit reads its tables. The most recently used tables are cached, and calls that find them take
    /// O(log n).
    pub fn frames(&self, address: ImageAddress) -> Vec<Frame> {
        let mut frames = self.dwarf().frames(address, &|a| self.elf().is_code(a));
        let named = frames.last().is_some_and(|f| f.function.is_some());
        if !named && let Some(procedure) = self.procedure_at(address) {
            let name = self.demangled.get(&procedure.address.0, || procedure.demangled(), String::len);
            let function = Some(name.to_string());
            match frames.last_mut() {
                Some(outermost) => outermost.function = function,
                None => frames.push(Frame { function, ..Frame::default() }),
            }
        }
        frames
    }

    /// Returns the calls around `address`, innermost first, in the form that a compiler needs to read a profile. Empty
    /// without debug information of functions. It costs as much as [`Image::frames`].
    pub fn compiled_frames(&self, address: ImageAddress) -> Vec<CompiledFrame> {
        self.dwarf().compiled_frames(address, &|a| self.elf().is_code(a))
    }

    /// Returns file and line where the procedure at `address` begins. The innermost [`Frame`] there may belong to a line
    /// that the compiler moved up to the entry.
    pub fn procedure_line(&self, address: ImageAddress) -> Option<(Arc<str>, u32)> {
        self.dwarf().first_line(address, &|a| self.elf().is_code(a))
    }

    /// Returns file and line of the innermost of [`Image::frames`], but reads less.
    pub fn line_at(&self, address: ImageAddress) -> Option<(Arc<str>, u32)> {
        self.lines_at(std::iter::once(address)).pop()?
    }

    /// Returns [`Image::line_at`] of each address. This is fast if the addresses are neighbours.
    pub fn lines_at(&self, addresses: impl Iterator<Item = ImageAddress>) -> Vec<Option<(Arc<str>, u32)>> {
        self.dwarf().lines(addresses, &|a| self.elf().is_code(a))
    }

    /// Returns the source files of the code in `size_bytes` from `start`, each once.
    pub fn files_within(&self, start: ImageAddress, size_bytes: u64) -> Vec<Arc<str>> {
        let end = ImageAddress(start.0.saturating_add(size_bytes));
        self.dwarf().files_within(start, end, &|a| self.elf().is_code(a))
    }

    /// Returns whether code in `size_bytes` from `start` may come from a source file called `file_name` (without its
    /// folders); `false` only if its units list no such file. Reads no lines.
    pub fn may_be_of(&self, start: ImageAddress, size_bytes: u64, file_name: &str) -> bool {
        let end = ImageAddress(start.0.saturating_add(size_bytes));
        self.dwarf().may_be_of(start, end, file_name, &|a| self.elf().is_code(a))
    }

    /// Returns the approximate number of bytes of memory that the image occupies. Mapped files do not count.
    pub fn memory_bytes(&self) -> usize {
        let debug = self.debug.as_ref().map_or(0, |found| found.dwarf.memory_bytes());
        let symbols = self.data_symbols.get().map_or(0, DataSymbols::memory_bytes);
        self.own.memory_bytes()
            + debug
            + symbols
            + self.procedures.get().map_or(0, ProcedureTable::memory_bytes)
    }

    /// Returns the MD5 of the source file at `path` (as [`Frame::file`] spells it) when it was compiled, if DWARF 5 records
    /// it.
    pub fn source_md5(&self, path: &str) -> Option<[u8; 16]> {
        self.dwarf().source_md5(path, &|a| self.elf().is_code(a))
    }

    fn elf(&self) -> &Elf {
        self.own.elf()
    }

    fn dwarf(&self) -> &Dwarf {
        match &self.debug {
            Ok(found) if !self.elf().has_dwarf() => &found.dwarf,
            _ => &self.own,
        }
    }

    /// Returns why there is no debug information, and why the packed symbols cannot be used either.
    fn with_packed(&self, why: &str) -> String {
        let section = self.elf().section(minidebug::SECTION);
        match section.map(|section| minidebug::unpack(section.bytes(self.own.bytes()))) {
            Some(Err(packed)) => format!("{why}; {packed}"),
            _ => why.to_owned(),
        }
    }
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Image")
            .field("path", &self.path)
            .field("build_id", &self.build_id())
            .finish_non_exhaustive()
    }
}

/// Returns the build ID of a file; `None` if it is not an ELF file, has none, or cannot be read.
pub fn build_id_of_file(path: impl AsRef<Path>) -> Option<BuildId> {
    crate::elf_file::build_id(path.as_ref())
}

/// Returns the build ID among consecutive notes, such as those of the running kernel in /sys/kernel/notes.
pub fn build_id_in_notes(notes: &[u8]) -> Option<BuildId> {
    crate::elf::build_id_in(notes, 4)
}
