//! How the caller of one instruction is found, read from a file on request.
//!
//! Input: an image of x86-64 on disk. Output: the rule of an instruction. The file is not mapped, and only the entries that are
//! needed are read, so a program of 100 MB costs no more than the stacks that lead through it. Never here: a stack. A panic
//! on any input is a bug.

use std::{fs::File, ops::Range, sync::Arc};

use gimli::{BaseAddresses, DebugFrame, EhFrame, EndianSlice, LittleEndian, UnwindContext};
use object::read::ReadCache;

use crate::{
    Arch, Caller, CallerRbp, ImageAddress, ImageError, ImageOffset, UnwindRow,
    data::ReadAt,
    dwarf::uncompressed,
    elf::{Elf, Section},
    elf_file::ElfFile,
    unwind::{self, Unwind},
    unwind_rows::{all_rows, rule},
};

/// Largest `.debug_frame` that is read.
const DEBUG_FRAME_BYTES_MAX: u64 = 32 << 20;

/// The unwind information of an image.
pub struct UnwindRules {
    elf: Arc<Elf>,
    file: Arc<dyn ReadAt>,
    bases: BaseAddresses,
    /// The index of `.eh_frame`, if the linker wrote one.
    index: Unwind,
    /// Code of the linker that saves 8 bytes and has no unwind information: `.init` and `.fini`.
    hooks: Vec<Hook>,
    /// Whether the code is Go's, which keeps frame pointers everywhere.
    is_go: bool,
    /// All rows of `.eh_frame` without an index, or of `.debug_frame`, ascending.
    rows: Vec<UnwindRow>,
}

/// A function that is put together by the linker from the parts of `crti.o` and `crtn.o`: it lowers the stack pointer by 8,
/// calls, and raises it again.
struct Hook {
    code: Range<u64>,
    /// The part in which the stack pointer is lower.
    lowered: Range<u64>,
}

/// Returns the function of `.init` or `.fini`, if it has the usual form.
fn hook(file: &ElfFile, section: &Section) -> Option<Hook> {
    const ENDBR64: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa];
    const LOWER: &[u8] = &[0x48, 0x83, 0xec, 0x08];
    const RAISE_AND_RETURN: &[u8] = &[0x48, 0x83, 0xc4, 0x08, 0xc3];
    let code = file.section(section);
    let begin = if code.starts_with(ENDBR64) { ENDBR64.len() } else { 0 };
    let end = code.len().checked_sub(RAISE_AND_RETURN.len())?;
    let is_usual = code.get(begin..)?.starts_with(LOWER) && &code[end..] == RAISE_AND_RETURN;
    // Behind the last instruction but one, which raises it.
    let lowered = section.address + (begin + LOWER.len()) as u64..section.address + end as u64 + 1;
    is_usual.then_some(Hook { code: section.address..section.end(), lowered })
}

impl UnwindRules {
    /// Reads the headers of a file and the index of its unwind information.
    pub fn read(file: File) -> Result<UnwindRules, ImageError> {
        let elf = Elf::parse(&ReadCache::new(&file))?;
        UnwindRules::new(ElfFile::new(Arc::new(elf), Arc::new(file)))
    }

    /// Reads the unwind information of an image in memory: the vdso.
    pub fn parse(bytes: Vec<u8>) -> Result<UnwindRules, ImageError> {
        let elf = Elf::parse(&*bytes)?;
        let data: Arc<dyn ReadAt> = Arc::new(crate::data::Data::Memory(bytes));
        UnwindRules::new(ElfFile::new(Arc::new(elf), data))
    }

    fn new(file: ElfFile) -> Result<UnwindRules, ImageError> {
        if file.elf.arch != Arch::X86_64 {
            return Err(ImageError::Unsupported("stacks are unwound on x86-64 only".to_owned()));
        }
        let section = unwind::frames(&file.elf);
        let bases = section.map_or_else(BaseAddresses::default, |section| unwind::bases(&file.elf, section));
        let has_index = section.is_some() && file.elf.section(".eh_frame_hdr").is_some();
        let index = if has_index { Unwind::index(&file) } else { Unwind::none() };
        let mut rows = Vec::new();
        if index.entry_at(0).is_none()
            && let Some(section) = section
        {
            let bytes = file.section(section);
            rows = all_rows(&EhFrame::from(EndianSlice::new(&bytes, LittleEndian)), &bases, bytes.len());
        }
        if let Some(section) = file.elf.section(".debug_frame").filter(|s| s.size <= DEBUG_FRAME_BYTES_MAX) {
            let packed = file.section(section);
            let bytes = uncompressed(section, &packed).unwrap_or_default();
            let mut frames = DebugFrame::from(EndianSlice::new(&bytes, LittleEndian));
            frames.set_address_size(8);
            rows.extend(all_rows(&frames, &bases, bytes.len()));
            rows.sort_by_key(|row| (row.start, row.caller == Caller::Unknown));
            rows.dedup_by_key(|row| row.start);
        }
        let hooks = [".init", ".fini"].iter().filter_map(|name| hook(&file, file.elf.section(name)?));
        let (hooks, is_go) = (hooks.collect(), file.elf.section(".gopclntab").is_some());
        Ok(UnwindRules { file: file.reader(), elf: file.elf, bases, index, hooks, is_go, rows })
    }

    /// Returns how the caller of the instruction at an offset of the file is found; `None` if the file does not say.
    pub fn at(&self, offset: ImageOffset) -> Option<(Caller, CallerRbp)> {
        let address = self.elf.address_of_code(offset)?;
        let told = self.indexed(address.0).or_else(|| self.in_rows(address));
        told.filter(|rule| rule.0 != Caller::Unknown).or_else(|| self.in_hook(address.0))
    }

    /// Returns whether all code of the image keeps frame pointers, though no rule says so.
    pub fn keeps_frame_pointers(&self) -> bool {
        self.is_go
    }

    /// Returns the bytes of the file from an offset on; `None` if it has fewer.
    pub fn code<const N: usize>(&self, offset: ImageOffset) -> Option<[u8; N]> {
        let bytes = self.file.read_range(offset.0..offset.0.checked_add(N as u64)?)?;
        bytes.first_chunk().copied()
    }

    fn in_hook(&self, address: u64) -> Option<(Caller, CallerRbp)> {
        let hook = self.hooks.iter().find(|hook| hook.code.contains(&address))?;
        let saved = if hook.lowered.contains(&address) { 16 } else { 8 };
        Some((Caller::StackPointer(saved), CallerRbp::Unchanged))
    }

    fn indexed(&self, address: u64) -> Option<(Caller, CallerRbp)> {
        let (entries, entry) = self.index.entry_at(address)?;
        entries.with_entry(entry?, &self.bases, |frames, bases, entry| {
            if !entry.contains(address) {
                return None;
            }
            if entry.cie().is_signal_trampoline() {
                return Some((Caller::Signal, CallerRbp::Unchanged));
            }
            let mut context = UnwindContext::new();
            let row = entry.unwind_info_for_address(frames, bases, &mut context, address).ok()?;
            Some(rule(row, frames))
        })
    }

    fn in_rows(&self, address: ImageAddress) -> Option<(Caller, CallerRbp)> {
        let after = self.rows.partition_point(|row| row.start <= address);
        self.rows[..after].last().map(|row| (row.caller, row.rbp))
    }

    /// Returns the number of bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        size_of::<UnwindRules>() + self.index.memory_bytes() + self.rows.capacity() * size_of::<UnwindRow>()
    }
}
