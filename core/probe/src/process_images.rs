//! The images of a process, with what probes need of them.
//!
//! Enters: a process. Leaves: each mapped image with its unwind table, and the code of functions. Files are opened through the
//! process's own mappings, so containers and deleted files make no difference.

use std::sync::OnceLock;

use dwell_image::{Image, ImageAddress, ImageError, ImageOffset, Procedure};
use dwell_profile::Pid;

use crate::{
    ProbeError,
    patch::{from_image::function_codes, function_code::FunctionCode, plan::Refusal},
    process::procfs::{Mapping, mappings},
    shared_memory::MappedTable,
    unwind_table::UnwindTable,
};

/// An executable mapping of an image.
pub struct MappedImage {
    /// The mapping.
    pub mapping: Mapping,
    /// The image.
    pub image: Image,
    /// What is added to an image address to get the address in the process.
    pub bias: u64,
    table: OnceLock<UnwindTable>,
}

impl MappedImage {
    fn open(pid: Pid, mapping: Mapping) -> Result<Option<Self>, ImageError> {
        let linked = format!("/proc/{pid}/map_files/{:x}-{:x}", mapping.start, mapping.end);
        let named = format!("/proc/{pid}/root{}", mapping.path);
        let image = Image::open(linked).or_else(|_| Image::open(named))?;
        let Some(first) = image.address_of(ImageOffset(mapping.offset)) else { return Ok(None) };
        let bias = mapping.start.wrapping_sub(first.0);
        Ok(Some(MappedImage { mapping, image, bias, table: OnceLock::new() }))
    }

    /// Returns the unwind table and where it is mapped. The first call makes it.
    pub fn table(&self) -> MappedTable<'_> {
        let Mapping { start, end, .. } = self.mapping;
        let make = || UnwindTable::new(&self.image.unwind_rows(), start.wrapping_sub(self.bias), end - start);
        MappedTable { start, end, table: self.table.get_or_init(make) }
    }

    /// Returns the procedure around an address of the process.
    pub fn procedure_at(&self, address: u64) -> Option<Procedure<'_>> {
        self.image.procedure_at(ImageAddress(address.wrapping_sub(self.bias)))
    }

    /// Reads the code of procedures.
    pub fn codes(&self, procedures: &[Procedure]) -> Vec<Result<FunctionCode, Refusal>> {
        function_codes(&self.image, procedures, self.bias)
    }
}

/// Opens the images of a process, ascending. Files that are no images, or cannot be read, are left out: paths end there.
pub fn process_images(pid: Pid) -> Result<Vec<MappedImage>, ProbeError> {
    let mappings = mappings(pid).map_err(|source| match source.raw_os_error() {
        Some(libc::ENOENT | libc::ESRCH) => ProbeError::Gone(pid),
        _ => ProbeError::NotPermitted { pid, source },
    })?;
    let executable = mappings.into_iter().filter(|mapping| mapping.is_executable && mapping.file.is_some());
    Ok(executable.filter_map(|mapping| MappedImage::open(pid, mapping).ok().flatten()).collect())
}
