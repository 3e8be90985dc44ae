//! The symbols of an image ⇄ the bytes of a Parquet file, which readers use who do not have the image. It has the metadata, checksum and
//! checks of a segment, with the image's id in place of the epoch's.

use parquet::data_type::Int64Type;

use crate::{EpochId, ImageId, ImageOffset, ImageSymbol, database::SegmentRange};

use super::{
    MAX_SEGMENT_ROWS, MAX_TEXT_BYTES, SEGMENT_VERSION, SegmentError,
    columns::{END, NAME, START, SYMBOLS_SCHEMA},
    decode::{Group, read_beside},
    encode::{column, encode_group, texts},
    metadata::Metadata,
};

/// Returns the symbols of an image as a file. Symbols are ascending and do not overlap. Those whose names are longer than readers allow are
/// left out.
pub fn encode_symbols(image: &ImageId, symbols: &[ImageSymbol]) -> Result<Vec<u8>, SegmentError> {
    let rows: Vec<&ImageSymbol> =
        symbols.iter().filter(|symbol| symbol.name.len() <= MAX_TEXT_BYTES).collect();
    SegmentError::limit("rows", rows.len() as u64, MAX_SEGMENT_ROWS as u64)?;
    let metadata = Metadata::new(&EpochId(image.as_str().to_owned()), SegmentRange::one(1), &[])?;
    let end = |symbol: &ImageSymbol| symbol.offset.0.saturating_add(symbol.size_bytes);
    encode_group(&SYMBOLS_SCHEMA, &metadata, |group| {
        texts(group, &rows, |_| image.as_str())?;
        column::<Int64Type>(group, rows.iter().map(|symbol| symbol.offset.0 as i64).collect())?;
        column::<Int64Type>(group, rows.iter().map(|symbol| end(symbol) as i64).collect())?;
        texts(group, &rows, |symbol| &symbol.name)
    })
}

/// Reads the symbols of an image, ascending. Hostile bytes return an error that says what is wrong, and never panic. Without `verify` the
/// checksum is not checked.
pub(crate) fn read_symbols(
    bytes: &[u8],
    image: &ImageId,
    verify: bool,
) -> Result<Vec<ImageSymbol>, SegmentError> {
    let file = read_beside(bytes, verify, SEGMENT_VERSION, |_| &SYMBOLS_SCHEMA, Vec::new(), read_group)?;
    if file.epoch.0 != image.as_str() {
        return Err(SegmentError::Metadata { key: "dwell.epoch", why: "it is another image's".to_owned() });
    }
    let mut symbols = file.contents;
    symbols.sort();
    Ok(symbols)
}

fn read_group(group: &Group<'_>, symbols: &mut Vec<ImageSymbol>) -> Result<(), SegmentError> {
    let starts = group.values::<Int64Type>(START)?;
    let ends = group.values::<Int64Type>(END)?;
    let names = group.texts(NAME, str::to_owned)?;
    for ((start, end), name) in starts.into_iter().zip(ends).zip(names) {
        let (start, end) = (start as u64, end as u64);
        let size_bytes = end.saturating_sub(start);
        symbols.push(ImageSymbol { offset: ImageOffset(start), size_bytes, name });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn image() -> ImageId {
        ImageId::named("ab12")
    }

    fn symbols() -> impl Strategy<Value = Vec<ImageSymbol>> {
        let symbol = (0..1_u64 << 40, 0..1_u64 << 20, "[a-zA-Z_:<>,]{0,30}");
        prop::collection::vec(symbol, 0..20).prop_map(|all| {
            let make =
                |(offset, size_bytes, name)| ImageSymbol { offset: ImageOffset(offset), size_bytes, name };
            let mut symbols: Vec<ImageSymbol> = all.into_iter().map(make).collect();
            symbols.sort();
            symbols
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn what_is_written_is_read(symbols in symbols()) {
            let bytes = encode_symbols(&image(), &symbols).unwrap();
            prop_assert_eq!(read_symbols(&bytes, &image(), true).unwrap(), symbols);
        }

        #[test]
        fn hostile_bytes_never_panic(symbols in symbols(), changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
            let mut bytes = encode_symbols(&image(), &symbols).unwrap();
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            let _ = read_symbols(&bytes, &image(), false);
            let _ = read_symbols(&bytes[..bytes.len() / 2], &image(), false);
        }
    }

    #[test]
    fn symbols_of_another_image_are_refused() {
        let bytes = encode_symbols(&image(), &[]).unwrap();
        assert!(read_symbols(&bytes, &ImageId::named("cd34"), true).is_err());
    }

    #[test]
    fn many_long_names_are_read() {
        let symbol = |n: u64| ImageSymbol {
            offset: ImageOffset(16 * n),
            size_bytes: 16,
            name: format!(
                "_ZN4core3ptr{}drop_in_place17h{:016x}E",
                "5alloc".repeat((n % 9) as usize),
                n.wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ),
        };
        let mut symbols: Vec<ImageSymbol> = (0..100_000).map(symbol).collect();
        let long = ImageSymbol { name: "x".repeat(MAX_TEXT_BYTES + 1), ..symbol(100_000) };
        let bytes = encode_symbols(&image(), &[&symbols[..], &[long]].concat()).unwrap();
        symbols.sort();
        assert_eq!(read_symbols(&bytes, &image(), true).unwrap(), symbols);
    }
}
