//! What a statement selects from the tables that Dwell computes, read off the statement's syntax tree.
//!
//! Enters: the tree as `json_serialize_sql` writes it. Leaves: for each table the epochs, images and procedures that
//! its rows may belong to, so that nothing else is analysed; or the name of a function that a statement must not call.
//! Never here: rows.
//!
//! A selection is sound: it never leaves out a row that the statement needs. It is taken only from conditions of the
//! form `column = constant` and `column IN (constants)` that a `WHERE` joins by `AND`. Rows that do not fulfil them are
//! dropped by the statement itself, whatever the kinds of its joins, since such a condition is not true for NULL
//! either. A table that is read several times is computed for all that any of these selects.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// Functions that would hide other statements or settings in a query, or that end the process in the tested versions of
/// DuckDB.
const FORBIDDEN: &[&str] = &[
    "query",
    "query_table",
    "json_execute_serialized_sql",
    "enable_logging",
    "disable_logging",
    "set_log_storage",
];
/// Prefix of the table functions behind our views.
pub const INTERNAL: &str = "dwell__";
/// The macro that lists a procedure, whose arguments select rows of `instructions`.
const ANNOTATE: &str = "dwell_annotate";
/// The macro that turns a selector into the id of an epoch.
const EPOCH: &str = "dwell_epoch";

/// The macro that compares two epochs, which are its arguments.
const DIFF: &str = "dwell_diff";
/// The macro that reads all of `lines`.
const SOURCE: &str = "dwell_source";

/// The values that one column may have; `None` if they are not restricted.
type Values = Option<BTreeSet<String>>;

/// A restriction of the rows of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Ids or, from `dwell_epoch`, selectors of epochs.
    pub epochs: Values,
    /// Ids, paths or file names of images.
    pub images: Values,
    /// Linkage names or demangled names of procedures.
    pub procedures: Values,
}

/// The restrictions of each table, one for each place where the statement reads it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selected(BTreeMap<String, Vec<Selection>>);

impl Selected {
    /// Returns the restrictions of a table: a row may belong to any of them. A statement that reads a table without
    /// naming it is not known, so it may read all of it.
    pub fn of(&self, table: &str) -> Vec<Selection> {
        self.0.get(table).cloned().unwrap_or_else(|| vec![Selection::default()])
    }
}

/// Reads the selections off the tree of a query. The error is the name of a function that must not be called.
pub fn selected(tree: &Value) -> Result<Selected, String> {
    let mut walk = Walk { selected: Selected::default(), forbidden: None };
    walk.anything(tree);
    walk.forbidden.map_or(Ok(walk.selected), Err)
}

/// Adds the names of all tables and functions in the tree of a query, in lower case.
pub fn names_of_sources(tree: &Value, names: &mut BTreeSet<String>) {
    match tree {
        Value::Array(values) => values.iter().for_each(|value| names_of_sources(value, names)),
        Value::Object(fields) => {
            let named = [text(tree, "table_name"), text(tree, "function_name")];
            names.extend(named.into_iter().filter(|name| !name.is_empty()).map(str::to_ascii_lowercase));
            fields.values().for_each(|value| names_of_sources(value, names));
        }
        _ => {}
    }
}

struct Walk {
    selected: Selected,
    forbidden: Option<String>,
}

/// A table in a FROM clause.
struct Source<'a> {
    table: String,
    alias: &'a str,
    base: Selection,
    /// Whether an unqualified column may mean only this table, or a column that joined tables have in common.
    is_alone: bool,
    /// The columns in common with other tables of the join.
    using: Vec<&'a str>,
    /// Whether a row of another table may need rows that the statement drops later, or the columns have other names
    /// here.
    is_needed_whole: bool,
}

impl Walk {
    fn anything(&mut self, value: &Value) {
        match value {
            Value::Array(values) => values.iter().for_each(|value| self.anything(value)),
            Value::Object(fields) => {
                match text(value, "type") {
                    "SELECT_NODE" => return self.select(value),
                    "BASE_TABLE" | "TABLE_FUNCTION" => self.unrestricted(value),
                    _ => {}
                }
                self.check_function(value);
                fields.values().for_each(|value| self.anything(value));
            }
            _ => {}
        }
    }

    fn check_function(&mut self, value: &Value) {
        let name = text(value, "function_name").to_ascii_lowercase();
        if FORBIDDEN.contains(&name.as_str()) || name.starts_with(INTERNAL) {
            self.forbidden = Some(name);
            return;
        }
        if name == SOURCE {
            self.add("lines".to_owned(), Selection::default());
        }
        if name == DIFF {
            let arguments = arguments(value);
            let epochs = arguments.iter().map(|argument| constant(argument)).collect();
            let epochs = if arguments.is_empty() { None } else { epochs };
            self.add("procedure_samples".to_owned(), Selection { epochs, ..Selection::default() });
        }
    }

    fn unrestricted(&mut self, value: &Value) {
        let source = source(value);
        if let Some(Source { table, base, .. }) = source {
            self.add(table, base);
        }
    }

    fn add(&mut self, table: String, selection: Selection) {
        self.selected.0.entry(table).or_default().push(selection);
    }

    fn select(&mut self, node: &Value) {
        let mut sources = Vec::new();
        if let Some(from) = node.get("from_table") {
            self.from(from, &mut sources);
        }
        if let [only] = &mut sources[..] {
            only.is_alone = text(&node["from_table"], "type") != "JOIN";
        }
        // A sample of a table's rows depends on all of them.
        let is_sampled = node.get("sample").is_some();
        let conditions = node.get("where_clause").filter(|_| !is_sampled).map(conditions).unwrap_or_default();
        for source in sources {
            let mut selection = source.base.clone();
            for (column, values) in &conditions {
                source.restrict(&mut selection, column, values);
            }
            self.add(source.table, selection);
        }
        let fields = node.as_object().into_iter().flatten().filter(|(key, _)| *key != "from_table");
        fields.for_each(|(_, value)| self.anything(value));
    }

    fn from<'a>(&mut self, from: &'a Value, sources: &mut Vec<Source<'a>>) {
        match text(from, "type") {
            "BASE_TABLE" | "TABLE_FUNCTION" if from.get("sample").is_none() => {
                sources.extend(source(from));
                self.check_function(&from["function"]);
                from.get("function").into_iter().for_each(|function| self.anything(&function["children"]));
            }
            // A row of a positional join depends on the number of rows on either side.
            "JOIN" if text(from, "ref_type") != "POSITIONAL" => {
                let mut own = Vec::new();
                self.from(&from["left"], &mut own);
                let right = own.len();
                self.from(&from["right"], &mut own);
                // An ASOF join takes the nearest row of the right side: without it, another one would be the nearest.
                let is_asof = text(from, "ref_type") == "ASOF";
                own[right..].iter_mut().for_each(|source| source.is_needed_whole |= is_asof);
                // After a semijoin or an antijoin an unqualified column is one of the left side.
                let is_outer = ["INNER", "LEFT", "RIGHT", "OUTER", "FULL"].contains(&text(from, "join_type"));
                let using = from.get("using_columns").and_then(Value::as_array).into_iter().flatten();
                let using: Vec<&str> = using.filter_map(Value::as_str).filter(|_| is_outer).collect();
                own.iter_mut().for_each(|source| source.using.extend(&using));
                sources.append(&mut own);
                from.get("condition").into_iter().for_each(|condition| self.anything(condition));
            }
            _ => self.anything(from),
        }
    }
}

/// Returns the table that is read by name or by a macro.
fn source(from: &Value) -> Option<Source<'_>> {
    let alias = text(from, "alias");
    let table = text(from, "table_name");
    let is_needed_whole = from.get("column_name_alias").is_some();
    let found = |table: String, name, base| {
        let alias = if alias.is_empty() { name } else { alias };
        Some(Source { table, alias, base, is_alone: false, using: Vec::new(), is_needed_whole })
    };
    if !table.is_empty() {
        return found(table.to_ascii_lowercase(), table, Selection::default());
    }
    let function = from.get("function")?;
    if !text(function, "function_name").eq_ignore_ascii_case(ANNOTATE) {
        return None;
    }
    let [image, procedure] = &arguments(function)[..] else {
        return found("instructions".to_owned(), ANNOTATE, Selection::default());
    };
    let base = Selection { images: only(image), procedures: only(procedure), epochs: None };
    found("instructions".to_owned(), ANNOTATE, base)
}

/// Returns the arguments of a function; none if they are given by name, in any order.
fn arguments(function: &Value) -> Vec<&Value> {
    let arguments = function.get("children").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let is_named = |argument: &Value| argument.get("alias").is_some();
    if arguments.iter().any(is_named) { Vec::new() } else { arguments.iter().collect() }
}

/// Returns the value of a constant as the only one of a column.
fn only(value: &Value) -> Values {
    Some(BTreeSet::from([constant(value)?]))
}

impl Source<'_> {
    fn restrict(&self, selection: &mut Selection, column: &[&str], values: &BTreeSet<String>) {
        let (qualifier, name) = match column {
            [name] => (None, *name),
            [.., qualifier, name] => (Some(*qualifier), *name),
            [] => return,
        };
        let means_this = match qualifier {
            Some(qualifier) => qualifier.eq_ignore_ascii_case(self.alias),
            None => self.is_alone || self.using.iter().any(|using| using.eq_ignore_ascii_case(name)),
        };
        let known = match name.to_ascii_lowercase().as_str() {
            "epoch" => &mut selection.epochs,
            "image" => &mut selection.images,
            "procedure" => &mut selection.procedures,
            _ => return,
        };
        // A column that is restricted twice keeps one restriction: each of them alone is sound.
        if means_this && known.is_none() && !self.is_needed_whole {
            *known = Some(values.clone());
        }
    }
}

/// Returns the conditions that restrict a column to constants and that all rows must fulfil.
fn conditions(clause: &Value) -> Vec<(Vec<&str>, BTreeSet<String>)> {
    let children = || clause.get("children").and_then(Value::as_array).into_iter().flatten();
    match text(clause, "type") {
        "CONJUNCTION_AND" => children().flat_map(conditions).collect(),
        "COMPARE_EQUAL" => {
            let (left, right) = (&clause["left"], &clause["right"]);
            let read = |a, b| Some((names(a)?, only(b)?));
            read(left, right).or_else(|| read(right, left)).into_iter().collect()
        }
        "COMPARE_IN" => {
            let column = children().next().and_then(names);
            let values: Option<BTreeSet<String>> = children().skip(1).map(constant).collect();
            column.zip(values).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the parts of a column's name.
fn names(value: &Value) -> Option<Vec<&str>> {
    let names = value.get("column_names").filter(|_| text(value, "type") == "COLUMN_REF")?;
    names.as_array()?.iter().map(Value::as_str).collect()
}

/// Returns a constant text, also one that selects an epoch by `dwell_epoch`.
fn constant(value: &Value) -> Option<String> {
    if text(value, "function_name").eq_ignore_ascii_case(EPOCH) {
        return constant(value.get("children")?.get(0)?);
    }
    let constant = value.get("value").filter(|_| text(value, "type") == "VALUE_CONSTANT")?;
    let is_text = constant.get("type")?.get("id")?.as_str()? == "VARCHAR";
    constant.get("value")?.as_str().filter(|_| is_text).map(str::to_owned)
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn column(names: &[&str]) -> Value {
        serde_json::json!({"type": "COLUMN_REF", "column_names": names})
    }

    fn literal(text: &str) -> Value {
        serde_json::json!({"type": "VALUE_CONSTANT", "value": {"type": {"id": "VARCHAR"}, "value": text}})
    }

    fn equal(names: &[&str], text: &str) -> Value {
        serde_json::json!({"type": "COMPARE_EQUAL", "left": column(names), "right": literal(text)})
    }

    fn table(name: &str, alias: &str) -> Value {
        serde_json::json!({"type": "BASE_TABLE", "table_name": name, "alias": alias})
    }

    fn select(from: Value, condition: Value) -> Value {
        serde_json::json!({"type": "SELECT_NODE", "from_table": from, "where_clause": condition})
    }

    fn join(kind: &str, using: &[&str]) -> Value {
        serde_json::json!({"type": "JOIN", "join_type": kind, "ref_type": "REGULAR", "using_columns": using,
            "left": table("lines", ""), "right": table("instructions", "i")})
    }

    fn check(tree: Value, expected: Expect) {
        let said = |values: &Values| {
            values.as_ref().map_or("*".to_owned(), |v| v.iter().cloned().collect::<Vec<_>>().join("|"))
        };
        let line = |s: Selection| format!("{} {} {}", said(&s.epochs), said(&s.images), said(&s.procedures));
        let found =
            selected(&tree).map(|found| found.of("instructions").into_iter().map(line).collect::<Vec<_>>());
        expected.assert_eq(&found.map_or_else(|name| format!("forbidden {name}"), |lines| lines.join("; ")));
    }

    #[test]
    fn only_sound_conditions_select() {
        let both = serde_json::json!({"type": "CONJUNCTION_AND",
            "children": [equal(&["image"], "a"), equal(&["i", "procedure"], "p")]});
        check(select(table("instructions", "i"), both.clone()), expect!["* a p"]);
        check(select(join("INNER", &[]), both.clone()), expect!["* * p"]);
        check(select(join("LEFT", &["image"]), both.clone()), expect!["* a p"]);
        check(select(join("ANTI", &["image"]), both.clone()), expect!["* * p"]);
        let either = serde_json::json!({"type": "CONJUNCTION_OR", "children": [equal(&["image"], "a")]});
        check(select(table("instructions", ""), either), expect!["* * *"]);
        let list = serde_json::json!({"type": "COMPARE_IN",
            "children": [column(&["epoch"]), literal("e"), literal("f")]});
        check(select(table("Instructions", ""), list), expect!["e|f * *"]);
        let mut sampled = select(table("instructions", ""), equal(&["image"], "a"));
        sampled["sample"] = serde_json::json!({"sample_size": 1});
        check(sampled, expect!["* * *"]);
    }

    #[test]
    fn each_place_that_reads_a_table_counts() {
        let inner = select(table("instructions", ""), equal(&["image"], "a"));
        let outer = serde_json::json!({"type": "SET_OPERATION_NODE", "left": inner,
            "right": select(table("instructions", ""), equal(&["other"], "x"))});
        check(outer, expect!["* a *; * * *"]);
        check(serde_json::json!({"query": table("instructions", "")}), expect!["* * *"]);
        let annotate = serde_json::json!({"type": "TABLE_FUNCTION", "function":
            {"function_name": "dwell_annotate", "children": [literal("a"), literal("p")]}});
        check(select(annotate, equal(&["epoch"], "e")), expect!["e a p"]);
        let hidden = serde_json::json!({"type": "TABLE_FUNCTION", "function":
            {"function_name": "query", "children": [literal("select 1")]}});
        check(select(hidden, Value::Null), expect!["forbidden query"]);
    }
}
