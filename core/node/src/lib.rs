//! Dwell's answers for Node: conversion, threads and errors over `dwell_query`; the data stays in Rust.
//!
//! Enters: calls from JavaScript. Leaves: promises of plain objects, rejected with an error whose `code` is that of
//! `QueryError`. Never here: a judgement about profiles, work on Node's main thread, a panic that leaves a thread.

mod diff;
mod lines;
mod mirror;
mod requests;
mod summary;
mod task;
mod types;
mod watch;

use std::sync::{Arc, Mutex, PoisonError};

use dwell_query::{Query, answer, text_to_path};
use napi::bindgen_prelude::{AsyncTask, Result};
use napi_derive::napi;

use crate::{
    diff::{Diff, DiffRequest},
    lines::{FileChanges, LineDetail},
    mirror::Mirror,
    summary::{Stats, StatsRequest, Summary, SummaryRequest},
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
        let query =
            Query::open(requests::options(options)).map_err(|e| Failure::from(e).into_sync_error())?;
        Ok(Dwell { query: Arc::new(query), watch: Mutex::new(None) })
    }

    /// The database's epochs.
    #[napi(ts_return_type = "Promise<EpochList>")]
    pub fn epochs(&self, cancel: Option<&Cancel>) -> AsyncTask<Ask<answer::EpochList, EpochList>> {
        self.ask(cancel, |query, _| query.epochs())
    }

    /// The ids of the epochs that selectors name, oldest first; a selector that names none is left out.
    #[napi(ts_return_type = "Promise<string[]>")]
    pub fn selected_epochs(&self, selectors: Vec<String>) -> AsyncTask<Ask<Vec<String>, Vec<String>>> {
        self.ask(None, move |query, _| {
            Ok(query.selected_epochs(&selectors).iter().map(ToString::to_string).collect())
        })
    }

    /// Where the time went, most costly first.
    #[napi(ts_return_type = "Promise<Top>")]
    pub fn top(
        &self,
        request: TopRequest,
        cancel: Option<&Cancel>,
    ) -> Result<AsyncTask<Ask<answer::Top, Top>>, String> {
        let request = requests::top(request)?;
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
        self.ask(cancel, move |query, cancel| query.file_costs(&epochs, &text_to_path(&path), cancel))
    }

    /// One source line (from 1) of the file `path`, instruction by instruction.
    #[napi(ts_return_type = "Promise<LineDetail>")]
    pub fn line_detail(
        &self,
        epochs: Vec<String>,
        path: String,
        line: u32,
        cancel: Option<&Cancel>,
    ) -> AsyncTask<Ask<answer::LineDetail, LineDetail>> {
        self.ask(cancel, move |query, cancel| query.line_detail(&epochs, &text_to_path(&path), line, cancel))
    }

    /// What changed between two profiles.
    #[napi(ts_return_type = "Promise<Diff>")]
    pub fn diff(&self, request: DiffRequest, cancel: Option<&Cancel>) -> AsyncTask<Ask<answer::Diff, Diff>> {
        let request = requests::diff(request);
        self.ask(cancel, move |query, cancel| query.diff(&request, cancel))
    }

    /// What changed between two profiles in the source file `path`.
    #[napi(ts_return_type = "Promise<FileChanges>")]
    pub fn file_changes(
        &self,
        request: DiffRequest,
        path: String,
        cancel: Option<&Cancel>,
    ) -> AsyncTask<Ask<answer::FileChanges, FileChanges>> {
        let request = requests::diff(request);
        self.ask(cancel, move |query, cancel| query.file_changes(&request, &text_to_path(&path), cancel))
    }

    /// Where the cycles of a procedure, an image or everything go.
    #[napi(ts_return_type = "Promise<Summary>")]
    pub fn summary(
        &self,
        request: SummaryRequest,
        cancel: Option<&Cancel>,
    ) -> AsyncTask<Ask<answer::Summary, Summary>> {
        let request = requests::summary(request);
        self.ask(cancel, move |query, cancel| query.summary(&request, cancel))
    }

    /// How much procedures vary over several epochs, and whether two groups of epochs differ.
    #[napi(ts_return_type = "Promise<Stats>")]
    pub fn stats(
        &self,
        request: StatsRequest,
        cancel: Option<&Cancel>,
    ) -> AsyncTask<Ask<answer::Stats, Stats>> {
        let request = requests::stats(request);
        self.ask(cancel, move |query, cancel| query.stats(&request, cancel))
    }

    /// Names an epoch; its id.
    #[napi(ts_return_type = "Promise<string>")]
    pub fn rename_epoch(&self, epoch: String, name: String) -> AsyncTask<Ask<String, String>> {
        self.ask(None, move |query, _| query.rename_epoch(&epoch, &name).map(|id| id.to_string()))
    }

    /// Removes epochs for good; their ids. Whoever calls this has asked.
    #[napi(ts_return_type = "Promise<string[]>")]
    pub fn remove_epochs(&self, epochs: Vec<String>) -> AsyncTask<Ask<Vec<String>, Vec<String>>> {
        self.ask(None, move |query, _| {
            Ok(query.remove_epochs(&epochs)?.iter().map(ToString::to_string).collect())
        })
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

    fn ask<A: Mirror<J>, J>(
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
        AsyncTask::new(Ask::new(&self.query, cancel, A::mirror, question))
    }
}
