//! Values of arguments that have units: times, sizes, shares.
//!
//! Enters: text as it was typed. Leaves: a value, or what was expected instead.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp, civil::Date, tz::TimeZone};

/// A limit, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit<T>(pub Option<T>);

pub fn budget(text: &str) -> Result<f64, String> {
    let percent: f64 = text.parse().map_err(|_| format!("'{text}' is not a number"))?;
    if (0.0..=100.0).contains(&percent) { Ok(percent) } else { Err("expected 0 to 100".to_owned()) }
}

/// Parses `30s`, `15m`, `12h`, `7d` or `never`.
pub fn duration(text: &str) -> Result<Limit<Duration>, String> {
    if text == "never" {
        return Ok(Limit(None));
    }
    let units = [("s", 1), ("m", 60), ("h", 3600), ("d", 86_400)];
    let seconds = with_unit(text, &units).filter(|s| *s > 0);
    let seconds = seconds.ok_or("expected a number followed by s, m, h or d, or `never`")?;
    Ok(Limit(Some(Duration::from_secs(seconds))))
}

/// A time in the past.
#[derive(Clone, Copy, Debug)]
pub struct Since(pub Timestamp);

/// Parses a day, `2026-11-20` (UTC), or a time before now: `30s`, `15m`, `12h` or `7d`.
pub fn since(text: &str) -> Result<Since, String> {
    if let Ok(day) = text.parse::<Date>() {
        let midnight = day.to_zoned(TimeZone::UTC).map_err(|error| error.to_string())?;
        return Ok(Since(midnight.timestamp()));
    }
    let bad = || "expected a day, 2026-11-20, or a number followed by s, m, h or d".to_owned();
    let past = duration(text).ok().and_then(|limit| limit.0).ok_or_else(bad)?;
    let from = SignedDuration::try_from(past).ok().and_then(|past| Timestamp::now().checked_sub(past).ok());
    from.map(Since).ok_or_else(bad)
}

/// Parses `100K`, `500M`, `2G` or `any`.
pub fn size(text: &str) -> Result<Limit<u64>, String> {
    if text == "any" {
        return Ok(Limit(None));
    }
    let units = [("K", 1 << 10), ("M", 1 << 20), ("G", 1 << 30), ("T", 1 << 40)];
    let bytes = with_unit(text, &units).ok_or("expected a number followed by K, M, G or T, or `any`")?;
    Ok(Limit(Some(bytes)))
}

fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (number, factor) = units.iter().find_map(|(unit, f)| Some((text.strip_suffix(unit)?, f)))?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}
