//! Sends the recordings of a host to whatever receives profiles of OpenTelemetry, each once as far as the protocol lets us.
//!
//! Enters: a database on this machine, the URL of a receiver, and a way to write a recording as OTLP. Leaves: requests, and what was sent.
//! A recording counts as sent when the receiver has said so; if a push ends before that, it is sent again.
//! Source: OTLP specification, section "OTLP/HTTP"; the signal *profiles* is in development, version `v1development`.

use std::{io::Write, path::Path};

use dwell_profile::{Database, Epoch};
use flate2::{Compression, write::GzEncoder};

use crate::{
    FleetError, Pushed,
    http::{self, TEXT_BYTES_MAX},
    push::has_ended,
    sent::Sent,
};

/// The path of the signal at a receiver.
const PATH: &str = "/v1development/profiles";
/// The variables that name further headers of requests, `name=value,name=value`: credentials, usually.
const HEADERS: [&str; 2] = ["OTEL_EXPORTER_OTLP_PROFILES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"];

/// How recordings become messages, and answers are read.
pub struct OtlpFormat<'f> {
    /// Writes a recording as an `ExportProfilesServiceRequest`. The error says why that cannot be.
    pub write: &'f dyn Fn(&Epoch) -> Result<Vec<u8>, String>,
    /// Reads an `ExportProfilesServiceResponse`; returns why profiles were rejected, if any were.
    pub rejection: &'f dyn Fn(&[u8]) -> Option<String>,
}

/// Sends the ended epochs of a database that were not sent before, as the folder `state` remembers.
pub fn push_otlp(
    database: &Database,
    url: &str,
    state: Option<&Path>,
    format: &OtlpFormat<'_>,
) -> Result<Pushed, FleetError> {
    let bad = |why: String| FleetError::Location { given: url.to_owned(), why };
    let mut target = url::Url::parse(url).map_err(|error| bad(error.to_string()))?;
    if !matches!(target.scheme(), "http" | "https") {
        return Err(bad("it is no URL of a receiver (http:// or https://)".to_owned()));
    }
    // The URL is printed and kept.
    if !target.username().is_empty() || target.password().is_some() {
        let given = format!("the receiver {}", target.host_str().unwrap_or_default());
        let why =
            "credentials are not taken from its URL: put them into OTEL_EXPORTER_OTLP_HEADERS".to_owned();
        return Err(FleetError::Location { given, why });
    }
    if !target.path().ends_with(PATH) {
        target.set_path(&format!("{}{PATH}", target.path().trim_end_matches('/')));
    }
    let agent = http::agent();
    let headers = headers();
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
        let packed = match (format.write)(epoch).and_then(|message| packed(&message)) {
            Ok(packed) => packed,
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
            let request =
                request.header("content-type", "application/x-protobuf").header("content-encoding", "gzip");
            Ok(http::read(request.send(&packed[..]), TEXT_BYTES_MAX))
        })?;
        if answer.status != 200 {
            let (place, code) = (target.to_string(), format!("status {}", answer.status));
            return Err(FleetError::Refused { place, code, hint: "" });
        }
        match (format.rejection)(&answer.body) {
            Some(why) => pushed.failed.push((epoch.id.clone(), format!("the receiver rejects it: {why}"))),
            None => {
                pushed.objects += 1;
                pushed.bytes += packed.len() as u64;
                pushed.epochs.push(epoch.id.clone());
                sent.add(&epoch.id.0)?;
            }
        }
    }
    Ok(pushed)
}

fn packed(message: &[u8]) -> Result<Vec<u8>, String> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(message).and_then(|()| encoder.finish()).map_err(|error| error.to_string())
}

/// Returns the further headers, whose values may be percent-encoded.
fn headers() -> Vec<(String, String)> {
    let given = HEADERS.iter().find_map(|name| std::env::var(name).ok()).unwrap_or_default();
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
