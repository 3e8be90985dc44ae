//! Reads any bytes as `import` reads a file, for fuzzing and for the replay of its findings.
//!
//! Enters: any bytes. Leaves: nothing. Never here: a panic, whatever the bytes are; a database.

use std::io::Cursor;

use jiff::Timestamp;

use super::{
    ImportFile, header,
    imported::ImportedProfile,
    locate::Locator,
    otlp,
    packed::{self, Packing},
    perf_data, pprof, script,
};

/// Limit of the unpacked size of a compressed file, in bytes.
const UNPACKED_BYTES_MAX: u64 = 1 << 24;

/// Reads bytes as a perf.data file or stream, compressed or not, with branch stacks; then as a folder that consists of
/// the file and its records once more.
pub fn perf_data(bytes: &[u8]) {
    let mut unpacked = Vec::new();
    let packing = Packing::detect(bytes);
    if packing.is_some_and(|p| packed::pour(p, bytes, &mut unpacked, UNPACKED_BYTES_MAX).is_err()) {
        return;
    }
    let bytes = if packing.is_some() { &unpacked[..] } else { bytes };
    let mut file = Cursor::new(bytes);
    let Ok(header) = header::read(&mut file) else { return };
    let records = bytes.get(header.start as usize..).unwrap_or_default();
    for more in [Vec::new(), vec![(Cursor::new(records), records.len() as u64)]] {
        with_locator(|locator| perf_data::parse(file.clone(), &header, more, locator));
    }
}

/// Reads bytes as the text of `perf script`.
pub fn perf_script(bytes: &[u8]) {
    with_locator(|locator| script::read(bytes, locator));
}

/// Reads bytes as a profile of pprof.
pub fn pprof(bytes: &[u8]) {
    with_locator(|locator| pprof::read(bytes, locator));
}

/// Reads bytes as profiles of OpenTelemetry, in the form that they begin with and in every other one.
pub fn otlp(bytes: &[u8]) {
    let _ = otlp::Form::detect(bytes);
    for form in [otlp::Form::Protobuf, otlp::Form::Json, otlp::Form::Framed] {
        with_locator(|locator| otlp::read(bytes, form, locator));
    }
}

/// Calls `read` and turns what it read into the rows of an epoch.
fn with_locator(read: impl FnOnce(&Locator<'_>) -> Result<ImportedProfile, String>) {
    let request = ImportFile::default();
    let locator = Locator::new(&request, None, None);
    if let Ok(imported) = read(&locator) {
        imported.finish(&request, &locator, Timestamp::UNIX_EPOCH).rows.hand_out(usize::MAX, &mut |_| {});
    }
}
