//! One question on libuv's thread pool: a promise of its answer, which rejects with the error's code.
//!
//! Enters: a question. Leaves: its answer as JSON, which the worker's thread writes and `JSON.parse` reads: V8 makes objects
//! from text much faster than from one call of Node-API for each field. Never here: the fields of an answer.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use dwell_fleet::FleetError;
use dwell_query::{Cancel, Query, QueryError};
use dwell_sql::SqlError;
use napi::{
    Env, Error, JsError, ScopedTask,
    bindgen_prelude::{Function, JsObjectValue, Object, Unknown},
};
use serde::Serialize;

use crate::json;

/// Computes an answer as JSON.
type Question = Box<dyn FnOnce(&Query, &Cancel) -> Result<String, Failure> + Send>;

/// A question about a database.
pub struct Ask {
    query: Arc<Query>,
    cancel: Cancel,
    question: Option<Question>,
}

impl Ask {
    /// Asks `question` of `query` until `cancel` is raised.
    pub fn new<A: Serialize, E: Into<Failure>>(
        query: &Arc<Query>,
        cancel: Cancel,
        question: impl FnOnce(&Query, &Cancel) -> Result<A, E> + Send + 'static,
    ) -> Self {
        let question = |query: &Query, cancel: &Cancel| {
            question(query, cancel).map(|answer| json::to_string(&answer)).map_err(Into::into)
        };
        Ask { query: query.clone(), cancel, question: Some(Box::new(question)) }
    }
}

impl<'task> ScopedTask<'task> for Ask {
    type Output = Result<String, Failure>;
    type JsValue = Unknown<'task>;

    fn compute(&mut self) -> napi::Result<Self::Output> {
        let question = self.question.take().expect("a task is computed once");
        // A call that was cancelled while it waited for a thread costs nothing.
        if let Err(error) = self.cancel.check() {
            return Ok(Err(error.into()));
        }
        // A panic that leaves this thread would abort the editor's server.
        let answer = catch_unwind(AssertUnwindSafe(|| question(&self.query, &self.cancel)));
        Ok(answer.unwrap_or_else(|payload| Err(Failure::from_panic(payload))))
    }

    fn resolve(&mut self, env: &'task Env, output: Self::Output) -> napi::Result<Self::JsValue> {
        let json = output.map_err(|failure| failure.into_error(*env))?;
        let parser: Object = env.get_global()?.get_named_property("JSON")?;
        parser.get_named_property::<Function<String, Unknown>>("parse")?.call(json)
    }
}

/// An error as JavaScript sees it: `err.code` and `err.message`.
pub struct Failure {
    code: &'static str,
    message: String,
}

impl From<QueryError> for Failure {
    fn from(error: QueryError) -> Self {
        Failure { code: error.code(), message: error.to_string() }
    }
}

impl From<FleetError> for Failure {
    fn from(error: FleetError) -> Self {
        match error {
            FleetError::Database(error) => QueryError::from(error).into(),
            error => Failure { code: "database", message: error.to_string() },
        }
    }
}

impl From<SqlError> for Failure {
    fn from(error: SqlError) -> Self {
        Failure { code: error.code(), message: error.without_place().to_string() }
    }
}

impl Failure {
    fn from_panic(payload: Box<dyn Any + Send>) -> Self {
        let said = payload.downcast_ref::<&str>().copied();
        let said =
            said.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
        Failure { code: "internal", message: format!("internal error in the core: {said}") }
    }

    /// Returns the error of a synchronous call. napi makes its code `err.code`.
    pub fn into_sync_error(self) -> Error<String> {
        Error::new(self.code.to_owned(), self.message)
    }

    /// Returns the error that a promise rejects with. The type of a task's error has no code, so the JavaScript error is made
    /// here and passed on whole. Throwing it here would be an uncaught exception, not a rejection.
    fn into_error(self, env: Env) -> Error {
        Error::from(JsError::from(self.into_sync_error()).into_unknown(env))
    }
}
