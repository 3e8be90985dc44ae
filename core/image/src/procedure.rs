//! Symbols, PLT entries and unwind entries → procedures, sorted, one for each start address.
//!
//! Enters: an image and, where it was found, its debug file. Leaves: procedures that lie in executable sections and
//! have a size. Never here: DWARF; names are demangled only when asked for.

use std::sync::OnceLock;

use object::elf as raw;

use crate::demangle::demangle;
use crate::elf::{Elf, Section};
use crate::symbols::{self, Candidate, NameBudget};
use crate::{ImageAddress, plt, unwind};

/// A procedure of an image: a named, contiguous range of instructions.
#[derive(Clone, Debug)]
pub struct Procedure {
    /// The symbol's name, still mangled, without its version; `0x<address>` where only unwind information tells that
    /// there is a procedure; `<name>@plt` for a stub of the procedure linkage table.
    pub name: Box<str>,
    /// Other names of the same address.
    pub aliases: Box<[Box<str>]>,
    /// Its first instruction.
    pub address: ImageAddress,
    /// Its size; that of symbols without one reaches to the next procedure or the section's end. Never 0.
    pub size_bytes: u64,
    /// Its object file keeps the name to itself, so that others may have it too.
    pub is_local: bool,
    demangled: OnceLock<Box<str>>,
}

impl Procedure {
    fn new(sized: Sized) -> Self {
        Procedure {
            name: sized.name,
            aliases: sized.aliases.into(),
            address: ImageAddress(sized.address),
            size_bytes: sized.size,
            is_local: sized.local,
            demangled: OnceLock::new(),
        }
    }

    /// The name as the source spells it; worked out at the first call, since an image has up to a million.
    pub fn demangled(&self) -> &str {
        self.demangled.get_or_init(|| demangle(&self.name).into())
    }

    /// The address after its last byte.
    pub fn end(&self) -> ImageAddress {
        self.address.offset(self.size_bytes)
    }

    /// Whether `address` lies in it.
    pub fn contains(&self, address: ImageAddress) -> bool {
        address.0.checked_sub(self.address.0).is_some_and(|d| d < self.size_bytes)
    }
}

/// The procedures of an image, with what finds them by address.
#[derive(Debug, Default)]
pub(crate) struct Procedures {
    sorted: Vec<Procedure>,
    /// For each, the furthest end of those up to it: how far back a search must go where symbols overlap.
    furthest_end: Vec<u64>,
}

/// How many overlapping predecessors a look-up visits; only hostile files have more.
const OVERLAPS_MAX: usize = 256;

impl Procedures {
    /// Gathers them from the image and its debug file (`.symtab`, `.dynsym`, `.rela.plt`, `.eh_frame`).
    /// Time: O(n log n) in the number of symbols and unwind entries.
    pub(crate) fn gather(elf: &Elf, bytes: &[u8], debug: Option<(&Elf, &[u8])>) -> Procedures {
        let mut candidates = Vec::new();
        let mut budget = NameBudget::new(bytes.len() + debug.map_or(0, |(_, b)| b.len()));
        for (file, bytes) in [Some((elf, bytes)), debug].into_iter().flatten() {
            symbols::read(file, bytes, raw::SHT_SYMTAB, &mut budget, &mut candidates);
            symbols::read(file, bytes, raw::SHT_DYNSYM, &mut budget, &mut candidates);
        }
        candidates.retain(|c| code_end(elf, c.address).is_some());
        candidates.sort_unstable_by(|a, b| a.order().cmp(&b.order()));
        let stubs = plt::stubs(elf, bytes, &candidates);
        let mut procedures = merge(candidates);
        add_absent(&mut procedures, stubs);
        let unwind = unwind::ranges(elf, bytes);
        drop_labels(&mut procedures);
        size(elf, &mut procedures, &unwind);
        add_unnamed(elf, &mut procedures, &unwind);
        Procedures::sorted(procedures)
    }

    fn sorted(procedures: Vec<Sized>) -> Procedures {
        let finished = procedures.into_iter().filter(|p| p.size > 0);
        let sorted: Vec<Procedure> = finished.map(Procedure::new).collect();
        let furthest_end = sorted
            .iter()
            .scan(0, |furthest, p| {
                *furthest = p.end().0.max(*furthest);
                Some(*furthest)
            })
            .collect();
        Procedures { sorted, furthest_end }
    }

    pub(crate) fn all(&self) -> &[Procedure] {
        &self.sorted
    }

    /// Bytes of memory, about: names are counted by the average of many programs.
    pub(crate) fn memory_bytes(&self) -> usize {
        const NAME_BYTES: usize = 48;
        self.sorted.len() * (size_of::<Procedure>() + size_of::<u64>() + NAME_BYTES)
    }

    /// The innermost around `address`: of those that contain it, the one that starts last.
    pub(crate) fn at(&self, address: ImageAddress) -> Option<&Procedure> {
        let after = self.sorted.partition_point(|p| p.address <= address);
        let before = self.sorted[..after].iter().zip(&self.furthest_end).rev().take(OVERLAPS_MAX);
        before
            .take_while(|(_, furthest)| **furthest > address.0)
            .map(|(p, _)| p)
            .find(|p| p.contains(address))
    }
}

/// A procedure in the making; a size of 0 is not yet known.
struct Sized {
    address: u64,
    size: u64,
    label: bool,
    local: bool,
    name: Box<str>,
    aliases: Vec<Box<str>>,
}

/// One for each address; the first candidate of an address has the best name.
fn merge(candidates: Vec<Candidate>) -> Vec<Sized> {
    let mut merged: Vec<Sized> = Vec::new();
    for candidate in candidates {
        match merged.last_mut().filter(|p| p.address == candidate.address) {
            Some(same) => {
                same.size = same.size.max(candidate.size);
                same.label &= candidate.label;
                if same.name != candidate.name && same.aliases.last() != Some(&candidate.name) {
                    same.aliases.push(candidate.name);
                }
            }
            None => merged.push(Sized {
                address: candidate.address,
                size: candidate.size,
                label: candidate.label,
                local: candidate.is_local(),
                name: candidate.name,
                aliases: Vec::new(),
            }),
        }
    }
    merged
}

/// Adds those that start where none does yet.
fn add_absent(procedures: &mut Vec<Sized>, stubs: Vec<(u64, u64, String)>) {
    for (address, size, name) in stubs {
        let stub =
            Sized { address, size, label: false, local: false, name: name.into(), aliases: Vec::new() };
        procedures.push(stub);
    }
    // Stable: what was there comes first and stays.
    procedures.sort_by_key(|p| p.address);
    procedures.dedup_by_key(|p| p.address);
}

/// Untyped symbols within a procedure that has a size are labels of hand-written assembly, not procedures.
fn drop_labels(procedures: &mut Vec<Sized>) {
    let mut covered_to = 0;
    procedures.retain(|p| {
        let inside = p.label && p.size == 0 && p.address < covered_to;
        covered_to = covered_to.max(p.address.saturating_add(if p.label { 0 } else { p.size }));
        !inside
    });
}

/// Sizes of those without one: that of the unwind entry at the same start, else up to whatever comes next. No
/// procedure reaches past its section.
fn size(elf: &Elf, procedures: &mut [Sized], unwind: &[(u64, u64)]) {
    let mut next = u64::MAX;
    for procedure in procedures.iter_mut().rev() {
        let address = procedure.address;
        let end = code_end(elf, address).unwrap_or(address);
        if procedure.size == 0 {
            let after = unwind.partition_point(|(start, _)| *start <= address);
            let own = unwind[..after].last().filter(|(start, _)| *start == address);
            let next_unwind = unwind.get(after).map_or(u64::MAX, |(start, _)| *start);
            procedure.size = own.map_or(next_unwind - address, |(_, size)| *size).min(next - address);
        }
        procedure.size = procedure.size.min(end - address);
        next = address;
    }
}

/// Procedures that only unwind information knows: static ones of stripped files.
fn add_unnamed(elf: &Elf, procedures: &mut Vec<Sized>, unwind: &[(u64, u64)]) {
    let mut named = procedures.iter().peekable();
    let mut covered_to = 0;
    let mut unnamed = Vec::new();
    for &(start, size) in unwind {
        while let Some(procedure) = named.next_if(|p| p.address <= start) {
            covered_to = covered_to.max(procedure.address.saturating_add(procedure.size));
        }
        if start >= covered_to
            && let Some(end) = code_end(elf, start)
        {
            // One that starts before the next named procedure ends there.
            let next = named.peek().map_or(u64::MAX, |p| p.address);
            let size = size.min(end - start).min(next - start);
            covered_to = start + size;
            let name = format!("0x{start:x}").into();
            unnamed.push(Sized {
                address: start,
                size,
                label: false,
                local: true,
                name,
                aliases: Vec::new(),
            });
        }
    }
    procedures.append(&mut unnamed);
    procedures.sort_by_key(|p| p.address);
}

/// The end of the code around `address`: of its section, or of its segment where the file has no sections.
pub(crate) fn code_end(elf: &Elf, address: u64) -> Option<u64> {
    match elf.sections.is_empty() {
        false => elf.code_section(address).map(Section::end),
        true => {
            let segment = elf
                .segments
                .iter()
                .find(|s| s.executable && address.wrapping_sub(s.address) < s.memory_size)?;
            Some(segment.address.saturating_add(segment.memory_size))
        }
    }
}
