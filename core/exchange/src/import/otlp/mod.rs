//! Reads profiles of OpenTelemetry, `opentelemetry.proto.profiles.v1development` of opentelemetry-proto 1.10.
//!
//! Enters: a file with one or more `ProfilesData` messages. Leaves: the same as from a pprof profile: samples by event, process
//! and place, their call stacks, and the names that the profile gives to places. Never here: a message that is partly read;
//! an index, a number or a size that was not checked.
//!
//! A file is one message as protocol buffers (what `dwell export -f otlp` writes; an `ExportProfilesServiceRequest` has the same
//! fields), or what the file exporter of the OpenTelemetry Collector writes: messages as JSON, one a line, or messages that are
//! each preceded by their length in 4 bytes, big endian. The latter may be compressed one by one.
//! Source: `exporter/fileexporter` of opentelemetry-collector-contrib 0.159, README and `file_writer.go`.

mod message;
mod places;
mod process;
mod samples;
#[cfg(test)]
mod tests;

use std::io::{BufRead, BufReader, Read};

use message::ProfilesData;
use samples::Importer;

use super::{
    imported::ImportedProfile,
    locate::Locator,
    packed::{self, Packing},
};

/// Size limit of a file that is one message, in bytes; a larger one is refused.
const MESSAGE_BYTES_MAX: u64 = 1 << 30;
/// Size limit of a message whose length precedes it, in bytes, packed or not. Receivers take 4 MiB by default. A first byte of a
/// length can therefore not be confused with that of a message.
const FRAME_BYTES_MAX: u64 = 1 << 27;

/// How the messages of a file are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One message as protocol buffers.
    Protobuf,
    /// Messages as JSON, one after the other.
    Json,
    /// Messages that are preceded by their length.
    Framed,
}

impl Form {
    /// Returns how a file that begins with these bytes is written; `None` if it has no profiles of OpenTelemetry.
    pub fn detect(start: &[u8]) -> Option<Form> {
        if is_json(start) {
            return Some(Form::Json);
        }
        if is_message(start) {
            return Some(Form::Protobuf);
        }
        let (length, rest) = start.split_first_chunk()?;
        let length = u64::from(u32::from_be_bytes(*length));
        let begins_one = is_json(rest) || is_message(rest) || Packing::detect(rest) == Some(Packing::Zstd);
        (length <= FRAME_BYTES_MAX && length > 0 && begins_one).then_some(Form::Framed)
    }
}

fn is_json(start: &[u8]) -> bool {
    let mut text = start.iter().filter(|byte| !byte.is_ascii_whitespace());
    text.next() == Some(&b'{') && matches!(text.next(), Some(b'"' | b'}'))
}

/// Returns whether a message begins here: with profiles of a resource, or, as collectors write it, with the dictionary. Each begins with
/// any of its fields, which are messages. The first field of a pprof profile has the tag of the former, but begins with a number.
fn is_message(start: &[u8]) -> bool {
    let Some((&tag, rest)) = start.split_first() else { return false };
    let length = rest.iter().take(5).take_while(|byte| **byte >= 0x80).count() + 1;
    let inner = rest.get(length);
    match tag {
        0x0a => rest.first() == Some(&0) || matches!(inner, Some(0x0a | 0x12 | 0x1a)),
        0x12 => matches!(inner, Some(0x0a | 0x12 | 0x1a | 0x22 | 0x2a | 0x32 | 0x3a)),
        _ => false,
    }
}

/// Reads all messages of a file.
pub fn read(file: impl Read, form: Form, locator: &Locator<'_>) -> Result<ImportedProfile, String> {
    let mut importer = Importer::new(locator);
    let mut file = BufReader::new(file);
    match form {
        Form::Protobuf => {
            let mut bytes = Vec::new();
            file.take(MESSAGE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|e| e.to_string())?;
            if bytes.len() as u64 > MESSAGE_BYTES_MAX {
                return Err(format!("a message with over {MESSAGE_BYTES_MAX} bytes"));
            }
            importer.add(&message::from_protobuf(&bytes)?)?;
        }
        Form::Json => {
            let messages = serde_json::Deserializer::from_reader(file).into_iter::<ProfilesData>();
            for (number, message) in (1..).zip(messages) {
                let of = |why| format!("message {number}: {why}");
                let message = message.map_err(|error| of(json_error(&error)))?;
                importer.add(&message).map_err(of)?;
            }
        }
        Form::Framed => {
            for number in 1.. {
                let of = |why| format!("message {number}: {why}");
                let Some(bytes) = frame(&mut file).map_err(of)? else { break };
                importer.add(&of_frame(&bytes).map_err(of)?).map_err(of)?;
            }
        }
    }
    Ok(importer.finish())
}

fn json_error(error: &serde_json::Error) -> String {
    match error.is_eof() {
        true => format!("it is cut off: {error}"),
        false => format!("not the JSON of OTLP: {error}"),
    }
}

/// Reads the next message that is preceded by its length; `None` at the end of the file.
fn frame(file: &mut impl BufRead) -> Result<Option<Vec<u8>>, String> {
    if file.fill_buf().map_err(|e| e.to_string())?.is_empty() {
        return Ok(None);
    }
    let mut length = [0; 4];
    file.read_exact(&mut length).map_err(|_| "its length is cut off".to_owned())?;
    let length = u64::from(u32::from_be_bytes(length));
    if length > FRAME_BYTES_MAX {
        return Err(format!("a length of {length} bytes, and at most {FRAME_BYTES_MAX} are read"));
    }
    let mut bytes = Vec::new();
    file.take(length).read_to_end(&mut bytes).map_err(|e| e.to_string())?;
    if (bytes.len() as u64) < length {
        return Err(format!("it is cut off after {} of {length} bytes", bytes.len()));
    }
    Ok(Some(bytes))
}

fn of_frame(bytes: &[u8]) -> Result<ProfilesData, String> {
    let mut unpacked = Vec::new();
    let bytes = match Packing::detect(bytes) {
        Some(packing) => match packed::pour(packing, bytes, &mut unpacked, FRAME_BYTES_MAX)? {
            Some(why) => return Err(why),
            None => &unpacked[..],
        },
        None => bytes,
    };
    match is_json(bytes) {
        true => serde_json::from_slice(bytes).map_err(|error| json_error(&error)),
        false => message::from_protobuf(bytes),
    }
}
