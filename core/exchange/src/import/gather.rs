//! Reads a profile of any known format, recognized by its first bytes and not by its name.
//!
//! Enters: a file to import. Leaves: the parts of an epoch, or what is wrong with the file. Never here: details of a
//! format.

use std::io::BufReader;

use jiff::Timestamp;

use super::{
    Gathered, ImportFile, header,
    imported::ImportedProfile,
    locate::Locator,
    otlp,
    packed::Packing,
    perf_data::parse,
    pprof, script,
    source::{self, Source},
};
use crate::{Debuginfod, ExchangeError};

/// Reads a whole file and returns the parts of an epoch.
pub fn gather(
    request: &ImportFile,
    debuginfod: Option<&Debuginfod>,
    now: Timestamp,
) -> Result<Gathered, ExchangeError> {
    let path = &request.path;
    let io = |source| ExchangeError::Io { path: path.clone(), source };
    let bad = |why: String| ExchangeError::BadPerfData { path: path.clone(), why };
    let source = source::open(path)?;
    let written = source.file.metadata().ok().and_then(|m| m.modified().ok());
    let locator = Locator::new(request, debuginfod, written);
    let (is_folder, ends_early) = (source.is_folder, source.ends_early.clone());
    let mut imported = match others(source, &locator) {
        Ok((Kind::Known, imported)) => imported.map_err(bad)?,
        Ok((Kind::Otlp, imported)) => {
            imported.map_err(|why| ExchangeError::BadOtlp { path: path.clone(), why })?
        }
        Err(Source { mut file, folder, .. }) => {
            let header = header::read(&mut file).map_err(bad)?;
            let in_parts = is_folder || header.features.is_folder();
            let more = if in_parts { source::parts(&folder).map_err(io)? } else { Vec::new() };
            // A bug of the parser must not end a session: its panic becomes an error about the file.
            let parse = std::panic::AssertUnwindSafe(|| parse(file, &header, more, &locator));
            let imported = std::panic::catch_unwind(parse);
            imported.unwrap_or_else(|_| Err("the parser failed".to_owned())).map_err(bad)?
        }
    };
    if ends_early.is_some() {
        imported.cut = ends_early;
    }
    if imported.events.iter().all(|e| e.samples == 0) {
        return Err(ExchangeError::NoSamples { path: path.clone(), why: imported.why_empty() });
    }
    Ok(imported.finish(request, &locator, now))
}

/// Whose format a file has, for the error.
enum Kind {
    Known,
    Otlp,
}

/// Reads profiles of OpenTelemetry, the text of `perf script` or a profile of pprof; returns the source if it is none of them.
fn others(source: Source, locator: &Locator<'_>) -> Result<(Kind, Result<ImportedProfile, String>), Source> {
    let start = &source.start;
    if header::is_perf_data(start) {
        return Err(source);
    }
    if let Some(form) = otlp::Form::detect(start) {
        let whole = source.ends_early.clone().map_or(Ok(()), Err);
        return Ok((Kind::Otlp, whole.and_then(|()| otlp::read(source.file, form, locator))));
    }
    let was_gzip = source.packing == Some(Packing::Gzip);
    let read = match () {
        () if script::is_text(start) && !start.starts_with(b"\n") => {
            Ok(script::read(BufReader::new(source.file), locator))
        }
        // A profile that is not compressed is recognized only by the tag of its first field.
        () if was_gzip || pprof::is_pprof(start) => {
            let why = |why| if was_gzip { format!("unpacked by gzip, {why}") } else { why };
            Ok(pprof::read(source.file, locator).map_err(why))
        }
        () => Err(source),
    };
    read.map(|imported| (Kind::Known, imported))
}
