//! Dwell's answers for Node: conversion, threads and errors over `dwell_query`; the data stays in Rust.
//!
//! Enters: calls from JavaScript. Leaves: promises of plain objects, rejected with an error whose `code` is that of
//! `QueryError`. Never here: a judgement about profiles, work on Node's main thread, a panic that leaves a thread.

mod convert;
mod task;
mod types;
mod watch;

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use dwell_query::{Options, Query, TopBy, answer};
use napi::bindgen_prelude::{AsyncTask, Error, Result};
use napi_derive::napi;

use crate::{
    task::{Ask, Failure},
    types::{EpochList, FileCosts, Listing, OpenOptions, Top, TopRequest},
    watch::{OnChange, Watch},
};

/// Gives up one or several calls: their promises reject with code `cancelled`.
#[napi]
#[derive(Default)]
pub struct Cancel(dwell_query::Cancel);

#[napi]
impl Cancel {
    /// Nothing is cancelled yet.
    #[napi(constructor)]
    pub fn new() -> Self {
        Self::default()
    }

    /// Cancels, for good.
    #[napi]
    pub fn cancel(&self) {
        self.0.cancel();
    }
}

/// A profile database, open for questions.
#[napi]
pub struct Dwell {
    query: Arc<Query>,
    watch: Mutex<Option<Watch>>,
}

#[napi]
impl Dwell {
    /// Opens a database; throws an error with a `code` when there is none to read.
    #[napi(factory, catch_unwind)]
    pub fn open(options: OpenOptions) -> Result<Dwell, String> {
        let query = Query::open(query_options(options)).map_err(|e| Failure::from(e).into_sync_error())?;
        Ok(Dwell { query: Arc::new(query), watch: Mutex::new(None) })
    }

    /// The database's epochs.
    #[napi(ts_return_type = "Promise<EpochList>")]
    pub fn epochs(&self, cancel: Option<&Cancel>) -> AsyncTask<Ask<answer::EpochList, EpochList>> {
        self.ask(cancel, |query, _| query.epochs())
    }

    /// Where the time went, most costly first.
    #[napi(ts_return_type = "Promise<Top>")]
    pub fn top(
        &self,
        request: TopRequest,
        cancel: Option<&Cancel>,
    ) -> Result<AsyncTask<Ask<answer::Top, Top>>, String> {
        let request = top_request(request)?;
        Ok(self.ask(cancel, move |query, cancel| query.top(&request, cancel)))
    }

    /// A procedure's instructions with their costs; `procedure` is `NAME` or `IMAGE:NAME`.
    #[napi(ts_return_type = "Promise<Listing>")]
    pub fn listing(
        &self,
        epochs: Vec<String>,
        procedure: String,
        cancel: Option<&Cancel>,
    ) -> AsyncTask<Ask<answer::Listing, Listing>> {
        self.ask(cancel, move |query, cancel| query.listing(&epochs, &procedure, cancel))
    }

    /// What the lines of the source file `path` cost.
    #[napi(ts_return_type = "Promise<FileCosts>")]
    pub fn file_costs(
        &self,
        epochs: Vec<String>,
        path: String,
        cancel: Option<&Cancel>,
    ) -> AsyncTask<Ask<answer::FileCosts, FileCosts>> {
        self.ask(cancel, move |query, cancel| query.file_costs(&epochs, path.as_ref(), cancel))
    }

    /// Changes whenever the database does.
    #[napi(ts_return_type = "Promise<string>")]
    pub fn generation(&self) -> AsyncTask<Ask<String, String>> {
        let cancel = dwell_query::Cancel::new();
        AsyncTask::new(Ask::new(&self.query, cancel, |s| s, |query, _| Ok(query.generation().to_string())))
    }

    /// Calls `callback` within a second of each change of the database. A later call replaces the callback.
    #[napi(ts_args_type = "callback: () => void")]
    pub fn watch(&self, callback: OnChange) {
        self.set_watch(Some(Watch::start(self.query.clone(), callback)));
    }

    /// Ends watching.
    #[napi]
    pub fn unwatch(&self) {
        self.set_watch(None);
    }

    fn set_watch(&self, watch: Option<Watch>) {
        *self.watch.lock().unwrap_or_else(PoisonError::into_inner) = watch;
    }

    fn ask<A, J: From<A>>(
        &self,
        cancel: Option<&Cancel>,
        question: impl FnOnce(&Query, &dwell_query::Cancel) -> std::result::Result<A, dwell_query::QueryError>
        + Send
        + 'static,
    ) -> AsyncTask<Ask<A, J>>
    where
        Ask<A, J>: napi::Task,
    {
        let cancel = cancel.map(|c| c.0.clone()).unwrap_or_default();
        AsyncTask::new(Ask::new(&self.query, cancel, J::from, question))
    }
}

fn query_options(options: OpenOptions) -> Options {
    let mut all = Options::for_database(options.database);
    all.debug_dirs.extend(options.debug_dirs.unwrap_or_default().into_iter().map(PathBuf::from));
    all
}

fn top_request(request: TopRequest) -> Result<dwell_query::TopRequest, String> {
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
    })
}
