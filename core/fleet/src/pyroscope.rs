//! Requests of Pyroscope's push API: a `push.v1.PushRequest` with one profile.
//!
//! Enters: a recording's metadata, and its samples as pprof. Leaves: the body of a request. Never here: the network.
//!
//! Source: `api/push/v1/push.proto` and `api/types/v1/types.proto` of grafana/pyroscope 2.0, whose field numbers are used here. Its
//! documentation calls the API public and stable. Unlike `/ingest`, which leaves out types of values that the server is not configured for,
//! it keeps every value of a profile. The messages have fields of one kind only, so that they are written here.

use dwell_profile::Epoch;

/// The service that recordings belong to, beside the label of their host.
const SERVICE: &str = "dwell";
/// The name that Pyroscope gives to profiles of the time on processors.
const CPU: &str = "process_cpu";

/// Returns a request for a profile.
pub(crate) fn request(epoch: &Epoch, pprof: &[u8]) -> Vec<u8> {
    let mut series = Vec::new();
    let name = name(epoch);
    let labels = [("__name__", &*name), ("service_name", SERVICE), ("hostname", &epoch.host.name)];
    for (name, value) in labels {
        let label = [field(1, name.as_bytes()), field(2, value.as_bytes())].concat();
        series.extend(field(1, &label));
    }
    let sample = [field(1, pprof), field(2, uuid(epoch).as_bytes())].concat();
    series.extend(field(2, &sample));
    field(1, &series)
}

/// Returns the name of a profile: of time on processors, otherwise that of its first event with the letters that such
/// names have.
fn name(epoch: &Epoch) -> String {
    let names = || epoch.events.keys().map(|event| event.base_name());
    if names().any(|name| matches!(name, "cpu-clock" | "cycles")) {
        return CPU.to_owned();
    }
    let letter = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    names().next().map_or_else(|| CPU.to_owned(), |name| name.chars().map(letter).collect())
}

/// Returns an id in the form of a UUID (version 8, RFC 9562) that only this recording of this host has, so that a second copy has
/// the same.
fn uuid(epoch: &Epoch) -> String {
    let hash = blake3::hash(format!("{}\n{}", epoch.host.name, epoch.id.0).as_bytes()).to_hex();
    format!("{}-{}-8{}-8{}-{}", &hash[..8], &hash[8..12], &hash[12..15], &hash[15..18], &hash[18..30])
}

/// Returns a field of bytes, of a text or of a message.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    let mut length = bytes.len();
    while length >= 0x80 {
        field.push(length as u8 | 0x80);
        length >>= 7;
    }
    field.push(length as u8);
    field.extend(bytes);
    field
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_varints() {
        assert_eq!(field(2, b"ab"), [0x12, 2, b'a', b'b']);
        assert_eq!(field(1, &[7; 300])[..3], [0x0a, 0xac, 2]);
    }
}
