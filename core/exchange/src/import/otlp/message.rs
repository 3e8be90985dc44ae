//! The messages of `opentelemetry.proto.profiles.v1development`, as far as an import reads them.
//!
//! Enters: a message as protocol buffers or as JSON, of any origin. Leaves: its fields, whose indices are not yet checked. Never
//! here: more memory than [`ROWS_MAX`] rows and the bytes of a message need; what a field means.
//!
//! The schema: `profiles.proto` and `common.proto` of opentelemetry-proto 1.10, whose field numbers and names are used here.
//! One type reads both encodings. The types of the crate `opentelemetry-proto` cannot: they refuse names that are not UTF-8,
//! which the comm of a thread may be, and their JSON refuses what collectors write (64-bit integers as strings, and no
//! fields that have their default).

use std::{fmt, marker::PhantomData};

use prost::{
    Message,
    encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field},
};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error, SeqAccess, Visitor},
};

/// Limit of the rows of all tables of a message, and of a table in JSON. A profiler that sends its samples every few seconds
/// has some 10,000.
const ROWS_MAX: usize = 1 << 24;

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ProfilesData {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "rows")]
    pub resource_profiles: Vec<ResourceProfiles>,
    #[prost(message, optional, tag = "2")]
    pub dictionary: Option<Dictionary>,
}

/// The tables that all profiles of a message share. Entry 0 of each means "none".
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Dictionary {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "rows")]
    pub mapping_table: Vec<Mapping>,
    #[prost(message, repeated, tag = "2")]
    #[serde(deserialize_with = "rows")]
    pub location_table: Vec<Location>,
    #[prost(message, repeated, tag = "3")]
    #[serde(deserialize_with = "rows")]
    pub function_table: Vec<Function>,
    #[prost(bytes = "vec", repeated, tag = "5")]
    #[serde(deserialize_with = "texts")]
    pub string_table: Vec<Vec<u8>>,
    #[prost(message, repeated, tag = "6")]
    #[serde(deserialize_with = "rows")]
    pub attribute_table: Vec<Attribute>,
    #[prost(message, repeated, tag = "7")]
    #[serde(deserialize_with = "rows")]
    pub stack_table: Vec<Stack>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ResourceProfiles {
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    #[serde(deserialize_with = "rows")]
    pub scope_profiles: Vec<ScopeProfiles>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Resource {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "rows")]
    pub attributes: Vec<KeyValue>,
}

/// An attribute of a resource, whose key is either a text or an index of the table of strings.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    #[serde(deserialize_with = "text")]
    pub key: Vec<u8>,
    #[prost(message, optional, tag = "2")]
    pub value: Option<AnyValue>,
    #[prost(int32, tag = "3")]
    #[serde(deserialize_with = "number")]
    pub key_strindex: i32,
}

/// A value. Booleans, numbers with a fraction, lists and bytes mean nothing to an import.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AnyValue {
    #[prost(bytes = "vec", tag = "1")]
    #[serde(deserialize_with = "text")]
    pub string_value: Vec<u8>,
    #[prost(int64, optional, tag = "3")]
    #[serde(deserialize_with = "some_number")]
    pub int_value: Option<i64>,
    /// An index of the table of strings, in place of `string_value`.
    #[prost(int32, tag = "8")]
    #[serde(deserialize_with = "number")]
    pub string_value_strindex: i32,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ScopeProfiles {
    #[prost(message, optional, tag = "1")]
    pub scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    #[serde(deserialize_with = "rows")]
    pub profiles: Vec<Profile>,
}

/// The program that wrote profiles.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Scope {
    #[prost(bytes = "vec", tag = "1")]
    #[serde(deserialize_with = "text")]
    pub name: Vec<u8>,
}

/// The samples of one event.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Profile {
    #[prost(message, optional, tag = "1")]
    pub sample_type: Option<ValueType>,
    #[prost(message, repeated, tag = "2")]
    #[serde(deserialize_with = "rows")]
    pub samples: Vec<Sample>,
    #[prost(uint64, tag = "4")]
    #[serde(deserialize_with = "number")]
    pub duration_nano: u64,
    #[prost(message, optional, tag = "5")]
    pub period_type: Option<ValueType>,
    #[prost(int64, tag = "6")]
    #[serde(deserialize_with = "number")]
    pub period: i64,
    #[prost(bytes = "vec", tag = "9")]
    #[serde(deserialize_with = "text")]
    pub original_payload_format: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ValueType {
    #[prost(int32, tag = "1")]
    #[serde(deserialize_with = "number")]
    pub type_strindex: i32,
    #[prost(int32, tag = "2")]
    #[serde(deserialize_with = "number")]
    pub unit_strindex: i32,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Sample {
    #[prost(int32, tag = "1")]
    #[serde(deserialize_with = "number")]
    pub stack_index: i32,
    #[prost(int32, repeated, tag = "2")]
    #[serde(deserialize_with = "numbers")]
    pub attribute_indices: Vec<i32>,
    #[prost(int32, tag = "3")]
    #[serde(deserialize_with = "number")]
    pub link_index: i32,
    #[prost(int64, repeated, tag = "4")]
    #[serde(deserialize_with = "numbers")]
    pub values: Vec<i64>,
    #[prost(fixed64, repeated, tag = "5")]
    #[serde(deserialize_with = "numbers")]
    pub timestamps_unix_nano: Vec<u64>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Mapping {
    #[prost(uint64, tag = "1")]
    #[serde(deserialize_with = "number")]
    pub memory_start: u64,
    #[prost(uint64, tag = "2")]
    #[serde(deserialize_with = "number")]
    pub memory_limit: u64,
    #[prost(uint64, tag = "3")]
    #[serde(deserialize_with = "number")]
    pub file_offset: u64,
    #[prost(int32, tag = "4")]
    #[serde(deserialize_with = "number")]
    pub filename_strindex: i32,
    #[prost(int32, repeated, tag = "5")]
    #[serde(deserialize_with = "numbers")]
    pub attribute_indices: Vec<i32>,
}

/// The locations of a stack, innermost first.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Stack {
    #[prost(int32, repeated, tag = "1")]
    #[serde(deserialize_with = "numbers")]
    pub location_indices: Vec<i32>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Location {
    #[prost(int32, tag = "1")]
    #[serde(deserialize_with = "number")]
    pub mapping_index: i32,
    #[prost(uint64, tag = "2")]
    #[serde(deserialize_with = "number")]
    pub address: u64,
    #[prost(message, repeated, tag = "3")]
    #[serde(deserialize_with = "rows")]
    pub lines: Vec<Line>,
    #[prost(int32, repeated, tag = "4")]
    #[serde(deserialize_with = "numbers")]
    pub attribute_indices: Vec<i32>,
}

#[derive(Clone, Copy, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Line {
    #[prost(int32, tag = "1")]
    #[serde(deserialize_with = "number")]
    pub function_index: i32,
    #[prost(int64, tag = "2")]
    #[serde(deserialize_with = "number")]
    pub line: i64,
}

#[derive(Clone, Copy, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Function {
    #[prost(int32, tag = "1")]
    #[serde(deserialize_with = "number")]
    pub name_strindex: i32,
    #[prost(int32, tag = "2")]
    #[serde(deserialize_with = "number")]
    pub system_name_strindex: i32,
    #[prost(int32, tag = "3")]
    #[serde(deserialize_with = "number")]
    pub filename_strindex: i32,
    #[prost(int64, tag = "4")]
    #[serde(deserialize_with = "number")]
    pub start_line: i64,
}

/// An attribute in the table of a message (`KeyValueAndUnit`).
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Attribute {
    #[prost(int32, tag = "1")]
    #[serde(deserialize_with = "number")]
    pub key_strindex: i32,
    #[prost(message, optional, tag = "2")]
    pub value: Option<AnyValue>,
}

/// The fields whose messages are rows, as paths of field numbers from the outermost message; an empty row of two bytes takes
/// some hundred bytes of memory.
const TABLES: [&[u32]; 7] = [&[], &[1], &[1, 1], &[1, 2], &[1, 2, 2], &[2], &[2, 2]];

/// Decodes protocol buffers.
pub fn from_protobuf(bytes: &[u8]) -> Result<ProfilesData, String> {
    let bad = |error| format!("it is cut off or damaged: {error}");
    let mut count = 0;
    for table in TABLES {
        count += messages(bytes, table).map_err(bad)?;
    }
    if count > ROWS_MAX {
        return Err(format!("its tables have over {ROWS_MAX} entries"));
    }
    ProfilesData::decode(bytes).map_err(bad)
}

/// Counts the length-delimited fields of the messages at a path.
fn messages(mut bytes: &[u8], path: &[u32]) -> Result<usize, prost::DecodeError> {
    let mut count = 0;
    while !bytes.is_empty() {
        let (tag, wire) = decode_key(&mut bytes)?;
        if wire != WireType::LengthDelimited {
            skip_field(wire, tag, &mut bytes, DecodeContext::default())?;
            continue;
        }
        let length = usize::try_from(decode_varint(&mut bytes)?).unwrap_or(usize::MAX);
        let Some((field, rest)) = bytes.split_at_checked(length) else {
            // The decoder reports what is wrong.
            return Ok(count);
        };
        bytes = rest;
        count += match path.split_first() {
            None => 1,
            Some((first, path)) if *first == tag => messages(field, path)?,
            Some(_) => 0,
        };
    }
    Ok(count)
}

/// A number in JSON, where 64-bit integers are strings, or numbers.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected an integer, as a number or a string")]
enum JsonNumber {
    Signed(i64),
    Unsigned(u64),
    Text(String),
}

impl JsonNumber {
    fn value<T: TryFrom<i128>, E: Error>(self) -> Result<T, E> {
        let value = match self {
            JsonNumber::Signed(value) => value.into(),
            JsonNumber::Unsigned(value) => value.into(),
            JsonNumber::Text(text) => {
                text.parse::<i128>().map_err(|_| E::custom(format!("{text:?} is not an integer")))?
            }
        };
        T::try_from(value).map_err(|_| E::custom(format!("{value} is out of range")))
    }
}

fn number<'de, D: Deserializer<'de>, T: TryFrom<i128>>(from: D) -> Result<T, D::Error> {
    JsonNumber::deserialize(from)?.value()
}

fn some_number<'de, D: Deserializer<'de>>(from: D) -> Result<Option<i64>, D::Error> {
    number(from).map(Some)
}

fn numbers<'de, D: Deserializer<'de>, T: TryFrom<i128>>(from: D) -> Result<Vec<T>, D::Error> {
    rows::<D, JsonNumber>(from)?.into_iter().map(JsonNumber::value).collect()
}

fn text<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    String::deserialize(from).map(String::into_bytes)
}

fn texts<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Vec<u8>>, D::Error> {
    Ok(rows::<D, String>(from)?.into_iter().map(String::into_bytes).collect())
}

/// Reads a table of at most [`ROWS_MAX`] rows.
fn rows<'de, D: Deserializer<'de>, T: DeserializeOwned>(from: D) -> Result<Vec<T>, D::Error> {
    struct Rows<T>(PhantomData<T>);

    impl<'de, T: DeserializeOwned> Visitor<'de> for Rows<T> {
        type Value = Vec<T>;

        fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(to, "a list")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Vec<T>, A::Error> {
            let mut all = Vec::new();
            while let Some(row) = from.next_element()? {
                if all.len() == ROWS_MAX {
                    return Err(A::Error::custom(format_args!("a table has over {ROWS_MAX} entries")));
                }
                all.push(row);
            }
            Ok(all)
        }
    }

    from.deserialize_seq(Rows(PhantomData))
}
