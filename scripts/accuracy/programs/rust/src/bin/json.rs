//! serde_json: FILE parsed into a tree, walked, and written again. Prints what was counted.

use serde_json::Value;

fn sum(value: &Value) -> f64 {
    match value {
        Value::Null => 1.0,
        Value::Bool(yes) => f64::from(u8::from(*yes)),
        Value::Number(number) => number.as_f64().unwrap_or(0.0),
        Value::String(text) => text.bytes().filter(|byte| *byte == b'e').count() as f64,
        Value::Array(values) => values.iter().map(sum).sum(),
        Value::Object(members) => members.iter().map(|(key, value)| key.len() as f64 + sum(value)).sum(),
    }
}

fn main() {
    let path = std::env::args().nth(1).expect("usage: json FILE");
    let text = std::fs::read_to_string(path).expect("a readable file");
    for _ in 0..2 {
        let value: Value = serde_json::from_str(&text).expect("JSON");
        let written = serde_json::to_string(&value).expect("a tree that can be written");
        println!("{} {}", sum(&value), written.len());
    }
}
