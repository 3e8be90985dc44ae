//! Landing pads: where the unwinder continues a function after an exception.
//!
//! Input: an image and an address of a function. Output: addresses. They come from the function's language-specific data
//! (`.gcc_except_table`), whose format gcc and LLVM share (Itanium C++ ABI, "Exception Handling Tables"). Never here: what is
//! caught.

use gimli::{
    BaseAddresses, CieOrFde, EhFrame, EndianSlice, LittleEndian, Pointer, Reader, UnwindSection, constants,
};

use crate::{ImageAddress, elf::Elf, elf_file::ElfFile, unwind};

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// Language-specific data of functions, by their start.
pub(crate) struct LandingPads {
    /// (start, address of the data), ascending.
    data: Vec<(ImageAddress, ImageAddress)>,
}

impl LandingPads {
    /// Reads all unwind entries.
    pub(crate) fn read(file: &ElfFile) -> LandingPads {
        let mut data = Vec::new();
        if let Some(section) = unwind::frames(&file.elf) {
            let bytes = file.section(section);
            let bases = unwind::bases(&file.elf, section);
            let frames = EhFrame::from(EndianSlice::new(&bytes, LittleEndian));
            let mut entries = frames.entries(&bases);
            while let Ok(Some(entry)) = entries.next() {
                data.extend(data_of(entry, &frames, &bases));
            }
        }
        data.sort_unstable();
        LandingPads { data }
    }

    /// Returns the landing pads of the function that starts at `start`. If the data cannot be read, the result is `None`.
    pub(crate) fn of(&self, elf: &Elf, bytes: &[u8], start: ImageAddress) -> Option<Vec<ImageAddress>> {
        let Ok(at) = self.data.binary_search_by_key(&start, |(start, _)| *start) else {
            return Some(Vec::new());
        };
        let address = self.data[at].1;
        let data = elf.loaded(bytes, address);
        landing_pads(EndianSlice::new(data, LittleEndian), address.0, start.0).ok()
    }
}

fn data_of<'a>(
    entry: CieOrFde<'_, EhFrame<Slice<'a>>, Slice<'a>>,
    frames: &EhFrame<Slice<'a>>,
    bases: &BaseAddresses,
) -> Option<(ImageAddress, ImageAddress)> {
    let CieOrFde::Fde(partial) = entry else { return None };
    let entry = partial.parse(|_, _, offset| frames.cie_from_offset(bases, offset)).ok()?;
    match entry.lsda()? {
        Pointer::Direct(address) => Some((ImageAddress(entry.initial_address()), ImageAddress(address))),
        Pointer::Indirect(_) => None,
    }
}

/// Parses the table of call sites.
fn landing_pads(mut data: Slice, address: u64, start: u64) -> gimli::Result<Vec<ImageAddress>> {
    let whole = data;
    let position = |rest: &Slice| address + rest.offset_from(whole) as u64;
    let base_encoding = data.read_u8()?;
    let base = if base_encoding == constants::DW_EH_PE_omit.0 {
        start
    } else {
        let at = position(&data);
        value(&mut data, base_encoding, at)?
    };
    if data.read_u8()? != constants::DW_EH_PE_omit.0 {
        data.read_uleb128()?; // Distance to the table of types.
    }
    let encoding = data.read_u8()?;
    let length = data.read_uleb128()?;
    let mut sites = data.split(usize::try_from(length).unwrap_or(usize::MAX))?;
    let mut pads = Vec::new();
    while !sites.is_empty() {
        for _ in 0..2 {
            value(&mut sites, encoding, 0)?; // Begin and length of the site.
        }
        let pad = value(&mut sites, encoding, 0)?;
        sites.read_uleb128()?; // The action.
        if pad != 0 {
            pads.push(ImageAddress(base.wrapping_add(pad)));
        }
    }
    pads.sort_unstable();
    pads.dedup();
    Ok(pads)
}

/// Reads an encoded value. `at` is its own address, for encodings that are relative to it.
fn value(data: &mut Slice, encoding: u8, at: u64) -> gimli::Result<u64> {
    let value = match gimli::DwEhPe(encoding & 0x0f) {
        constants::DW_EH_PE_absptr | constants::DW_EH_PE_udata8 | constants::DW_EH_PE_sdata8 => {
            data.read_u64()?
        }
        constants::DW_EH_PE_uleb128 => data.read_uleb128()?,
        constants::DW_EH_PE_udata2 => data.read_u16()?.into(),
        constants::DW_EH_PE_udata4 => data.read_u32()?.into(),
        constants::DW_EH_PE_sdata2 => i64::from(data.read_i16()?) as u64,
        constants::DW_EH_PE_sdata4 => i64::from(data.read_i32()?) as u64,
        other => return Err(gimli::Error::UnknownPointerEncoding(other)),
    };
    Ok(if encoding & 0x70 == 0x10 && value != 0 { at.wrapping_add(value) } else { value })
}
