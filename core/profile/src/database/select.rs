//! Finds the epoch that a user's selector means.

use jiff::Timestamp;

use crate::{DatabaseError, Epoch, EpochId};

use super::Database;

/// The selector that names all epochs.
const ALL: &str = "all";

impl Database {
    /// Returns the epoch that a selector names. It may be an id, `latest`, `latest~N` (the Nth before it), a name, or a
    /// prefix of exactly one id; they are tried in this order.
    pub fn resolve(&self, selector: &str) -> Result<Epoch, DatabaseError> {
        let epochs = self.epochs()?.epochs;
        if epochs.is_empty() {
            return Err(DatabaseError::Empty(self.place()));
        }
        let index = select(&epochs, selector)?;
        Ok(epochs[index].clone())
    }

    /// Returns the epochs that any of the selectors names, oldest first and each once; `all` names all of them, and a day such as `2026-11-27`
    /// those that began on it (UTC).
    pub fn resolve_all(&self, selectors: &[String]) -> Result<Vec<Epoch>, DatabaseError> {
        let epochs = self.epochs()?.epochs;
        if epochs.is_empty() {
            return Err(DatabaseError::Empty(self.place()));
        }
        if selectors.iter().any(|selector| selector == ALL) {
            return Ok(epochs);
        }
        let mut found = Vec::new();
        for selector in selectors {
            let of_day = match epochs.iter().any(|epoch| epoch.name.as_ref() == Some(selector)) {
                true => Vec::new(),
                false => all(&epochs, |epoch| epoch.start.strftime("%Y-%m-%d").to_string() == *selector),
            };
            match of_day.is_empty() {
                true => found.push(select(&epochs, selector)?),
                false => found.extend(of_day),
            }
        }
        found.sort_unstable();
        found.dedup();
        Ok(found.into_iter().map(|index| epochs[index].clone()).collect())
    }

    pub(super) fn no_such_epoch(&self, selector: &str) -> DatabaseError {
        match self.epochs() {
            Ok(read) if !read.epochs.is_empty() => {
                DatabaseError::NoSuchEpoch { selector: selector.to_owned(), have: read.epochs.len() }
            }
            _ => DatabaseError::Empty(self.place()),
        }
    }
}

/// Returns the index of the selected epoch; `epochs` are sorted, oldest first.
fn select(epochs: &[Epoch], selector: &str) -> Result<usize, DatabaseError> {
    if let Some(index) = epochs.iter().position(|e| e.id.0 == selector) {
        return Ok(index);
    }
    if let Some(back) = steps_back(selector)? {
        let past = newest_first(epochs);
        return past.get(back).copied().ok_or_else(|| none(epochs, selector));
    }
    let named = all(epochs, |e| e.name.as_deref() == Some(selector));
    let found = if named.is_empty() { all(epochs, |e| e.id.0.starts_with(selector)) } else { named };
    match *found {
        _ if selector.is_empty() => Err(DatabaseError::BadSelector(selector.to_owned())),
        [] => Err(none(epochs, selector)),
        [index] => Ok(index),
        _ => Err(DatabaseError::AmbiguousEpoch {
            selector: selector.to_owned(),
            candidates: found.iter().map(|&i| epochs[i].id.clone()).collect(),
        }),
    }
}

/// Returns the indices of the epochs that `latest`, `latest~1` and so on mean. Those whose clock was ahead are none of them,
/// unless it is so for all.
pub fn newest_first(epochs: &[Epoch]) -> Vec<usize> {
    let now = Timestamp::now();
    let mut past = all(epochs, |epoch| !epoch.begins_in_future(now));
    if past.is_empty() {
        past = (0..epochs.len()).collect();
    }
    past.reverse();
    past
}

/// Returns how many epochs before the newest one `latest` or `latest~N` means; `None` for other selectors.
fn steps_back(selector: &str) -> Result<Option<usize>, DatabaseError> {
    match selector.strip_prefix("latest") {
        Some("") => Ok(Some(0)),
        Some(rest) if rest.starts_with('~') => {
            let back = rest[1..].parse().map_err(|_| DatabaseError::BadSelector(selector.to_owned()))?;
            Ok(Some(back))
        }
        _ => Ok(None),
    }
}

fn all(epochs: &[Epoch], wanted: impl Fn(&Epoch) -> bool) -> Vec<usize> {
    (0..epochs.len()).filter(|&i| wanted(&epochs[i])).collect()
}

fn none(epochs: &[Epoch], selector: &str) -> DatabaseError {
    DatabaseError::NoSuchEpoch { selector: selector.to_owned(), have: epochs.len() }
}

/// Checks a name that a user gives: it must fit on one line and must not hide a selector.
pub(super) fn check_name(epochs: &[Epoch], of: Option<&EpochId>, name: &str) -> Result<(), DatabaseError> {
    let bad = |why| Err(DatabaseError::BadName { name: name.to_owned(), why });
    if name.is_empty() || name.trim() != name {
        return bad("it is empty or has spaces around it");
    }
    if name.chars().count() > 100 || name.chars().any(char::is_control) {
        return bad("it is longer than 100 characters or has control characters");
    }
    if name == "latest" || name.starts_with("latest~") {
        return bad("`latest` selects the newest recording");
    }
    if name == ALL {
        return bad("`all` selects all recordings");
    }
    let others = || epochs.iter().filter(|e| Some(&e.id) != of);
    if epochs.iter().any(|e| e.id.0 == name) {
        return bad("it is the id of an epoch");
    }
    match others().find(|e| e.name.as_deref() == Some(name)) {
        Some(by) => Err(DatabaseError::NameTaken { name: name.to_owned(), by: by.id.clone() }),
        None => Ok(()),
    }
}
