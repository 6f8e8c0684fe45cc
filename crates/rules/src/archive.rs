//! Archives: how long values are kept at which step.

/// Values at equal steps, kept for `step_s * points` seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Archive {
    pub step_s: u32,
    pub points: u32,
}

impl Archive {
    #[must_use]
    pub const fn retention_s(&self) -> u64 {
        self.step_s as u64 * self.points as u64
    }
}

/// Limit on the archives of a rule, and of a Whisper file.
pub(crate) const ARCHIVES_MAX: usize = 64;

/// Limit on the points of an archive that make one point of the next. They are kept in memory while they are aggregated.
const RATIO_MAX: u32 = 86_400;

/// Parses a list like `10s:6h,1m:7d`, and checks it as Whisper does. The archives are returned with the finest
/// first.
///
/// The part before the colon is the step, in seconds without a unit. The part after it is the retention with a
/// unit, and a number of points without one.
pub fn parse_archives(text: &str) -> Result<Vec<Archive>, String> {
    if text.split(',').count() > ARCHIVES_MAX {
        return Err(format!("more than {ARCHIVES_MAX} archives"));
    }
    let mut archives = text.split(',').map(|part| archive(part.trim())).collect::<Result<Vec<_>, _>>()?;
    archives.sort_by_key(|archive| archive.step_s);
    check(&archives)?;
    Ok(archives)
}

fn archive(text: &str) -> Result<Archive, String> {
    let (step, retention) =
        text.split_once(':').ok_or_else(|| format!("archive {text:?} is not of the form step:retention"))?;
    let (step, unit_s) = number(step).ok_or_else(|| format!("invalid step {step:?} in archive {text:?}"))?;
    let step_s = step.saturating_mul(unit_s.unwrap_or(1));
    let (amount, unit_s) =
        number(retention).ok_or_else(|| format!("invalid retention {retention:?} in archive {text:?}"))?;
    if step_s == 0 {
        return Err(format!("the step of archive {text:?} is zero"));
    }
    let points = unit_s.map_or(amount, |unit_s| amount.saturating_mul(unit_s) / step_s);
    if points == 0 {
        return Err(format!("archive {text:?} has no points"));
    }
    // Whisper's file format has 32 bits for each of them
    let too_large = || format!("archive {text:?} is too large");
    let step_s = u32::try_from(step_s).map_err(|_| too_large())?;
    let archive = Archive { step_s, points: u32::try_from(points).map_err(|_| too_large())? };
    u32::try_from(archive.retention_s()).map_err(|_| too_large())?;
    Ok(archive)
}

/// Parses a number and the seconds of its unit, if it has one.
fn number(text: &str) -> Option<(u64, Option<u64>)> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number = text[..digits].parse().ok()?;
    let unit = &text[digits..];
    Some((number, if unit.is_empty() { None } else { Some(unit_s(unit)?) }))
}

/// Whisper accepts each beginning of a unit's name.
fn unit_s(text: &str) -> Option<u64> {
    const DAY_S: u64 = 86_400;
    let units = [
        ("seconds", 1),
        ("minutes", 60),
        ("hours", 3600),
        ("days", DAY_S),
        ("weeks", 7 * DAY_S),
        ("years", 365 * DAY_S),
    ];
    units.iter().find(|(name, _)| name.starts_with(text)).map(|(_, unit_s)| *unit_s)
}

/// Checks archives that are sorted by step, with Whisper's conditions.
fn check(archives: &[Archive]) -> Result<(), String> {
    for (fine, coarse) in archives.iter().zip(&archives[1..]) {
        if fine.step_s == coarse.step_s {
            return Err(format!("two archives with a step of {} s", fine.step_s));
        }
        if coarse.step_s % fine.step_s != 0 {
            return Err(format!(
                "the step of {} s is not a multiple of the finer step of {} s",
                coarse.step_s, fine.step_s
            ));
        }
        if coarse.step_s / fine.step_s > RATIO_MAX {
            return Err(format!(
                "one point at the step of {} s takes more than {RATIO_MAX} points",
                coarse.step_s
            ));
        }
        if coarse.retention_s() <= fine.retention_s() {
            return Err(format!(
                "values at the coarser step of {} s are not kept longer than those at the step of {} s",
                coarse.step_s, fine.step_s
            ));
        }
        if fine.points < coarse.step_s / fine.step_s {
            return Err(format!(
                "the archive with a step of {} s has too few points for one point at the step of {} s",
                fine.step_s, coarse.step_s
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_forms() {
        for (text, expected) in [
            ("60s:1d", &[(60, 1440)][..]),
            ("10s:6h,1m:7d", &[(10, 2160), (60, 10_080)]),
            ("60:1440", &[(60, 1440)]),
            ("60:1440, 15m:4d ,12h:2y", &[(60, 1440), (900, 384), (43_200, 1460)]),
            ("1h:5y,60s:90d", &[(60, 129_600), (3600, 43_800)]),
            ("1s:1w", &[(1, 604_800)]),
            ("1minutes:2hours", &[(60, 120)]),
            ("7:100s", &[(7, 14)]),
        ] {
            let found: Vec<_> = parse_archives(text).unwrap().iter().map(|a| (a.step_s, a.points)).collect();
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn errors_say_what_is_wrong() {
        for (text, part) in [
            ("", "not of the form"),
            ("60", "not of the form"),
            ("60x:1d", "invalid step"),
            ("60s:1q", "invalid retention"),
            ("s:1d", "invalid step"),
            ("0:1d", "step of archive \"0:1d\" is zero"),
            ("60s:30s", "has no points"),
            ("60:99999999999999999999", "invalid retention"),
            ("60s:9999999y", "too large"),
            ("60s:7d,60s:8d", "two archives with a step of 60 s"),
            ("60s:7d,90s:8d", "not a multiple"),
            ("60s:7d,120s:7d", "not kept longer"),
            ("1s:10s,60s:7d", "too few points"),
            ("1s:1y,100000s:5y", "more than 86400 points"),
        ] {
            let error = parse_archives(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
