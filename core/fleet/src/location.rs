//! The place of a fleet's recordings: a bucket, a prefix in it, and which hosts and dates are wanted.
//!
//! Enters: `s3://BUCKET/PREFIX?host=NAME&since=DATE&until=DATE&service=PART&rollups=shown`. Leaves: its parts, checked.

use std::path::{Path, PathBuf};

use crate::FleetError;

/// A bucket, a prefix in it, and a choice of the recordings there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The name of the bucket.
    pub bucket: String,
    /// The prefix of all keys, without slashes at its ends; empty for the whole bucket.
    pub prefix: String,
    /// The hosts that are wanted; empty for all.
    pub hosts: Vec<String>,
    /// The first date (UTC) on which a wanted recording may have begun, as `2026-11-27`.
    pub since: Option<String>,
    /// The last such date.
    pub until: Option<String>,
    /// The service whose samples are wanted, as `dwell_query::Options` has it; the recordings are the same.
    pub service: Option<String>,
    /// Whether roll-ups are recordings, in place of those in them.
    pub roll_ups_shown: bool,
}

impl Location {
    /// Returns whether a path given as a database means a bucket.
    pub fn is_remote(path: &Path) -> bool {
        path.as_os_str().as_encoded_bytes().starts_with(b"s3:")
    }

    /// Returns the service that a path given as a database asks for.
    pub fn service_in(path: &Path) -> Option<String> {
        Self::is_remote(path).then(|| Self::parse(path.to_str()?).ok()?.service).flatten()
    }

    /// Returns the place with these hosts as the wanted ones, and this day as the first, if they are given.
    pub fn narrowed(place: PathBuf, hosts: &[String], since: Option<&str>) -> PathBuf {
        if hosts.is_empty() && since.is_none() {
            return place;
        }
        let pairs = hosts.iter().map(|host| ("host", host.as_str())).chain(since.map(|day| ("since", day)));
        let query = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
        let mut place = place.to_string_lossy().into_owned();
        place.push(if place.contains('?') { '&' } else { '?' });
        (place + &query).into()
    }

    /// Parses `s3://BUCKET/PREFIX`, with `host`, `since`, `until`, `service` and `rollups` after a question mark.
    pub fn parse(text: &str) -> Result<Location, FleetError> {
        let bad = |why: &str| FleetError::Location {
            given: text.to_owned(),
            why: format!(
                "{why}: expected s3://BUCKET/PREFIX, if you like with ?host=NAME&since=DATE&until=DATE&service=PART"
            ),
        };
        // A path that was cleaned on its way here may have lost one of the slashes.
        let rest = text.strip_prefix("s3://").or_else(|| text.strip_prefix("s3:/"));
        let rest = rest.ok_or_else(|| bad("it does not begin with s3://"))?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
        let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
        if !(3..=255).contains(&bucket.len()) || !bucket.bytes().all(allowed) || bucket.starts_with('.') {
            return Err(bad("the bucket has no valid name"));
        }
        let prefix = prefix.trim_matches('/');
        let is_part = |part: &str| !matches!(part, "" | "." | "..") && !part.chars().any(char::is_control);
        if !prefix.is_empty() && !prefix.split('/').all(is_part) {
            return Err(bad("the prefix has an empty part, `.` or `..`"));
        }
        let mut location = Location {
            bucket: bucket.to_owned(),
            prefix: prefix.to_owned(),
            hosts: Vec::new(),
            since: None,
            until: None,
            service: None,
            roll_ups_shown: false,
        };
        for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
            let date = || is_date(&value).then(|| value.to_string());
            match &*name {
                "host" => location.hosts.push(value.into_owned()),
                "since" => location.since = Some(date().ok_or_else(|| bad("`since` is no date"))?),
                "until" => location.until = Some(date().ok_or_else(|| bad("`until` is no date"))?),
                "service" => location.service = Some(value.into_owned()),
                "rollups" if value == "shown" => location.roll_ups_shown = true,
                _ => return Err(bad("after `?` it may have host, since, until, service and rollups=shown")),
            }
        }
        if location.roll_ups_shown && !location.hosts.is_empty() {
            return Err(bad("a roll-up holds the recordings of all hosts: `host` cannot choose some"));
        }
        if location.roll_ups_shown && location.service.is_some() {
            return Err(bad("a roll-up does not keep services apart: `service` cannot choose one"));
        }
        Ok(location)
    }

    /// Returns whether only some of the recordings or samples there are wanted.
    pub fn selects(&self) -> bool {
        let texts = [&self.since, &self.until, &self.service];
        !self.hosts.is_empty() || texts.into_iter().any(Option::is_some)
    }

    /// Returns the key of something under the prefix.
    pub(crate) fn key(&self, rest: &str) -> String {
        if self.prefix.is_empty() { rest.to_owned() } else { format!("{}/{rest}", self.prefix) }
    }
}

impl std::fmt::Display for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "s3://{}", self.bucket)?;
        if !self.prefix.is_empty() {
            write!(f, "/{}", self.prefix)?;
        }
        let hosts = self.hosts.iter().map(|host| ("host", host));
        let others = [("since", &self.since), ("until", &self.until), ("service", &self.service)];
        let others = others.into_iter().filter_map(|(name, date)| Some((name, date.as_ref()?)));
        let shown = "shown".to_owned();
        let roll_ups = self.roll_ups_shown.then_some(("rollups", &shown));
        let marks = std::iter::once('?').chain(std::iter::repeat('&'));
        hosts
            .chain(others)
            .chain(roll_ups)
            .zip(marks)
            .try_for_each(|((name, value), mark)| write!(f, "{mark}{name}={value}"))
    }
}

/// Returns whether a text has the form of a date, `2026-11-27`.
pub fn is_date(text: &str) -> bool {
    let digit = |at: usize| text.as_bytes().get(at).is_some_and(u8::is_ascii_digit);
    text.len() == 10
        && [0, 1, 2, 3, 5, 6, 8, 9].into_iter().all(digit)
        && text.as_bytes()[4] == b'-'
        && text.as_bytes()[7] == b'-'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_is_taken_apart() {
        let shown = Location::parse("s3://fleet/prod?rollups=shown").unwrap();
        assert!(shown.roll_ups_shown && shown.to_string() == "s3://fleet/prod?rollups=shown");
        let found = Location::parse("s3://fleet/prod/eu/?host=web%201&host=db&since=2026-11-20").unwrap();
        assert_eq!((&*found.bucket, &*found.prefix), ("fleet", "prod/eu"));
        assert_eq!(found.hosts, ["web 1", "db"]);
        assert_eq!((found.since.as_deref(), found.until.as_deref()), (Some("2026-11-20"), None));
        assert_eq!(found.to_string(), "s3://fleet/prod/eu?host=web 1&host=db&since=2026-11-20");
        assert_eq!(found.key("FORMAT"), "prod/eu/FORMAT");
        assert_eq!(Location::parse("s3:/fleet").unwrap().key("FORMAT"), "FORMAT");
    }

    #[test]
    fn what_is_no_place_is_refused() {
        for (given, why) in [
            ("fleet", "does not begin"),
            ("s3://", "no valid name"),
            ("s3://a b/c", "no valid name"),
            ("s3://fleet/a//b", "an empty part"),
            ("s3://fleet/../other", "an empty part"),
            ("s3://fleet?since=yesterday", "no date"),
            ("s3://fleet?region=x", "may have"),
            ("s3://fleet?rollups=no", "may have"),
            ("s3://fleet?rollups=shown&host=a", "`host` cannot choose"),
            ("s3://fleet?rollups=shown&service=a", "`service` cannot choose"),
        ] {
            let error = Location::parse(given).unwrap_err().to_string();
            assert!(error.contains(why) && error.contains(given), "{error}");
        }
    }
}
