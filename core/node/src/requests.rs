//! Requests of JavaScript, converted to those of `dwell_query`.
//!
//! Enters: plain objects. Leaves: requests, where a value that was left out has the default of `dwell_query`. Never here: an
//! answer.

use std::{path::PathBuf, time::Duration};

use dwell_fleet::FleetError;
use dwell_query::{Detail, Direction, Normalize, Options, SampleFilter, TopBy};
use dwell_sql::Question;
use napi::bindgen_prelude::{Error, Result};
use napi_derive::napi;

/// Options of `Dwell.open`.
#[napi(object)]
pub struct OpenOptions {
    /// Folder of the profile database, or `s3://BUCKET/PREFIX`.
    pub database: String,
    /// Folders with separate debug files, in addition to those of the system.
    pub debug_dirs: Option<Vec<String>>,
    /// Pairs of a folder of sources, as the debug information spells it, and its place on this machine. The first pair that
    /// matches counts.
    #[napi(ts_type = "Array<[string, string]>")]
    pub source_map: Option<Vec<Vec<String>>>,
}

/// Request for a ranking.
#[napi(object)]
pub struct TopRequest {
    /// Selectors of the epochs to merge: ids, names, `latest`, `latest~N`.
    pub epochs: Vec<String>,
    /// Dimension that the rows are grouped by; `procedure` by default.
    #[napi(ts_type = "'procedure' | 'image' | 'line' | 'app'")]
    pub by: Option<String>,
    /// Only samples of this application (the name of its executable).
    pub app: Option<String>,
    /// Number of the most costly rows to skip.
    pub offset: Option<u32>,
    /// Largest number of rows to return after those.
    pub limit: Option<u32>,
    /// By procedure: whether to leave out CPI, file and line, which take long to compute.
    pub bare: Option<bool>,
    /// Limits the samples to images whose path, file name or id contains this text.
    pub image: Option<String>,
    /// By procedure: whether to include the parts of the cycles of each row.
    pub split: Option<bool>,
}

/// Request for a comparison of two profiles.
#[napi(object)]
pub struct DiffRequest {
    /// Selectors of the epochs before the change.
    pub a: Vec<String>,
    /// Selectors of the epochs after the change.
    pub b: Vec<String>,
    /// Limits the comparison to one procedure (`NAME` or `IMAGE:NAME`) and adds its instructions.
    pub procedure: Option<String>,
    /// What both profiles are assumed to have in common: `run` (the default), `time`, `samples`, or the name of a procedure
    /// that did the same work in both.
    pub normalize: Option<String>,
    /// Whether to include changes that may be chance.
    pub all: Option<bool>,
    /// Largest number of procedures and of lines.
    pub limit: Option<u32>,
}

/// Request for a summary of everything, or of a part.
#[napi(object)]
pub struct SummaryRequest {
    /// Selectors of the epochs to merge.
    pub epochs: Vec<String>,
    /// Limits the summary to this procedure.
    pub procedure: Option<String>,
    /// Limits the summary to images whose path, file name or id contains this text.
    pub image: Option<String>,
    /// Limits the summary to the samples in this function (`NAME` or `BINARY:NAME`) and in what it calls, by their call stacks.
    pub under: Option<String>,
}

/// One call on the way from a function to its callers or callees.
#[napi(object)]
pub struct CallStep {
    /// Demangled name of the caller or callee.
    pub function: String,
    /// File name of its binary.
    pub image: String,
    /// Whether the call is inlined.
    pub inlined: bool,
}

/// Request for who calls a function, or what it calls.
#[napi(object)]
pub struct CallersRequest {
    /// Selectors of the epochs to merge.
    pub epochs: Vec<String>,
    /// The function: `NAME` or `IMAGE:NAME`.
    pub function: String,
    /// What the function calls, instead of who calls it.
    pub callees: Option<bool>,
    /// The way to the rows, from the function on; the rows are those that follow it.
    pub through: Option<Vec<CallStep>>,
    /// Number of levels; 6 by default.
    pub depth: Option<u32>,
    /// Least share of the function's samples, 0 to 1; rows with a smaller share are left out. 0.01 by default.
    pub share_min: Option<f64>,
}

/// Request for all call stacks as one tree.
#[napi(object)]
pub struct FlameRequest {
    /// Selectors of the epochs to merge.
    pub epochs: Vec<String>,
    /// Events whose stacks are in the tree; none: the event of time.
    pub events: Option<Vec<String>>,
    /// Number of the largest frames that are kept apart; 20,000 by default.
    pub frames: Option<u32>,
    /// Whether to leave out the analysis of functions, which takes long to compute.
    pub bare: Option<bool>,
}

/// Request for statistics over several sets of samples.
#[napi(object)]
pub struct StatsRequest {
    /// Sets of samples: one epoch each.
    pub epochs: Vec<String>,
    /// Sets that those are compared against.
    pub against: Option<Vec<String>>,
    /// What the sets are assumed to have in common, as in `DiffRequest`.
    pub normalize: Option<String>,
    /// Largest number of rows.
    pub limit: Option<u32>,
    /// Least share of all samples, 0 to 1; procedures with a smaller share are left out.
    pub share_min: Option<f64>,
    /// Limits the rows to procedures of images whose path, file name or id contains this text.
    pub image: Option<String>,
}

/// Request for the rows of a query in SQL.
#[napi(object)]
pub struct SqlRequest {
    /// The text of one query.
    pub query: String,
    /// Largest number of rows to return; 1,000 by default.
    pub limit: Option<u32>,
    /// Time that the query may take, in seconds; 60 by default.
    pub seconds: Option<u32>,
    /// File of the program that asks. DuckDB's library is looked for beside it and in `node_modules` above it.
    pub program: String,
}

/// Converts the options of a database, which is opened.
pub fn options(options: OpenOptions) -> std::result::Result<Options, FleetError> {
    let place = options.database.as_ref();
    let mut all = Options::on(dwell_fleet::open(place)?);
    all.service = dwell_fleet::Location::service_in(place);
    all.debug_dirs.extend(options.debug_dirs.unwrap_or_default().into_iter().map(PathBuf::from));
    let pairs = options.source_map.unwrap_or_default();
    all.source_map = pairs.into_iter().filter_map(|p| Some((p.first()?.into(), p.get(1)?.into()))).collect();
    Ok(all)
}

/// Converts a request for a ranking. Fails if `by` is unknown.
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
        filter: SampleFilter { app: request.app, ..SampleFilter::default() },
        offset: request.offset.unwrap_or(0) as usize,
        detail: match (request.bare, request.split) {
            (Some(true), _) => Detail::Samples,
            (_, Some(true)) => Detail::FullWithCycles,
            _ => Detail::Full,
        },
        ..dwell_query::TopRequest::default()
    })
}

/// Converts a request for a comparison.
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

/// Converts a request for callers or callees.
pub fn callers(request: CallersRequest) -> dwell_query::CallersRequest {
    let is_inwards = request.callees.unwrap_or(false);
    let step = |CallStep { function, image, inlined }| dwell_query::CallStep { function, image, inlined };
    dwell_query::CallersRequest {
        epochs: request.epochs,
        function: request.function,
        direction: if is_inwards { Direction::Callees } else { Direction::Callers },
        event: None,
        through: request.through.unwrap_or_default().into_iter().map(step).collect(),
        depth: request.depth.unwrap_or(6) as usize,
        share_min: request.share_min.unwrap_or(0.01),
        filter: SampleFilter::default(),
    }
}

/// Converts a request for all call stacks.
pub fn flame(request: FlameRequest) -> dwell_query::FlameRequest {
    dwell_query::FlameRequest {
        epochs: request.epochs,
        events: request.events.unwrap_or_default(),
        filter: SampleFilter::default(),
        nodes_max: request.frames.unwrap_or(20_000) as usize,
        analyse: !request.bare.unwrap_or(false),
    }
}

/// Converts a request for a summary.
pub fn summary(request: SummaryRequest) -> dwell_query::SummaryRequest {
    let SummaryRequest { epochs, procedure, image, under } = request;
    dwell_query::SummaryRequest { epochs, procedure, image, under }
}

/// Converts a request for statistics.
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

/// Converts a request for the rows of a query.
pub fn sql(request: SqlRequest) -> Question {
    Question {
        text: request.query,
        rows_max: request.limit.unwrap_or(1000) as usize,
        time_max: Duration::from_secs(request.seconds.unwrap_or(60).into()),
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
