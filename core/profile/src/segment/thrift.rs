//! Walks structures in Thrift's compact protocol, which Parquet uses for its footer and page headers, without building
//! anything, so that sizes can be checked before the Parquet crate allocates memory by them.
//!
//! It is stricter than the protocol where Parquet does not need more: no maps, no sets, no lists of booleans, fields in
//! ascending order, short lists, shallow nesting. The Parquet crate reads everything that passes here in the same way.

/// Limit of the nesting of structures. Parquet uses up to 6 levels.
const MAX_DEPTH: usize = 12;
/// Limit of the elements of a list: row groups, columns, key-value pairs.
const MAX_LIST: u64 = 65_536;

/// Walks one structure and calls `visit` for each integer with the path of field ids that leads to it (the elements of
/// a list have the path of the list). Returns the bytes after the structure; `None` if it is malformed.
pub(super) fn walk<'a>(bytes: &'a [u8], visit: &mut dyn FnMut(&[u64], i64)) -> Option<&'a [u8]> {
    let mut walker = Walker { rest: bytes, path: Vec::with_capacity(MAX_DEPTH), visit };
    walker.structure()?;
    Some(walker.rest)
}

struct Walker<'a, 'v> {
    rest: &'a [u8],
    path: Vec<u64>,
    visit: &'v mut dyn FnMut(&[u64], i64),
}

impl Walker<'_, '_> {
    fn structure(&mut self) -> Option<()> {
        if self.path.len() >= MAX_DEPTH {
            return None;
        }
        self.path.push(0);
        let mut last_id = 0;
        loop {
            let head = self.byte()?;
            if head == 0 {
                self.path.pop();
                return Some(());
            }
            let id = match u64::from(head >> 4) {
                0 => u64::try_from(self.int()?).ok()?,
                delta => last_id + delta,
            };
            // Field ids are 16 bits wide.
            if id <= last_id || id > 0x7fff {
                return None;
            }
            last_id = id;
            *self.path.last_mut()? = id;
            self.value(head & 15)?;
        }
    }

    fn value(&mut self, kind: u8) -> Option<()> {
        match kind {
            // The type of a boolean field contains its value.
            1 | 2 => Some(()),
            3 => self.skip(1),
            4..=6 => {
                let value = self.int()?;
                (self.visit)(&self.path, value);
                Some(())
            }
            7 => self.skip(8),
            8 => {
                let length = self.varint()?;
                self.skip(length)
            }
            9 => self.list(),
            12 => self.structure(),
            _ => None,
        }
    }

    fn list(&mut self) -> Option<()> {
        let head = self.byte()?;
        let size = if head >> 4 == 15 { self.varint()? } else { u64::from(head >> 4) };
        let kind = head & 15;
        if size > MAX_LIST || !matches!(kind, 3..=8 | 12) {
            return None;
        }
        (0..size).try_for_each(|_| self.value(kind))
    }

    fn int(&mut self) -> Option<i64> {
        let raw = self.varint()?;
        Some((raw >> 1) as i64 ^ -((raw & 1) as i64))
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..63).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        // A tenth byte holds only the topmost bit.
        let byte = self.byte()?;
        (byte <= 1).then_some(value | u64::from(byte) << 63)
    }

    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    fn skip(&mut self, bytes: u64) -> Option<()> {
        self.rest = self.rest.get(usize::try_from(bytes).ok()?..)?;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(bytes: &[u8], expect: Expect) {
        let mut seen = String::new();
        let rest = walk(bytes, &mut |path, value| seen += &format!("{path:?}={value} "));
        expect.assert_eq(&format!("{seen}rest {rest:?}"));
    }

    #[test]
    fn structures_lists_and_numbers() {
        check(&[0, 9], expect!["rest Some([9])"]);
        check(&[0x15, 2, 0x15, 0x80, 1, 0, 7], expect!["[1]=1 [2]=64 rest Some([7])"]);
        check(&[0x5c, 0x15, 4, 0, 0], expect!["[5, 1]=2 rest Some([])"]);
        check(&[0x19, 0x25, 2, 4, 0], expect!["[1]=1 [1]=2 rest Some([])"]);
        check(&[0x18, 3, b'a', b'b', b'c', 0], expect!["rest Some([])"]);
    }

    #[test]
    fn what_parquet_never_writes_is_refused() {
        check(&[0x15], expect!["rest None"]);
        check(&[0x18, 100, 0], expect!["rest None"]);
        // A list of 2^31 booleans takes no bytes, but reading it takes very long.
        check(&[0x19, 0xf1, 0xff, 0xff, 0xff, 0xff, 7, 0], expect!["rest None"]);
        check(&[0x1b, 1, 0x55, 0, 0], expect!["rest None"]);
        check(&[0x1c; 64], expect!["rest None"]);
        check(&[0x05, 4, 2, 0x05, 2, 2, 0], expect!["[2]=1 rest None"]);
        check(&[0x15, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0], expect!["rest None"]);
    }
}
