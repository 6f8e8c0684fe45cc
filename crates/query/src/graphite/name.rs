//! Names that functions put together from parts which a request controls.
//!
//! A name can be copied thousands of times in one request, for example by `aliasByNode(a,0,0,0,…)`. So a name has a
//! limit, and its memory is charged while it grows.

use super::{Series, TARGET_BYTES_MAX};
use crate::QueryError;
use crate::meter::{Charge, Meter};

/// Longest name, longest path expression, and longest value of a tag, of a series that a function returns. There is room for the quotient of two
/// large aggregations, whose path expressions are cut long before.
pub(super) const NAME_BYTES_MAX: usize = TARGET_BYTES_MAX;

/// What most names are, in messages.
pub(super) const NAME: &str = "name of a series";

/// A name under construction. It is charged until it is complete; who keeps it then charges it again.
#[derive(Debug)]
pub(super) struct Name<'m> {
    function: &'static str,
    what: &'static str,
    text: String,
    charge: Charge<'m>,
}

impl<'m> Name<'m> {
    /// `function`, and what it names, are shown if the name is refused.
    pub(super) const fn new(function: &'static str, what: &'static str, meter: &'m Meter<'m>) -> Self {
        Self { function, what, text: String::new(), charge: meter.charge() }
    }

    pub(super) fn push(&mut self, part: &str) -> Result<(), QueryError> {
        self.reserve(part.len())?;
        self.text.push_str(part);
        Ok(())
    }

    /// Appends a part, and spaces up to a width in characters.
    pub(super) fn push_padded(&mut self, part: &str, width: usize) -> Result<(), QueryError> {
        self.push(part)?;
        let missing = width.saturating_sub(part.chars().count());
        self.reserve(missing)?;
        self.text.extend(std::iter::repeat_n(' ', missing));
        Ok(())
    }

    /// Appends a template with a text in place of each percent sign.
    pub(super) fn push_template(&mut self, template: &str, text: &str) -> Result<(), QueryError> {
        let mut parts = template.split('%');
        self.push(parts.next().unwrap_or_default())?;
        parts.try_for_each(|part| {
            self.push(text)?;
            self.push(part)
        })
    }

    pub(super) fn finish(self) -> String {
        self.text
    }

    /// Makes room for `more` bytes, and counts it before.
    fn reserve(&mut self, more: usize) -> Result<(), QueryError> {
        let len = self.text.len().saturating_add(more);
        if len > NAME_BYTES_MAX {
            return Err(too_long(self.function, self.what, len));
        }
        let old = self.text.capacity();
        if len > old {
            self.charge.check()?;
            let capacity = len.max(2 * old).min(NAME_BYTES_MAX);
            // the old memory stays charged, because both exist while the text is moved
            self.charge.add_bytes(capacity)?;
            self.text.reserve_exact(capacity - self.text.len());
        }
        Ok(())
    }
}

/// Refuses a series whose texts are too long, before another function copies them.
pub(super) fn check(function: &'static str, series: &Series) -> Result<(), QueryError> {
    let tag_bytes = series.tags.iter().map(|(_, value)| value.len()).max().unwrap_or(0);
    for (what, len) in [
        (NAME, series.name.len()),
        ("path expression of a series", series.path_expression.len()),
        ("tag of a series", tag_bytes),
    ] {
        if len > NAME_BYTES_MAX {
            return Err(too_long(function, what, len));
        }
    }
    Ok(())
}

fn too_long(function: &'static str, what: &str, len: usize) -> QueryError {
    QueryError::Invalid(format!(
        "function {function:?}: the {what} would have {len} bytes or more, the limit is {NAME_BYTES_MAX}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_name_is_charged_before_it_grows() {
        let canceled = AtomicBool::new(false);
        let meter = Meter::new(2000, &canceled, None);
        let mut name = Name::new("alias", NAME, &meter);
        let part = "a".repeat(4000);
        name.push(&part).unwrap();
        name.push_padded(&part, 4001).unwrap();
        name.push(&part).unwrap();
        assert_eq!(name.push(&part), Err(QueryError::TooLarge));
        assert_eq!(name.push_padded("", 100_000), Err(QueryError::TooLarge));
        assert!(name.text.capacity() <= 16_000, "{}", name.text.capacity());
        assert_eq!(name.finish(), "a".repeat(8000) + " " + &part);
        assert_eq!(meter.left(), 2000);
    }

    #[test]
    fn texts_of_a_series_have_limits() {
        let mut series = Series::computed("a".repeat(NAME_BYTES_MAX), 0, 60, 60, vec![1.0]);
        assert_eq!(check("alias", &series), Ok(()));
        series.tags.set("timeShift", "s".repeat(NAME_BYTES_MAX + 1));
        let error = check("timeStack", &series).unwrap_err().to_string();
        assert!(error.contains("function \"timeStack\": the tag of a series would have 262145"), "{error}");
        series.tags.set("timeShift", "1");
        series.rename("a".repeat(NAME_BYTES_MAX + 1));
        let error = check("timeStack", &series).unwrap_err().to_string();
        assert!(error.contains("the name of a series would have 262145"), "{error}");
    }

    #[test]
    fn a_name_has_a_limit_whatever_memory_there_is() {
        let canceled = AtomicBool::new(false);
        let meter = Meter::new(u64::MAX >> 8, &canceled, None);
        let mut name = Name::new("alias", NAME, &meter);
        name.push_template("%-%", &"é".repeat(NAME_BYTES_MAX / 5)).unwrap();
        let error = name.push_padded("é", usize::MAX).unwrap_err().to_string();
        assert!(error.contains("function \"alias\": the name of a series would have"), "{error}");
        assert!(error.contains("the limit is 262144"), "{error}");
        assert!(name.text.capacity() <= NAME_BYTES_MAX);
    }
}
