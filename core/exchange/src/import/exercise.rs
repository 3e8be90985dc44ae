//! Bytes read as `import` reads a file's, for fuzzing and what it found.
//!
//! Enters: any bytes. Leaves: nothing. Never here: a panic, whatever they are; a database.

use std::io::Cursor;

use jiff::Timestamp;

use super::{ImportFile, guard, locate::Locator, perf_data, perf_data::Told, pprof, script};

/// A perf.data file or stream, branch stacks and all.
pub fn perf_data(bytes: &[u8]) {
    let mut file = Cursor::new(bytes);
    let Ok(shape) = guard::check(&mut file) else { return };
    file.set_position(0);
    with_locator(|_| perf_data::parse(file, shape, &ImportFile::default()));
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
fn with_locator(read: impl FnOnce(&Locator<'_>) -> Result<Told, String>) {
    let request = ImportFile::default();
    let locator = Locator::new(&request, None, None);
    if let Ok(told) = read(&locator) {
        told.finish(&request, &locator, Timestamp::UNIX_EPOCH).rows.hand_out(usize::MAX, &mut |_| {});
    }
}
