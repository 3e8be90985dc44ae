//! Demangles names of symbols, with limits because symbols may be hostile.

use std::fmt::{self, Write};

/// Length in bytes above which a symbol is not demangled. The longest in a build of LLVM is about 6 KB.
const MANGLED_BYTES_MAX: usize = 16 << 10;
/// Length in bytes above which a demangled name is rejected: back references let 100 bytes expand without limit.
const DEMANGLED_BYTES_MAX: usize = 64 << 10;
/// Recursion limit. cpp_demangle uses up to 2 KB of stack for each level in debug builds, and the thread may have a small
/// stack.
const RECURSION_MAX: u32 = 96;

/// Demangles a Rust or C++ symbol. Other symbols, hostile ones and those of more than 16 KiB are returned unchanged.
pub fn demangle(name: &str) -> String {
    demangle_rust(name).or_else(|| demangle_cpp(name)).unwrap_or_else(|| name.to_owned())
}

fn demangle_rust(name: &str) -> Option<String> {
    let rust = name.starts_with("_R") || name.starts_with("_ZN");
    if !rust || name.len() > MANGLED_BYTES_MAX {
        return None;
    }
    // The alternate form omits the hash, which means nothing to users.
    bounded(format_args!("{:#}", rustc_demangle::try_demangle(name).ok()?))
}

fn demangle_cpp(name: &str) -> Option<String> {
    if !name.starts_with("_Z") || name.len() > MANGLED_BYTES_MAX {
        return None;
    }
    // Suffixes of GCC's clones (`.cold`, `.part.0`, `.constprop.0`) are part of the demangler's grammar; LLVM's `.llvm.123`
    // is not.
    let name = name.split_once(".llvm.").map_or(name, |(name, _)| name);
    let parse = cpp_demangle::ParseOptions::default().recursion_limit(RECURSION_MAX);
    let symbol = cpp_demangle::BorrowedSymbol::new_with_options(name.as_bytes(), &parse).ok()?;
    let options = cpp_demangle::DemangleOptions::new().no_return_type().recursion_limit(RECURSION_MAX);
    let mut out = Bounded(String::new());
    symbol.structured_demangle(&mut out, &options).ok()?;
    Some(out.0)
}

fn bounded(text: fmt::Arguments<'_>) -> Option<String> {
    let mut out = Bounded(String::new());
    out.write_fmt(text).ok()?;
    Some(out.0)
}

/// A text that returns an error instead of exceeding its limit.
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > DEMANGLED_BYTES_MAX {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

/// Returns a name, as the source spells it, without its list of parameters.
pub fn without_parameters(demangled: &str) -> &str {
    // `operator()` and `(anonymous namespace)` contain parentheses too: only a parameter list ends the name.
    match demangled.rfind(')') {
        Some(close) if !demangled[close..].contains("::") => {
            let mut depth = 0;
            let open = demangled[..=close].char_indices().rev().find(|(_, c)| {
                depth += match c {
                    ')' => 1,
                    '(' => -1,
                    _ => 0,
                };
                depth == 0
            });
            open.map_or(demangled, |(i, _)| &demangled[..i])
        }
        _ => demangled,
    }
}

#[cfg(test)]
mod tests {
    use super::demangle;

    #[test]
    fn names_of_every_kind() {
        for (mangled, name) in [
            ("main", "main"),
            ("_ZN3foo3barEi", "foo::bar(int)"),
            ("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE", "core::fmt::Write::write_fmt"),
            ("_RNvCs1234_7mycrate3foo", "mycrate::foo"),
            (
                "_ZNSt6vectorIiSaIiEE9push_backEOi.cold",
                "std::vector<int, std::allocator<int> >::push_back(int&&) [clone .cold]",
            ),
            ("_Z", "_Z"),
            ("_ZNnonsense", "_ZNnonsense"),
            ("", ""),
        ] {
            assert_eq!(demangle(mangled), name);
        }
    }

    #[test]
    fn hostile_names_stay_as_they_are() {
        let deep = format!("_Z{}", "N".repeat(10_000));
        let pointers = format!("_Z1f{}i", "P".repeat(15_000));
        // Every argument is a pair of the previous one: 300 bytes stand for 2^40 leaves.
        let mut bomb = String::from("_Z1fSt4pairIiiE");
        for level in 0..40 {
            let back = if level < 1 { "S_".to_owned() } else { format!("S{}_", base36(level - 1)) };
            bomb.push_str(&format!("St4pairI{back}{back}E"));
        }
        for name in [deep, pointers, "_Z".repeat(100_000), "_R".repeat(9_000), bomb] {
            assert!(demangle(&name).len() <= super::DEMANGLED_BYTES_MAX.max(name.len()));
        }
    }

    fn base36(number: usize) -> char {
        char::from_digit(number as u32 % 36, 36).unwrap().to_ascii_uppercase()
    }
}
