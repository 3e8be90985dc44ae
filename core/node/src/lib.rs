//! Dwell's answers for Node: threads, errors and conversion around `dwell_query`; the data stays in Rust.
//!
//! Enters: calls from JavaScript. Leaves: promises of answers, whose fields are those of the command line's JSON with signed
//! addresses (`json`), or of an error whose `code` is that of `QueryError`. Never here: a judgement about profiles, work on Node's main thread, a panic
//! that leaves a thread.

mod json;
mod requests;
mod sql;
mod task;
mod watch;

use std::sync::{Arc, Mutex, PoisonError};

use dwell_query::{Options, Query, QueryError, SampleFilter, text_to_path};
use napi::bindgen_prelude::{AsyncTask, Result};
use napi_derive::napi;
use serde::Serialize;

use crate::{
    requests::{
        CallersRequest, DiffRequest, FlameRequest, OpenOptions, SqlRequest, StatsRequest, SummaryRequest,
        TopRequest,
    },
    task::{Ask, Failure},
    watch::{OnChange, Watch},
};

/// Cancels the calls that it is passed to: their promises reject with the code `cancelled`.
#[napi]
#[derive(Default)]
pub struct Cancel(dwell_query::Cancel);

#[napi]
impl Cancel {
    /// Makes a token that cancels nothing yet.
    #[napi(constructor)]
    pub fn new() -> Self {
        Self::default()
    }

    /// Cancels all calls that have this token, now and later.
    #[napi]
    pub fn cancel(&self) {
        self.0.cancel();
    }
}

/// A profile database, open for questions.
#[napi]
pub struct Dwell {
    query: Arc<Query>,
    options: Options,
    watch: Mutex<Option<Watch>>,
}

#[napi]
impl Dwell {
    /// Opens a database. Throws an error with a `code` if there is none that can be read.
    #[napi(factory, catch_unwind)]
    pub fn open(options: OpenOptions) -> Result<Dwell, String> {
        let options = requests::options(options).map_err(|e| Failure::from(e).into_sync_error())?;
        let query = Query::open(options.clone()).map_err(|e| Failure::from(e).into_sync_error())?;
        Ok(Dwell { query: Arc::new(query), options, watch: Mutex::new(None) })
    }

    /// Lists the epochs of the database.
    #[napi(ts_return_type = "Promise<EpochList>")]
    pub fn epochs(&self, cancel: Option<&Cancel>) -> AsyncTask<Ask> {
        self.ask(cancel, |query, _| query.epochs())
    }

    /// Returns the ids of the epochs that selectors name, oldest first. A selector that names no epoch is ignored.
    #[napi(ts_return_type = "Promise<string[]>")]
    pub fn selected_epochs(&self, selectors: Vec<String>) -> AsyncTask<Ask> {
        self.ask(None, move |query, _| Ok(query.selected_epochs(&selectors)))
    }

    /// Ranks procedures, images, lines or applications by their samples, the most costly first.
    #[napi(ts_return_type = "Promise<Top>")]
    pub fn top(&self, request: TopRequest, cancel: Option<&Cancel>) -> Result<AsyncTask<Ask>, String> {
        let request = requests::top(request)?;
        Ok(self.ask(cancel, move |query, cancel| query.top(&request, cancel)))
    }

    /// Returns the instructions of a procedure with their costs; `procedure` is `NAME` or `IMAGE:NAME`. Here and in other
    /// answers, an address of kernel code is the negative number with the same 64 bits, because it exceeds 2^53.
    #[napi(ts_return_type = "Promise<Listing>")]
    pub fn listing(&self, epochs: Vec<String>, procedure: String, cancel: Option<&Cancel>) -> AsyncTask<Ask> {
        self.ask(cancel, move |query, cancel| query.listing(&epochs, &procedure, cancel))
    }

    /// Returns the costs of the lines of the source file `path`.
    #[napi(ts_return_type = "Promise<FileCosts>")]
    pub fn file_costs(&self, epochs: Vec<String>, path: String, cancel: Option<&Cancel>) -> AsyncTask<Ask> {
        self.ask(cancel, move |query, cancel| query.file_costs(&epochs, &text_to_path(&path), cancel))
    }

    /// Returns the instructions of one source line (from 1) of the file `path`.
    #[napi(ts_return_type = "Promise<LineDetail>")]
    pub fn line_detail(
        &self,
        epochs: Vec<String>,
        path: String,
        line: u32,
        cancel: Option<&Cancel>,
    ) -> AsyncTask<Ask> {
        self.ask(cancel, move |query, cancel| query.line_detail(&epochs, &text_to_path(&path), line, cancel))
    }

    /// Compares two profiles.
    #[napi(ts_return_type = "Promise<Diff>")]
    pub fn diff(&self, request: DiffRequest, cancel: Option<&Cancel>) -> AsyncTask<Ask> {
        let request = requests::diff(request);
        self.ask(cancel, move |query, cancel| query.diff(&request, cancel))
    }

    /// Compares two profiles in the source file `path`.
    #[napi(ts_return_type = "Promise<FileChanges>")]
    pub fn file_changes(
        &self,
        request: DiffRequest,
        path: String,
        cancel: Option<&Cancel>,
    ) -> AsyncTask<Ask> {
        let request = requests::diff(request);
        self.ask(cancel, move |query, cancel| query.file_changes(&request, &text_to_path(&path), cancel))
    }

    /// Returns where the cycles of a procedure, of an image or of everything go.
    #[napi(ts_return_type = "Promise<Summary>")]
    pub fn summary(&self, request: SummaryRequest, cancel: Option<&Cancel>) -> AsyncTask<Ask> {
        let request = requests::summary(request);
        self.ask(cancel, move |query, cancel| query.summary(&request, cancel))
    }

    /// Returns who calls a function or what it calls, by the call stacks of its samples.
    #[napi(ts_return_type = "Promise<Callers>")]
    pub fn callers(&self, request: CallersRequest, cancel: Option<&Cancel>) -> AsyncTask<Ask> {
        let request = requests::callers(request);
        self.ask(cancel, move |query, cancel| query.callers(&request, cancel))
    }

    /// Returns all call stacks as one tree of functions.
    #[napi(ts_return_type = "Promise<Flame>")]
    pub fn flame(&self, request: FlameRequest, cancel: Option<&Cancel>) -> AsyncTask<Ask> {
        let request = requests::flame(request);
        self.ask(cancel, move |query, cancel| query.flame(&request, cancel))
    }

    /// Ranks functions by the samples in them and in what they call, by the call stacks of samples.
    #[napi(ts_return_type = "Promise<Inclusive>")]
    pub fn inclusive(&self, epochs: Vec<String>, limit: u32, cancel: Option<&Cancel>) -> AsyncTask<Ask> {
        self.ask(cancel, move |query, cancel| {
            query.inclusive(&epochs, &SampleFilter::default(), Some(limit as usize), cancel)
        })
    }

    /// Returns the `limit` call paths with the most samples, each with its innermost `depth` functions at most.
    #[napi(ts_return_type = "Promise<HottestPaths>")]
    pub fn hottest_paths(
        &self,
        epochs: Vec<String>,
        limit: u32,
        depth: u32,
        cancel: Option<&Cancel>,
    ) -> AsyncTask<Ask> {
        self.ask(cancel, move |query, cancel| {
            query.hottest_paths(&epochs, &SampleFilter::default(), limit as usize, depth as usize, cancel)
        })
    }

    /// Returns the functions of the source file `path` that are in call stacks, with their callers.
    #[napi(ts_return_type = "Promise<FileFunctions>")]
    pub fn file_functions(
        &self,
        epochs: Vec<String>,
        path: String,
        cancel: Option<&Cancel>,
    ) -> AsyncTask<Ask> {
        self.ask(cancel, move |query, cancel| query.file_functions(&epochs, &text_to_path(&path), cancel))
    }

    /// Returns how much procedures vary over several epochs, and whether two groups of epochs differ.
    #[napi(ts_return_type = "Promise<Stats>")]
    pub fn stats(&self, request: StatsRequest, cancel: Option<&Cancel>) -> AsyncTask<Ask> {
        let request = requests::stats(request);
        self.ask(cancel, move |query, cancel| query.stats(&request, cancel))
    }

    /// Runs a query in SQL over all epochs (docs/sql.md) and returns its first rows. A value is a boolean, a number, a text or
    /// null; an integer beyond 2^53, a list or a structure is a text.
    #[napi(
        ts_return_type = "Promise<{ columns: Array<{ name: string, type: string }>, rows: Array<Array<boolean | number | string | null>>, more: boolean, notes: string[] }>"
    )]
    pub fn sql(&self, request: SqlRequest, cancel: Option<&Cancel>) -> AsyncTask<Ask> {
        let options = self.options.clone();
        let cancel = cancel.map(|c| c.0.clone()).unwrap_or_default();
        AsyncTask::new(Ask::new(&self.query, cancel, move |_, cancel| sql::answer(&options, request, cancel)))
    }

    /// Gives an epoch a name and returns its id.
    #[napi(ts_return_type = "Promise<string>")]
    pub fn rename_epoch(&self, epoch: String, name: String) -> AsyncTask<Ask> {
        self.ask(None, move |query, _| query.rename_epoch(&epoch, &name))
    }

    /// Removes epochs permanently and returns their ids. The caller has asked the user.
    #[napi(ts_return_type = "Promise<string[]>")]
    pub fn remove_epochs(&self, epochs: Vec<String>) -> AsyncTask<Ask> {
        self.ask(None, move |query, _| query.remove_epochs(&epochs))
    }

    /// Returns a text that changes whenever the database changes.
    #[napi(ts_return_type = "Promise<string>")]
    pub fn generation(&self) -> AsyncTask<Ask> {
        self.ask(None, |query, _| Ok(query.generation().to_string()))
    }

    /// Calls `callback` within a second of each change of the database. A later call replaces the callback.
    #[napi(ts_args_type = "callback: () => void")]
    pub fn watch(&self, callback: OnChange) {
        self.set_watch(Some(Watch::start(self.query.clone(), callback)));
    }

    /// Stops calling the callback of `watch`.
    #[napi]
    pub fn unwatch(&self) {
        self.set_watch(None);
    }

    fn set_watch(&self, watch: Option<Watch>) {
        *self.watch.lock().unwrap_or_else(PoisonError::into_inner) = watch;
    }

    fn ask<A: Serialize>(
        &self,
        cancel: Option<&Cancel>,
        question: impl FnOnce(&Query, &dwell_query::Cancel) -> std::result::Result<A, QueryError> + Send + 'static,
    ) -> AsyncTask<Ask> {
        let cancel = cancel.map(|c| c.0.clone()).unwrap_or_default();
        AsyncTask::new(Ask::new(&self.query, cancel, question))
    }
}
