//! The sources of a model's figures. Enters: keys of the model's `sources` beside its figures. Leaves: the key of each
//! figure. A figure without a source is a bug in the file; [`super::MachineModel::verify`] finds it.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The key for every figure that is not named.
const REST: &str = "*";

/// The sources of a group of figures, as keys of [`super::MachineModel::sources`].
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Source {
    /// All figures have the same source.
    One(String),
    /// The source of each figure, by the figure's name (`latency`, `memory.l1_cycles`); `*` stands for those not named.
    Each(BTreeMap<String, String>),
}

impl Source {
    /// Returns the source of a figure. A dotted name falls back to its first part, then to `*`.
    pub fn of_figure(&self, figure: &str) -> Option<&str> {
        match self {
            Source::One(key) => Some(key),
            Source::Each(keys) => {
                let group = figure.split('.').next().unwrap_or(figure);
                [figure, group, REST].iter().find_map(|name| keys.get(*name)).map(String::as_str)
            }
        }
    }

    /// Returns all keys that are used.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        let (one, each) = match self {
            Source::One(key) => (Some(key), None),
            Source::Each(keys) => (None, Some(keys.values())),
        };
        one.into_iter().chain(each.into_iter().flatten()).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closest_name_counts() {
        let source: Source =
            serde_json::from_str(r#"{"memory.l1_cycles": "a", "memory": "b", "*": "c"}"#).unwrap();
        let of = |figure| source.of_figure(figure).unwrap();
        assert_eq!([of("memory.l1_cycles"), of("memory.l2_cycles"), of("skid")], ["a", "b", "c"]);
        assert_eq!(Source::One("d".into()).of_figure("skid"), Some("d"));
    }
}
