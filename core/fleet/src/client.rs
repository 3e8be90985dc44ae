//! Requests to an object store: list, get, and put once. They are signed.
//!
//! Enters: keys and bytes. Leaves: bytes, or an error that names the object and the store's reason. Never here: what is in the
//! objects. URLs hold signatures and are never printed.

use std::{sync::Mutex, time::Duration};

use rusty_s3::{
    Bucket, Credentials, S3Action, UrlStyle,
    actions::{GetObject, HeadObject, ListObjectsV2, PutObject},
};

use crate::{
    FleetError, Location,
    credentials::Store,
    http::{self, Answer, TEXT_BYTES_MAX, read},
};

/// How long a signature is valid.
const VALID: Duration = Duration::from_secs(900);
/// What became of an object that was put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Put {
    /// It is stored now.
    New,
    /// There was an object with this key already.
    Known,
}

/// A bucket of a store.
pub(crate) struct Client {
    store: Store,
    bucket: Bucket,
    /// The credentials, once a request needed them.
    credentials: Mutex<Option<Credentials>>,
    agent: ureq::Agent,
}

impl Client {
    /// Finds the store of a location by the environment. Makes no request.
    pub(crate) fn new(location: &Location) -> Result<Client, FleetError> {
        let store = Store::find(&variable)?;
        let place = || format!("s3://{}", location.bucket);
        // Names with dots have no certificate of AWS's as a part of a host's name.
        let is_of_aws = store.endpoint.is_none() && !location.bucket.contains('.');
        let style = if is_of_aws { UrlStyle::VirtualHost } else { UrlStyle::Path };
        let of_aws = || format!("https://s3.{}.amazonaws.com", store.region);
        let endpoint = store.endpoint.clone().unwrap_or_else(of_aws);
        let bad =
            |why: String| FleetError::Credentials(format!("{}: the endpoint {endpoint}: {why}", place()));
        let url = url::Url::parse(&endpoint).map_err(|error| bad(error.to_string()))?;
        let bucket = Bucket::new(url, style, location.bucket.clone(), store.region.clone());
        let bucket = bucket.map_err(|error| bad(error.to_string()))?;
        Ok(Client { store, bucket, credentials: Mutex::new(None), agent: http::agent()? })
    }

    /// Returns what tells this bucket from all others: the store and the name.
    pub(crate) fn identity(&self) -> String {
        self.bucket.base_url().to_string()
    }

    /// Returns the object with this key; `None` if there is none.
    pub(crate) fn get(&self, key: &str, limit_bytes: u64) -> Result<Option<Vec<u8>>, FleetError> {
        let answer = self.ask(key, &|credentials| {
            let url = GetObject::new(&self.bucket, Some(credentials), key).sign(VALID);
            read(self.agent.get(url.as_str()).call(), limit_bytes)
        })?;
        match answer.status {
            404 if code_in(&String::from_utf8_lossy(&answer.body)).is_none_or(|code| code == "NoSuchKey") => {
                Ok(None)
            }
            200 => Ok(Some(answer.body)),
            _ => Err(self.refused(key, &answer)),
        }
    }

    /// Returns whether there is an object with this key, as far as these credentials may know. To put it once settles the matter.
    pub(crate) fn exists(&self, key: &str) -> Result<bool, FleetError> {
        let answer = self.ask(key, &|credentials| {
            let url = HeadObject::new(&self.bucket, Some(credentials), key).sign(VALID);
            read(self.agent.head(url.as_str()).call(), TEXT_BYTES_MAX)
        })?;
        match answer.status {
            200 => Ok(true),
            // 403 is also the answer of AWS if the object is not there and these credentials may not list.
            403 | 404 => Ok(false),
            _ => Err(self.refused(key, &answer)),
        }
    }

    /// Stores an object unless there is one with this key.
    pub(crate) fn put_once(&self, key: &str, bytes: &[u8]) -> Result<Put, FleetError> {
        let answer = self.ask(key, &|credentials| {
            let mut action = PutObject::new(&self.bucket, Some(credentials), key);
            action.headers_mut().insert("if-none-match", "*");
            let url = action.sign(VALID);
            read(self.agent.put(url.as_str()).header("if-none-match", "*").send(bytes), TEXT_BYTES_MAX)
        })?;
        match answer.status {
            200 | 201 | 204 => Ok(Put::New),
            412 => Ok(Put::Known),
            _ => Err(self.refused(key, &answer)),
        }
    }

    /// Passes all keys with this prefix to `each`, in their order, each with its size in bytes. Begins after the key `after`, and
    /// ends when `each` returns `false`.
    pub(crate) fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        each: &mut dyn FnMut(&str, u64) -> bool,
    ) -> Result<(), FleetError> {
        let mut token: Option<String> = None;
        loop {
            let answer = self.ask(prefix, &|credentials| {
                let mut action = ListObjectsV2::new(&self.bucket, Some(credentials));
                action.with_prefix(prefix);
                match (&token, after) {
                    (Some(token), _) => action.with_continuation_token(token),
                    (None, Some(after)) => action.with_start_after(after),
                    (None, None) => {}
                }
                read(self.agent.get(action.sign(VALID).as_str()).call(), TEXT_BYTES_MAX)
            })?;
            if answer.status != 200 {
                return Err(self.refused("", &answer));
            }
            let text = String::from_utf8_lossy(&answer.body);
            let page = ListObjectsV2::parse_response(&text)
                .map_err(|_| self.unreachable(prefix, "its answer is no list of objects".to_owned(), 1))?;
            if !page.contents.iter().all(|object| each(&object.key, object.size.unwrap_or(0))) {
                return Ok(());
            }
            match page.next_continuation_token {
                Some(next) if token.as_deref() != Some(&next) => token = Some(next),
                _ => return Ok(()),
            }
        }
    }

    /// Makes a request until it is answered, with new credentials if the old ones have expired.
    fn ask(
        &self,
        key: &str,
        request: &dyn Fn(&Credentials) -> Result<Answer, String>,
    ) -> Result<Answer, FleetError> {
        let mut renewed = false;
        http::until_answered(&|| self.place_at(key), &mut || {
            let answer = request(&self.credentials()?);
            if !renewed && answer.as_ref().is_ok_and(has_expired) {
                renewed = true;
                *self.credentials.lock().unwrap_or_else(|e| e.into_inner()) = None;
                return Ok(Err("the credentials have expired".to_owned()));
            }
            Ok(answer)
        })
    }

    fn credentials(&self) -> Result<Credentials, FleetError> {
        let mut known = self.credentials.lock().unwrap_or_else(|e| e.into_inner());
        match &*known {
            Some(credentials) => Ok(credentials.clone()),
            None => {
                let found = self.store.credentials(&variable, &self.agent)?;
                Ok(known.insert(found).clone())
            }
        }
    }

    fn place(&self, key: &str) -> String {
        format!("s3://{}/{key}", self.bucket.name())
    }

    /// Returns where an object is, with the store's address, for errors of the connection.
    fn place_at(&self, key: &str) -> String {
        format!("{} at {}", self.place(key), self.bucket.base_url().origin().ascii_serialization())
    }

    fn refused(&self, key: &str, answer: &Answer) -> FleetError {
        let code = code_in(&String::from_utf8_lossy(&answer.body));
        let code = code.unwrap_or_else(|| format!("status {}", answer.status));
        let hint = match code.as_str() {
            "AccessDenied" | "status 403" => ": these credentials may not do this here",
            "InvalidAccessKeyId" | "SignatureDoesNotMatch" => ": the credentials are not those of this store",
            "NoSuchBucket" => ": there is no such bucket",
            "RequestTimeTooSkewed" => ": the clocks of this host and of the store differ",
            "PermanentRedirect" | "AuthorizationHeaderMalformed" => {
                ": the bucket is in another region, set AWS_REGION"
            }
            _ => "",
        };
        FleetError::Refused { place: self.place(key), code, hint }
    }

    fn unreachable(&self, key: &str, why: String, attempts: u32) -> FleetError {
        FleetError::Unreachable { place: self.place(key), why, attempts }
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn has_expired(answer: &Answer) -> bool {
    answer.status == 403
        && code_in(&String::from_utf8_lossy(&answer.body)).is_some_and(|code| code.contains("Expired"))
}

/// Returns the error code in a store's answer.
pub(crate) fn code_in(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("<Code>")?;
    let (code, _) = rest.split_once("</Code>")?;
    let is_code = !code.is_empty() && code.len() < 64 && code.bytes().all(|b| b.is_ascii_alphanumeric());
    is_code.then(|| code.to_owned())
}
