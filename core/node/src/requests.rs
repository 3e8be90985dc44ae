//! From the requests that JavaScript makes to the core's; what is left out has the core's default.

use std::path::PathBuf;

use dwell_query::{Detail, Normalize, Options, TopBy};
use napi::bindgen_prelude::{Error, Result};

use crate::{
    diff::DiffRequest,
    summary::{StatsRequest, SummaryRequest},
    types::{OpenOptions, TopRequest},
};

/// Where to look.
pub fn options(options: OpenOptions) -> Options {
    let mut all = Options::for_database(options.database);
    all.kernel_text = false; // JavaScript's numbers cannot represent its addresses exactly.
    all.debug_dirs.extend(options.debug_dirs.unwrap_or_default().into_iter().map(PathBuf::from));
    let pairs = options.source_map.unwrap_or_default();
    all.source_map = pairs.into_iter().filter_map(|p| Some((p.first()?.into(), p.get(1)?.into()))).collect();
    all
}

/// A ranking; `by` must be known.
pub fn top(request: TopRequest) -> Result<dwell_query::TopRequest, String> {
    let by = match request.by.as_deref().unwrap_or("procedure") {
        "procedure" => TopBy::Procedure,
        "image" => TopBy::Image,
        "line" => TopBy::Line,
        "app" => TopBy::App,
        "instance" => TopBy::Instance,
        other => {
            let why = format!("by '{other}': unknown: name procedure, image, line, app or instance");
            return Err(Error::new("bad-request".to_owned(), why));
        }
    };
    Ok(dwell_query::TopRequest {
        epochs: request.epochs,
        by,
        limit: request.limit.map(|n| n as usize),
        image: request.image,
        offset: request.offset.unwrap_or(0) as usize,
        detail: match (request.bare, request.split) {
            (Some(true), _) => Detail::Samples,
            (_, Some(true)) => Detail::FullWithCycles,
            _ => Detail::Full,
        },
        ..dwell_query::TopRequest::default()
    })
}

/// A comparison.
pub fn diff(request: DiffRequest) -> dwell_query::DiffRequest {
    dwell_query::DiffRequest {
        a: request.a,
        b: request.b,
        procedure: request.procedure,
        normalize: normalize(request.normalize),
        all: request.all.unwrap_or(false),
        limit: request.limit.map(|n| n as usize),
    }
}

/// A summary.
pub fn summary(request: SummaryRequest) -> dwell_query::SummaryRequest {
    dwell_query::SummaryRequest { epochs: request.epochs, procedure: request.procedure, image: request.image }
}

/// Statistics.
pub fn stats(request: StatsRequest) -> dwell_query::StatsRequest {
    dwell_query::StatsRequest {
        epochs: request.epochs,
        against: request.against.unwrap_or_default(),
        normalize: normalize(request.normalize),
        limit: request.limit.map(|n| n as usize),
        share_min: request.share_min.unwrap_or(0.0),
        image: request.image,
    }
}

fn normalize(by: Option<String>) -> Normalize {
    match by.as_deref() {
        None | Some("run") => Normalize::Run,
        Some("time") => Normalize::Time,
        Some("samples") => Normalize::Samples,
        Some(procedure) => Normalize::Procedure(procedure.to_owned()),
    }
}
