//! Parts of a date, in UTC.

use crate::promql::QueryError;
use crate::promql::ast::Node;
use crate::promql::eval::Evaluator;
use crate::promql::functions::Function;
use crate::promql::grid::Grid;
use crate::promql::matrix::Column;
use crate::promql::row::Sink;
use model::Labels;
use stdx::calendar::Date;

/// Maximum distance from the epoch, in seconds (31 million years). Later and earlier times are clamped.
const SECONDS_MAX: f64 = 1e15;

/// Computes a part of a date, such as the month, from the seconds since the Unix epoch.
pub(super) type Part = fn(i64) -> f64;

pub(super) fn part(function: Function) -> Option<Part> {
    Some(match function {
        Function::Minute => |s| s.div_euclid(60).rem_euclid(60) as f64,
        Function::Hour => |s| s.div_euclid(3600).rem_euclid(24) as f64,
        // 1970-01-01 was a Thursday
        Function::DayOfWeek => |s| (days(s) + 4).rem_euclid(7) as f64,
        Function::DayOfMonth => |s| date(s).day as f64,
        Function::DayOfYear => |s| {
            let d = date(s);
            (days(s) - Date { month: 1, day: 1, ..d }.days() + 1) as f64
        },
        Function::DaysInMonth => |s| {
            let d = date(s);
            days_in_month(d.year, d.month) as f64
        },
        Function::Month => |s| date(s).month as f64,
        Function::Year => |s| date(s).year as f64,
        _ => return None,
    })
}

fn days(seconds: i64) -> i64 {
    seconds.div_euclid(86_400)
}

fn date(seconds: i64) -> Date {
    Date::of_days(days(seconds))
}

fn days_in_month(year: i64, month: i64) -> i64 {
    let leap = year.rem_euclid(4) == 0 && (year.rem_euclid(100) != 0 || year.rem_euclid(400) == 0);
    match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

impl Evaluator<'_> {
    pub(super) fn calendar(
        &mut self,
        part: Part,
        args: &[Node],
        grid: &Grid,
        sink: &mut Sink<'_>,
    ) -> Result<(), QueryError> {
        if let Some(vector) = args.first() {
            let map = |_: usize, value: f64| part(value.clamp(-SECONDS_MAX, SECONDS_MAX) as i64);
            return self.stream_mapped(vector, grid, true, map, sink);
        }
        let mut column = Column::new(self.meter, grid.count, 0.0)?;
        for (step, value) in column.values.iter_mut().enumerate() {
            *value = part(grid.time_ms(step).div_euclid(1000));
        }
        super::emit_one(Labels::empty(), &mut column.values, sink)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        let check = |seconds: i64, expected: [i64; 8]| {
            use Function::*;
            let functions = [Year, Month, DayOfMonth, Hour, Minute, DayOfWeek, DayOfYear, DaysInMonth];
            let got = functions.map(|f| part(f).unwrap()(seconds) as i64);
            assert_eq!(got, expected, "{seconds}");
        };
        check(0, [1970, 1, 1, 0, 0, 4, 1, 31]);
        check(1_136_239_445, [2006, 1, 2, 22, 4, 1, 2, 31]);
        check(951_868_799, [2000, 2, 29, 23, 59, 2, 60, 29]);
        check(-1, [1969, 12, 31, 23, 59, 3, 365, 31]);
        check(4_107_542_400, [2100, 3, 1, 0, 0, 1, 60, 31]);
        check(1_735_603_200, [2024, 12, 31, 0, 0, 2, 366, 31]);
    }
}
