//! Documents that are cited must exist. Enters: a file's path and text, and the paths of all files. Leaves: one line for each dead
//! citation. Pure.

use std::path::{Component, Path};

/// Returns one line for each link of a Markdown file, and for each mention of a document under `docs/`, that leads
/// nowhere. JSON is not checked, because machine models cite documents of other projects.
pub fn problems(path: &str, text: &str, files: &[String]) -> Vec<String> {
    let folder = Path::new(path).parent().unwrap_or(Path::new(""));
    let linked = if path.ends_with(".md") { targets(text) } else { Vec::new() };
    let linked = linked.into_iter().map(|target| (target, resolve(folder, target)));
    let mentioned = if path.ends_with(".json") { Vec::new() } else { mentions(text) };
    let mentioned = mentioned.into_iter().map(|target| (target, target.to_owned()));
    let dead = linked.chain(mentioned).filter(|(_, file)| !exists(file, files));
    dead.map(|(target, _)| format!("{path}: cites {target}, which is not there")).collect()
}

/// Returns whether a path is a file of the repository, or a folder with files.
fn exists(path: &str, files: &[String]) -> bool {
    files
        .iter()
        .any(|file| file.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
}

/// Returns the relative targets of `[text](target)`, without their anchors.
fn targets(text: &str) -> Vec<&str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    let files =
        targets.filter(|target| !target.contains("://")).map(|target| target.split('#').next().unwrap_or(""));
    files.filter(|target| !target.is_empty()).collect()
}

/// Returns words such as `docs/guide.md` that begin at the root of the repository.
fn mentions(text: &str) -> Vec<&str> {
    let is_part = |character: char| character.is_ascii_alphanumeric() || "/._-".contains(character);
    let words = text.split(|character| !is_part(character)).map(|word| word.trim_end_matches('.'));
    words.filter(|word| word.starts_with("docs/") && word.ends_with(".md")).collect()
}

fn resolve(folder: &Path, target: &str) -> String {
    let mut parts: Vec<_> = Vec::new();
    for part in folder.join(target).components() {
        match part {
            Component::ParentDir => drop(parts.pop()),
            Component::Normal(name) => parts.push(name.to_string_lossy().into_owned()),
            _ => {}
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    fn check(path: &str, text: &str, expected: Expect) {
        let files = ["README.md", "docs/guide.md", "docs/design/README.md"].map(str::to_owned);
        expected.assert_eq(&super::problems(path, text, &files).join("\n"));
    }

    #[test]
    fn links_lead_to_files_and_folders() {
        let text = "[a](docs/guide.md#limits) [b](docs/design) [c](https://example.org/x.md) [d](#here)";
        check("README.md", text, expect![""]);
        check("docs/design/README.md", "[a](../guide.md) [b](README.md) [c](../../README.md)", expect![""]);
        check(
            "docs/guide.md",
            "[a](guide2.md)",
            expect!["docs/guide.md: cites guide2.md, which is not there"],
        );
    }

    #[test]
    fn comments_cite_documents_that_exist() {
        check("core/a/src/a.rs", "//! Why: docs/guide.md.", expect![""]);
        let text = concat!("// (docs/", "gone.md)");
        let dead = concat!("core/a/src/a.rs: cites docs/", "gone.md, which is not there");
        assert_eq!(super::problems("core/a/src/a.rs", text, &[]), [dead]);
    }
}
