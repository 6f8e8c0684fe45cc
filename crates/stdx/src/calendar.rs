#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Date {
    /// There is a year 0, which is 1 BC.
    pub year: i64,
    /// 1 to 12.
    pub month: i64,
    /// 1 to 31.
    pub day: i64,
}

/// Days in 400 years, after which the calendar repeats.
const ERA_DAYS: i64 = 146_097;

/// Days from 1 March of the year 0 to 1 January 1970.
const EPOCH_DAYS: i64 = 719_468;

// The algorithm is from Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms". Its years begin in
// March, so that the leap day is the last day of a year.
impl Date {
    pub const fn of_days(days: i64) -> Self {
        let shifted = days + EPOCH_DAYS;
        let (era, of_era) = (shifted.div_euclid(ERA_DAYS), shifted.rem_euclid(ERA_DAYS));
        let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let march_month = (5 * of_year + 2) / 153;
        let day = of_year - (153 * march_month + 2) / 5 + 1;
        let month = (march_month + 2) % 12 + 1;
        Self { year: era * 400 + year_of_era + (month <= 2) as i64, month, day }
    }

    pub const fn days(self) -> i64 {
        let march_month = (self.month + 9) % 12;
        let year = if march_month >= 10 { self.year - 1 } else { self.year };
        let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
        let of_year = (153 * march_month + 2) / 5 + self.day - 1;
        era * ERA_DAYS + of_era * 365 + of_era / 4 - of_era / 100 + of_year - EPOCH_DAYS
    }
}

impl std::fmt::Display for Date {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { year, month, day } = self;
        write!(f, "{year:04}-{month:02}-{day:02}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_dates() {
        let check = |days, text: &str| {
            let date = Date::of_days(days);
            assert_eq!((date.to_string().as_str(), date.days()), (text, days));
        };
        check(0, "1970-01-01");
        check(-1, "1969-12-31");
        check(11_016, "2000-02-29");
        check(47_540, "2100-02-28");
        check(47_541, "2100-03-01");
        check(2_932_896, "9999-12-31");
        for days in -200_000..200_000 {
            let (date, next) = (Date::of_days(days), Date::of_days(days + 1));
            let follows = next.day == date.day + 1 && next.month == date.month || next.day == 1;
            assert!(follows && date.days() == days, "{date} {next}");
        }
    }
}
