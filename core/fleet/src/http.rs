//! HTTP requests that are repeated where that helps, and bounded in size.
//!
//! Enters: a request. Leaves: a status and a body. URLs may hold signatures and are never printed.

use std::{
    io,
    path::Path,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};

use crate::FleetError;

/// How often a request is tried if the server does not answer or is busy.
const ATTEMPTS: u32 = 6;
/// The pause before the second attempt; it doubles with each attempt.
const PAUSE: Duration = Duration::from_millis(200);
const CONNECT: Duration = Duration::from_secs(10);
/// How long a server may be silent.
const SILENCE: Duration = Duration::from_secs(30);
/// Time after which a request is not tried again.
const PATIENCE: Duration = Duration::from_secs(60);
/// Size limit in bytes of a list or an error.
pub(crate) const TEXT_BYTES_MAX: u64 = 16 << 20;

/// The answer to a request.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

/// The variable with a file of certificates (PEM) that are trusted in place of the system's, as AWS's tools have it.
const CA_BUNDLE: &str = "AWS_CA_BUNDLE";

/// Returns what makes requests. The system says which certificates are trusted, since companies' servers have certificates of their own, unless
/// `AWS_CA_BUNDLE` names a file.
pub(crate) fn agent() -> Result<ureq::Agent, FleetError> {
    let roots = match std::env::var_os(CA_BUNDLE).filter(|path| !path.is_empty()) {
        Some(path) => trusted(Path::new(&path))?,
        None => RootCerts::PlatformVerifier,
    };
    Ok(ureq::Agent::config_builder()
        .timeout_connect(Some(CONNECT))
        .timeout_recv_response(Some(SILENCE))
        .timeout_per_read(Some(SILENCE))
        .http_status_as_error(false)
        .user_agent(concat!("dwell/", env!("CARGO_PKG_VERSION")))
        .tls_config(TlsConfig::builder().root_certs(roots).build())
        .build()
        .into())
}

fn trusted(path: &Path) -> Result<RootCerts, FleetError> {
    let failed = |source| FleetError::File { path: path.to_owned(), source };
    let bad = |why: String| failed(io::Error::new(io::ErrorKind::InvalidData, why));
    let mut certificates = Vec::new();
    for item in parse_pem(&std::fs::read(path).map_err(failed)?) {
        if let PemItem::Certificate(certificate) = item.map_err(|error| bad(error.to_string()))? {
            certificates.push(certificate);
        }
    }
    if certificates.is_empty() {
        return Err(bad(format!("no certificate is in it ({CA_BUNDLE})")));
    }
    Ok(RootCerts::Specific(Arc::new(certificates)))
}

/// Reads an answer, of at most `limit_bytes` if the request succeeded. The error says what happened to the connection.
pub(crate) fn read(
    answer: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    limit_bytes: u64,
) -> Result<Answer, String> {
    // Some errors quote the URL, and so a signature.
    let text = |error: ureq::Error| match error.to_string() {
        text if text.contains("X-Amz-") => "the request failed".to_owned(),
        text => text,
    };
    let mut answer = answer.map_err(text)?;
    let status = answer.status().as_u16();
    let limit = if status == 200 { limit_bytes } else { TEXT_BYTES_MAX };
    let body = answer.body_mut().with_config().limit(limit.saturating_add(1)).read_to_vec();
    Ok(Answer { status, body: body.map_err(text)? })
}

/// Makes a request until it is answered. `place` names what is asked, for the error.
pub(crate) fn until_answered(
    place: &dyn Fn() -> String,
    request: &mut dyn FnMut() -> Result<Result<Answer, String>, FleetError>,
) -> Result<Answer, FleetError> {
    let (mut why, mut attempts, start) = (String::new(), 0, Instant::now());
    while attempts < ATTEMPTS && start.elapsed() < PATIENCE {
        if attempts > 0 {
            std::thread::sleep(pause(attempts));
        }
        attempts += 1;
        why = match request()? {
            // 409: another request for one key is under way.
            Ok(Answer { status: status @ (408 | 409 | 429 | 500 | 502 | 503 | 504), .. }) => {
                format!("it answers with status {status}")
            }
            Ok(answer) => return Ok(answer),
            // That will not change by itself.
            Err(why) if why.contains("certificate") => {
                let why = format!("{why}; {CA_BUNDLE} can name a file of certificates to trust");
                return Err(FleetError::Unreachable { place: place(), why, attempts });
            }
            Err(error) => error,
        }
    }
    Err(FleetError::Unreachable { place: place(), why, attempts })
}

/// Returns the pause before an attempt: doubled each time, and up to a half longer, so that many hosts do not come back at once.
fn pause(attempt: u32) -> Duration {
    let base = PAUSE * 2_u32.pow(attempt.saturating_sub(1));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    base + base * (now.subsec_nanos() % 1000) / 2000
}
