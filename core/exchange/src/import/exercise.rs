//! Bytes read as `import` reads a file's, for fuzzing and what it found.
//!
//! Enters: any bytes. Leaves: nothing. Never here: a panic, whatever they are; a database.

use std::io::Cursor;

use jiff::Timestamp;

use super::{
    ImportFile, header,
    imported::ImportedProfile,
    locate::Locator,
    packed::{self, Packing},
    perf_data, pprof, script,
};

/// A compressed file becomes that large at most.
const UNPACKED_BYTES_MAX: u64 = 1 << 24;

/// A perf.data file or stream, compressed or not, branch stacks and all; a folder of it and once more its records.
pub fn perf_data(bytes: &[u8]) {
    let mut unpacked = Vec::new();
    let packing = Packing::of(bytes);
    if packing.is_some_and(|p| packed::pour(p, bytes, &mut unpacked, UNPACKED_BYTES_MAX).is_err()) {
        return;
    }
    let bytes = if packing.is_some() { &unpacked[..] } else { bytes };
    let mut file = Cursor::new(bytes);
    let Ok(header) = header::read(&mut file) else { return };
    let records = bytes.get(header.start as usize..).unwrap_or_default();
    for more in [Vec::new(), vec![(Cursor::new(records), records.len() as u64)]] {
        with_locator(|_| perf_data::parse(file.clone(), &header, more, &ImportFile::default()));
    }
}

/// The text of `perf script`.
pub fn perf_script(bytes: &[u8]) {
    with_locator(|locator| script::read(bytes, locator));
}

/// A profile of pprof's.
pub fn pprof(bytes: &[u8]) {
    with_locator(|locator| pprof::read(bytes, locator));
}

/// Reads, and makes an epoch's rows of what was read.
fn with_locator(read: impl FnOnce(&Locator<'_>) -> Result<ImportedProfile, String>) {
    let request = ImportFile::default();
    let locator = Locator::new(&request, None, None);
    if let Ok(told) = read(&locator) {
        told.finish(&request, &locator, Timestamp::UNIX_EPOCH).rows.hand_out(usize::MAX, &mut |_| {});
    }
}
