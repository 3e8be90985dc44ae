//! Writes answers as JSON for JavaScript, whose numbers are exact up to 2^53 only.
//!
//! Enters: an answer. Leaves: its JSON, as the command line writes it except that integers are signed: an address in the upper
//! half of the address space, where kernels are, is written as the negative number with the same 64 bits. Kernels use the top
//! of that half, so these numbers are small: 0xffffffff81000010 is -2130706416. Never here: the fields of an answer.

use std::io;

use serde::Serialize;
use serde_json::{
    Serializer,
    ser::{CompactFormatter, Formatter},
};

/// Returns the JSON of `answer` with signed integers.
pub fn to_string(answer: &impl Serialize) -> String {
    let mut json = Vec::with_capacity(128);
    answer
        .serialize(&mut Serializer::with_formatter(&mut json, SignedIntegers))
        .expect("keys of answers are texts and numbers");
    String::from_utf8(json).expect("JSON is UTF-8")
}

/// Writes JSON without spaces, and integers as signed ones.
struct SignedIntegers;

impl Formatter for SignedIntegers {
    fn write_u64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: u64) -> io::Result<()> {
        CompactFormatter.write_i64(writer, value.cast_signed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_kernels_are_exact_as_doubles() {
        let link_addresses =
            [0x1150, 0xffff_ffff_8100_0010, 0xffff_8000_8001_0004, 0xfff0_0000_8000_0004, u64::MAX];
        assert_eq!(
            to_string(&link_addresses),
            "[4432,-2130706416,-140735340806140,-4503597479886844,-1]",
            "x86-64, arm64 with 48 and 52 bits"
        );
        for address in link_addresses {
            let read: f64 = to_string(&address).parse().unwrap();
            assert_eq!((read as i64).cast_unsigned(), address);
        }
    }

    #[test]
    fn all_else_is_as_on_the_command_line() {
        let answer = serde_json::json!({ "text": "é\"\u{1}", "share": 0.1, "none": null, "by": { "1": [true, -7, 7] } });
        assert_eq!(to_string(&answer), answer.to_string());
    }
}
