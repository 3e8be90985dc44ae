//! Operations on paths as debug information spells them.

/// Appends `part` to the path. An absolute part replaces the path.
pub(crate) fn push(path: &mut String, part: &str) {
    if part.starts_with('/') {
        path.clear();
    } else if !path.is_empty() && !path.ends_with('/') {
        path.push('/');
    }
    path.push_str(part);
}

/// Returns the path without `.`, `..` and doubled slashes. Only the text is used, since the file system that the compiler
/// saw is not available.
pub(crate) fn normalize(path: &str) -> String {
    let absolute = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => match parts.last() {
                Some(&last) if last != ".." => _ = parts.pop(),
                None if absolute => {}
                _ => parts.push(".."),
            },
            _ => parts.push(part),
        }
    }
    let joined = parts.join("/");
    if absolute { format!("/{joined}") } else { joined }
}

/// Returns the last component of the path.
pub(crate) fn last(path: &str) -> &str {
    path.trim_end_matches(['/']).rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::{last, normalize, push};

    #[test]
    fn paths_normalize_by_text() {
        for (path, normal) in [
            ("/a/b/../c", "/a/c"),
            ("/a/./b//c/", "/a/b/c"),
            ("/../a", "/a"),
            ("../a/../../b", "../../b"),
            ("a.c", "a.c"),
            ("/", "/"),
            ("", ""),
        ] {
            assert_eq!(normalize(path), normal, "{path}");
            assert!(normal.ends_with(last(path)) || last(path).starts_with('.'), "{path}");
        }
    }

    #[test]
    fn absolute_parts_replace() {
        let mut path = String::from("/build");
        push(&mut path, "src");
        push(&mut path, "a.c");
        assert_eq!(path, "/build/src/a.c");
        push(&mut path, "/usr/include/b.h");
        assert_eq!(path, "/usr/include/b.h");
    }
}
