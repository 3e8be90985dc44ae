//! Sends the recordings of a host to a receiver of profiles by HTTP, each once as far as the protocol lets us.
//!
//! Enters: a database on this machine, the URL of a receiver, its protocol, and a way to write a recording as a message. Leaves: requests,
//! and what was sent. A recording counts as sent when the receiver has said so; if a push ends before that, it is sent again.
//! Never here: a credential in a URL or a message.
//!
//! Sources: OTLP specification 1.10, section "OTLP/HTTP", whose signal *profiles* is in development, version `v1development`;
//! Pyroscope's "Server HTTP API", section "Ingestion Path".

use std::{io::Write, path::Path};

use dwell_profile::{Database, Epoch};
use flate2::{Compression, write::GzEncoder};

use crate::{
    FleetError, Pushed,
    http::{self, TEXT_BYTES_MAX},
    push::has_ended,
    pyroscope,
    sent::Sent,
};

/// Most characters of an answer that an error quotes.
const QUOTED_MAX: usize = 300;

/// A receiver of profiles, and how a recording becomes a message for it.
pub struct Receiver<'f> {
    /// What it speaks.
    pub protocol: Protocol<'f>,
    /// Writes a recording: as an `ExportProfilesServiceRequest` for OTLP, as pprof for Pyroscope. The error says why that
    /// cannot be.
    pub write: &'f dyn Fn(&Epoch) -> Result<Vec<u8>, String>,
}

/// A protocol of receivers.
pub enum Protocol<'f> {
    /// OTLP/HTTP. The function reads an `ExportProfilesServiceResponse`; it returns why profiles were rejected, if any were.
    Otlp(&'f dyn Fn(&[u8]) -> Option<String>),
    /// The push API of Pyroscope, which takes pprof.
    Pyroscope,
}

/// How requests of a protocol are made.
struct Requests {
    /// The path at a receiver.
    path: &'static str,
    /// The variables that name further headers, `name=value,name=value`, usually credentials. The first that is set is used.
    variables: &'static [&'static str],
    /// The headers that describe the body.
    headers: &'static [(&'static str, &'static str)],
}

impl Protocol<'_> {
    fn requests(&self) -> Requests {
        match self {
            Protocol::Otlp(_) => Requests {
                path: "/v1development/profiles",
                variables: &["OTEL_EXPORTER_OTLP_PROFILES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"],
                headers: &[("content-type", "application/x-protobuf"), ("content-encoding", "gzip")],
            },
            Protocol::Pyroscope => Requests {
                path: "/push.v1.PusherService/Push",
                variables: &["DWELL_PPROF_HEADERS"],
                headers: &[("content-type", "application/proto"), ("connect-protocol-version", "1")],
            },
        }
    }

    /// Returns the body of a request for a message.
    fn body(&self, epoch: &Epoch, message: &[u8]) -> Result<Vec<u8>, String> {
        let packed = packed(message)?;
        Ok(match self {
            Protocol::Otlp(_) => packed,
            Protocol::Pyroscope => pyroscope::request(epoch, &packed),
        })
    }

    /// Returns why the receiver did not take a recording that it answered with status 200; `None` if it did.
    fn rejection(&self, body: &[u8]) -> Option<String> {
        match self {
            Protocol::Otlp(rejection) => rejection(body),
            // Its answer has no fields.
            Protocol::Pyroscope => None,
        }
    }
}

/// Sends the ended epochs of a database that were not sent before, as the folder `state` remembers.
pub fn push_to_receiver(
    database: &Database,
    url: &str,
    state: Option<&Path>,
    receiver: &Receiver<'_>,
) -> Result<Pushed, FleetError> {
    let requests = receiver.protocol.requests();
    let target = target(url, &requests)?;
    let agent = http::agent()?;
    let headers = further_headers(&requests);
    let mut sent = Sent::open(state, target.as_str())?;
    let read = database.epochs()?;
    sent.keep_only(&read.epochs)?;
    let mut pushed = Pushed { failed: Pushed::unreadable(&read), ..Pushed::default() };
    for epoch in &read.epochs {
        if sent.contains(&epoch.id.0) {
            pushed.known += 1;
            continue;
        }
        if !has_ended(epoch, &read.epochs) {
            pushed.unended.push(epoch.id.clone());
            continue;
        }
        let message = (receiver.write)(epoch);
        let body = match message.and_then(|message| receiver.protocol.body(epoch, &message)) {
            Ok(body) => body,
            Err(why) => {
                pushed.failed.push((epoch.id.clone(), why));
                continue;
            }
        };
        let answer = http::until_answered(&|| target.to_string(), &mut || {
            let mut request = agent.post(target.as_str());
            for (name, value) in &headers {
                request = request.header(name, value);
            }
            for (name, value) in requests.headers {
                request = request.header(*name, *value);
            }
            Ok(http::read(request.send(&body[..]), TEXT_BYTES_MAX))
        })?;
        let rejection = match answer.status {
            200 => receiver.protocol.rejection(&answer.body),
            // It is this recording that the receiver does not take; the next one may be another matter.
            400 | 413 | 422 => Some(format!("status {}{}", answer.status, quoted(&answer.body))),
            status => {
                let (place, code) = (target.to_string(), format!("status {status}"));
                return Err(FleetError::Refused { place, code, hint: "" });
            }
        };
        match rejection {
            Some(why) => pushed.failed.push((epoch.id.clone(), format!("the receiver rejects it: {why}"))),
            None => {
                pushed.objects += 1;
                pushed.bytes += body.len() as u64;
                pushed.epochs.push(epoch.id.clone());
                sent.add(&epoch.id.0)?;
            }
        }
    }
    Ok(pushed)
}

/// Returns the URL that requests go to.
fn target(url: &str, requests: &Requests) -> Result<url::Url, FleetError> {
    let bad = |why: String| FleetError::Location { given: url.to_owned(), why };
    let mut target = url::Url::parse(url).map_err(|error| bad(error.to_string()))?;
    if !matches!(target.scheme(), "http" | "https") {
        return Err(bad("it is no URL of a receiver (http:// or https://)".to_owned()));
    }
    // The URL is printed and kept.
    if !target.username().is_empty() || target.password().is_some() {
        let given = format!("the receiver {}", target.host_str().unwrap_or_default());
        let variable = requests.variables.last().unwrap_or(&"");
        let why = format!("credentials are not taken from its URL: put them into {variable}");
        return Err(FleetError::Location { given, why });
    }
    if !target.path().ends_with(requests.path) {
        target.set_path(&format!("{}{}", target.path().trim_end_matches('/'), requests.path));
    }
    Ok(target)
}

/// Returns `: ` and the beginning of an answer, if it is a text.
fn quoted(body: &[u8]) -> String {
    let text = std::str::from_utf8(body).unwrap_or_default().trim();
    if text.is_empty() || text.chars().any(char::is_control) {
        return String::new();
    }
    format!(": {}", text.chars().take(QUOTED_MAX).collect::<String>())
}

fn packed(message: &[u8]) -> Result<Vec<u8>, String> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(message).and_then(|()| encoder.finish()).map_err(|error| error.to_string())
}

/// Returns the further headers, whose values may be percent-encoded.
fn further_headers(requests: &Requests) -> Vec<(String, String)> {
    let given = requests.variables.iter().find_map(|name| std::env::var(name).ok()).unwrap_or_default();
    let decode = |text: &str| {
        // A plus sign is itself in these variables.
        let text = text.trim().replace('+', "%2B");
        url::form_urlencoded::parse(text.as_bytes())
            .next()
            .map(|(text, _)| text.into_owned())
            .unwrap_or_default()
    };
    let pairs = given.split(',').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.trim().to_owned(), decode(value))).collect()
}
