//! Standard base64 with padding (RFC 4648 §4), for the one binary value that Parquet needs as text.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

pub(super) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = (0..3).fold(0u32, |word, i| word << 8 | u32::from(chunk.get(i).copied().unwrap_or(0)));
        for i in 0..4 {
            let sextet = (word >> (18 - 6 * i)) & 63;
            text.push(if i <= chunk.len() { ALPHABET[sextet as usize].into() } else { '=' });
        }
    }
    text
}

/// Decodes a text; returns `None` for any text that [`encode`] would not write, except for stray bits under the
/// padding.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let body = text.strip_suffix("==").or_else(|| text.strip_suffix('=')).unwrap_or(text);
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for chunk in body.as_bytes().chunks(4) {
        let mut word = 0u32;
        for i in 0..4 {
            word = word << 6 | chunk.get(i).map_or(Some(0), |&c| sextet(c))?;
        }
        bytes.extend_from_slice(word.to_be_bytes().get(1..chunk.len())?);
    }
    Some(bytes)
}

fn sextet(c: u8) -> Option<u32> {
    let value = match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(u32::from(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc_4648_vectors() {
        for (plain, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")]
        {
            assert_eq!(encode(plain.as_bytes()), text);
            assert_eq!(decode(text).as_deref(), Some(plain.as_bytes()));
        }
        for bad in ["Z", "Zg=", "Z===", "Zm9=v", "Zm9\n", "====", "é==="] {
            assert!(decode(bad).is_none(), "{bad}");
        }
    }

    proptest::proptest! {
        #[test]
        fn every_byte_string_comes_back(bytes: Vec<u8>) {
            proptest::prop_assert_eq!(decode(&encode(&bytes)), Some(bytes));
        }
    }
}
