//! One question on libuv's thread pool: a promise of its answer, which rejects with the error's code.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use dwell_query::{Cancel, Query, QueryError};
use napi::{
    Env, Error, JsError, Task,
    bindgen_prelude::{ToNapiValue, TypeName},
};

/// The computation of an answer.
type Question<A> = Box<dyn FnOnce(&Query, &Cancel) -> Result<A, QueryError> + Send>;

/// A question whose answer `A` reaches JavaScript as `J`.
pub struct Ask<A, J> {
    query: Arc<Query>,
    cancel: Cancel,
    question: Option<Question<A>>,
    shape: fn(A) -> J,
}

impl<A, J> Ask<A, J> {
    /// Asks `question` of `query` until `cancel` is raised.
    pub fn new(
        query: &Arc<Query>,
        cancel: Cancel,
        shape: fn(A) -> J,
        question: impl FnOnce(&Query, &Cancel) -> Result<A, QueryError> + Send + 'static,
    ) -> Self {
        Ask { query: query.clone(), cancel, question: Some(Box::new(question)), shape }
    }
}

impl<A, J> Task for Ask<A, J>
where
    A: Send + 'static,
    J: ToNapiValue + TypeName + Send,
{
    type Output = Result<A, Failure>;
    type JsValue = J;

    fn compute(&mut self) -> napi::Result<Self::Output> {
        let question = self.question.take().expect("a task is computed once");
        // A call that was cancelled while it waited for a thread costs nothing.
        if let Err(error) = self.cancel.check() {
            return Ok(Err(error.into()));
        }
        // A panic that leaves this thread would abort the editor's server.
        let answer = catch_unwind(AssertUnwindSafe(|| question(&self.query, &self.cancel)));
        Ok(answer.map_err(Failure::from_panic).and_then(|answer| answer.map_err(Failure::from)))
    }

    fn resolve(&mut self, env: Env, output: Self::Output) -> napi::Result<J> {
        output.map(self.shape).map_err(|failure| failure.into_error(env))
    }
}

/// What `err.code` and `err.message` say.
pub struct Failure {
    code: &'static str,
    message: String,
}

impl From<QueryError> for Failure {
    fn from(error: QueryError) -> Self {
        Failure { code: error.code(), message: error.to_string() }
    }
}

impl Failure {
    fn from_panic(payload: Box<dyn Any + Send>) -> Self {
        let said = payload.downcast_ref::<&str>().copied();
        let said =
            said.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
        Failure { code: "internal", message: format!("internal error in the core: {said}") }
    }

    /// For a synchronous call: napi makes the code `err.code`.
    pub fn into_sync_error(self) -> Error<String> {
        Error::new(self.code.to_owned(), self.message)
    }

    /// For a promise. `Task` fixes its error's type, so the JavaScript error is made here and handed on whole
    /// (throwing here would be an uncaught exception, not a rejection).
    fn into_error(self, env: Env) -> Error {
        Error::from(JsError::from(self.into_sync_error()).into_unknown(env))
    }
}
