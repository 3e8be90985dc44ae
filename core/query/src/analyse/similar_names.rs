//! Removes what compilers and namespaces add to the name that a function has in its source.
//!
//! Input: names of procedures, mangled or as the source spells them. Output: the part that a person would type. This module
//! decides nothing: a user who typed only a part of a name is offered the complete names.

use std::borrow::Cow;

/// Words that GCC and LLVM append, besides numbers, to the names of parts and copies of functions.
const CLONES: [&str; 17] = [
    "constprop",
    "isra",
    "part",
    "cold",
    "hot",
    "warm",
    "unlikely",
    "split",
    "clone",
    "lto_priv",
    "localalias",
    "llvm",
    "ipa",
    "simdclone",
    "resolver",
    "default",
    "destroy",
];

/// Returns a name without the suffixes of parts and copies of functions: `f.constprop.0.cold`, `f() [clone .part.0]`.
pub fn without_clones(name: &str) -> &str {
    let mut rest = name;
    loop {
        let bracket = rest.rsplit_once(" [clone ").filter(|(_, clone)| clone.ends_with(']'));
        let bracket = bracket.or_else(|| rest.rsplit_once(" (.").filter(|(_, clone)| clone.ends_with(')')));
        let suffix = rest.rsplit_once('.').filter(|(before, clone)| !before.is_empty() && is_clone(clone));
        match bracket.or(suffix) {
            Some((before, _)) => rest = before,
            None => return rest,
        }
    }
}

fn is_clone(suffix: &str) -> bool {
    let number = !suffix.is_empty() && suffix.bytes().all(|b| b.is_ascii_digit());
    number || CLONES.contains(&suffix) || suffix.starts_with("__uniq")
}

/// Returns a name, as the source spells it, without template arguments.
pub fn without_arguments(name: &str) -> Cow<'_, str> {
    // Names of operators may contain these brackets themselves.
    if !name.contains('<') || name.contains("operator<") || name.contains("operator>") {
        return Cow::Borrowed(name);
    }
    let mut depth = 0_usize;
    let mut kept = String::new();
    for c in name.chars() {
        match c {
            '<' => depth += 1,
            '>' if depth > 0 => depth -= 1,
            c if depth == 0 => kept.push(c),
            _ => {}
        }
    }
    Cow::Owned(kept)
}

/// Returns whether `name` is `last` preceded by namespaces, packages or its return type.
pub fn ends_in(name: &str, last: &str) -> bool {
    let before = name.strip_suffix(last).filter(|_| !last.is_empty());
    before.is_some_and(|before| {
        before.is_empty() || ["::", ".", " ", "*", "&"].iter().any(|end| before.ends_with(end))
    })
}

#[cfg(test)]
mod tests {
    use super::{ends_in, without_arguments, without_clones};

    #[test]
    fn names_lose_what_compilers_append() {
        for (name, plain) in [
            ("spin_a.constprop.0", "spin_a"),
            ("spin_a.constprop.0.cold", "spin_a"),
            ("f.isra.0.part.3", "f"),
            ("f.lto_priv.0", "f"),
            ("f.llvm.1234567890", "f"),
            ("f.__uniq.99.llvm.1", "f"),
            ("_ZL1fi.cold", "_ZL1fi"),
            ("f(int) [clone .constprop.0] [clone .cold]", "f(int)"),
            ("f(int) (.cold)", "f(int)"),
            ("main.handler", "main.handler"),
            ("f", "f"),
            (".cold", ".cold"),
        ] {
            assert_eq!(without_clones(name), plain);
        }
    }

    #[test]
    fn names_are_suggested_by_their_last_part() {
        for (name, asked) in [
            ("a::b::f", "f"),
            ("a::b::f", "b::f"),
            ("main.handler", "handler"),
            ("Node const* trees::find", "find"),
            ("f", "f"),
        ] {
            assert!(ends_in(name, asked), "{name} {asked}");
        }
        for (name, asked) in [("a::brief", "f"), ("off", "f"), ("a::f", "")] {
            assert!(!ends_in(name, asked), "{name} {asked}");
        }
        assert_eq!(
            without_arguments("std::vector<std::pair<int, int> >::push_back"),
            "std::vector::push_back"
        );
        assert_eq!(without_arguments("a::operator<"), "a::operator<");
    }
}
