//! Entries of the symbol tables `.symtab` and `.dynsym`.

use object::elf as raw;

use crate::elf::Elf;
use crate::{Arch, ImageAddress};

/// Largest length of a name. The search for the end of a name stops there, so that many symbols that share one long string
/// cost little.
pub(crate) const NAME_BYTES_MAX: usize = 16 << 10;
pub(crate) const SYMBOL_BYTES: usize = 24;

/// Number of bytes of names that may still be copied. All symbols of a hostile file may share one long string.
pub(crate) struct NameBudget(usize);

impl NameBudget {
    /// Creates the budget for a file. Real string tables share suffixes, so the names together are a little longer than the
    /// table.
    pub(crate) fn new(file_bytes: usize) -> Self {
        NameBudget(file_bytes.saturating_mul(4).saturating_add(1 << 16))
    }

    pub(crate) fn take(&mut self, bytes: usize) -> bool {
        let enough = self.0 >= bytes;
        self.0 = self.0.saturating_sub(bytes);
        enough
    }
}

/// Returns the address of the first symbol of that name in `.symtab`.
pub(crate) fn address_of(elf: &Elf, bytes: &[u8], wanted: &str) -> Option<ImageAddress> {
    elf.sections.iter().filter(|s| s.kind == raw::SHT_SYMTAB).find_map(|table| {
        let strings = elf.sections.get(table.link)?.bytes(bytes);
        let is_it = |symbol: &&[u8]| {
            le32(symbol, 0).and_then(|at| strings.get(at as usize..)).is_some_and(|name| {
                name.strip_prefix(wanted.as_bytes()).is_some_and(|rest| rest.first() == Some(&0))
            })
        };
        le64(table.bytes(bytes).chunks_exact(SYMBOL_BYTES).find(is_it)?, 8).map(ImageAddress)
    })
}

/// For a symbol that may name code, returns whether it has no type, and its section. Returns `None` for a symbol that names
/// data or is defined elsewhere.
pub(crate) fn names_code(symbol: &[u8]) -> Option<(bool, u16)> {
    let (info, section) = (*symbol.get(4)?, u16::from_le_bytes([*symbol.get(6)?, *symbol.get(7)?]));
    let kind = info & 15;
    let label = kind == raw::STT_NOTYPE.0;
    let code = label || kind == raw::STT_FUNC.0 || kind == raw::STT_GNU_IFUNC.0;
    (section != 0 && code).then_some((label, section))
}

/// Rank of an exported symbol.
pub(crate) const RANK_BEST: u8 = 3;

/// Returns the rank of a symbol: exported ones are best, then global, weak and local ones (rank 0).
pub(crate) fn rank_of(symbol: &[u8], exported: bool) -> u8 {
    let binding = symbol.get(4).map_or(0, |info| usize::from(info >> 4));
    if exported { RANK_BEST } else { [0, 2, 1].get(binding).copied().unwrap_or(1) }
}

/// Returns whether a name is a mapping symbol (`$x`, `$d`), which marks code and data for disassemblers, or a label of the
/// assembler (`.L…`).
pub(crate) fn is_mapping_symbol(arch: Arch, name: &str) -> bool {
    name.starts_with(".L") || !matches!(arch, Arch::X86_64 | Arch::X86) && name.starts_with('$')
}

/// Returns the name at the beginning of these bytes.
pub(crate) fn name_in(bytes: &[u8]) -> Option<&str> {
    let window = &bytes[..bytes.len().min(NAME_BYTES_MAX)];
    let end = window.iter().position(|b| *b == 0)?;
    let name = std::str::from_utf8(&window[..end]).ok()?;
    let name = name.split_once('@').map_or(name, |(name, _)| name);
    (!name.is_empty()).then_some(name)
}

pub(crate) fn le32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

pub(crate) fn le64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}
