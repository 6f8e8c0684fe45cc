//! Variables of `template`: `$name` in paths.

use super::excerpt;
use crate::allowance::Allowance;
use crate::graphite::ast::Literal;
use crate::graphite::text::shortest;
use crate::graphite::{TARGET_BYTES_MAX, Variables};
use std::borrow::Cow;

/// Memory of a variable besides its texts, in a list that is at least half full.
const VARIABLE_BYTES: usize = 2 * size_of::<Variable>() + 32;

/// Longest text that is read as a number. No number with more digits differs from its first digits.
pub(super) const NUMBER_BYTES_MAX: usize = 400;

const CANCELED: &str = "the request was canceled";

#[derive(Debug)]
struct Variable {
    name: String,
    /// A text is shared by all places that use it, because there may be thousands of them.
    value: Literal,
    /// `value`, if it parses as a number.
    number: Option<f64>,
}

/// Values of the variables that are in scope, in the order in which they replace text.
#[derive(Debug, Default)]
pub(super) struct Values(Vec<Variable>);

impl Values {
    /// The scope in a template. The variables of an outer template are not visible in an inner one. Fails if a variable of
    /// the request is longer than a target may be, if the memory of all scopes gets too large, or once the request is
    /// canceled.
    pub(super) fn within(
        variables: &[(String, Literal)],
        overrides: &Variables,
        allowance: &mut Allowance,
    ) -> Result<Self, String> {
        if allowance.is_interrupted() {
            return Err(CANCELED.into());
        }
        if let Some((name, value)) = overrides.iter().find(|(_, value)| value.len() > TARGET_BYTES_MAX) {
            return Err(format!(
                "the variable {:?} has {} bytes, the limit is {TARGET_BYTES_MAX}",
                excerpt(name),
                value.len()
            ));
        }
        // the texts of the target were counted when they were parsed
        let own_bytes = variables.iter().map(|(name, _)| name.len());
        let all_bytes = own_bytes.chain(overrides.iter().map(|(name, value)| name.len() + value.len()));
        allowance.spend(all_bytes.map(|bytes| VARIABLE_BYTES + bytes).sum())?;
        let variable = |name: &String, value| Variable { name: name.clone(), value, number: None };
        let mut all: Vec<_> = variables.iter().map(|(name, value)| variable(name, value.clone())).collect();
        for (name, value) in overrides {
            let value = Literal::Text(value.as_str().into());
            match all.iter_mut().find(|known| known.name == *name) {
                Some(known) => known.value = value,
                None => all.push(variable(name, value)),
            }
        }
        for variable in &mut all {
            variable.number = number_in(&variable.value);
        }
        Ok(Self(all))
    }

    /// The value of a path that is a variable and nothing else. A text that looks like a number is one. Fails once the
    /// request is canceled.
    pub(super) fn value_of(&self, path: &str, allowance: &Allowance) -> Result<Option<Literal>, String> {
        let Some(name) = path.strip_prefix('$') else { return Ok(None) };
        if allowance.is_interrupted() {
            return Err(CANCELED.into());
        }
        let variable = self.0.iter().find(|variable| variable.name == name);
        Ok(variable.map(|variable| variable.number.map_or_else(|| variable.value.clone(), Literal::Float)))
    }

    /// Replaces all variables in a path. Fails if the path gets too long, or once the request is canceled.
    pub(super) fn replace(&self, path: &str, allowance: &Allowance) -> Result<String, String> {
        let mut path = path.to_owned();
        for Variable { name, value, .. } in self.0.iter().filter(|_| path.contains('$')).collect::<Vec<_>>() {
            if allowance.is_interrupted() {
                return Err(CANCELED.into());
            }
            if name.len() >= path.len() {
                continue;
            }
            let value: Cow<'_, str> = match value {
                Literal::Integer(integer) => integer.to_string().into(),
                Literal::Float(number) => shortest(*number).into(),
                Literal::Text(text) => (&**text).into(),
                Literal::Boolean(_) | Literal::None => continue,
            };
            let variable = format!("${name}");
            let count = path.matches(&variable).count();
            if path.len().saturating_add(count.saturating_mul(value.len())) > TARGET_BYTES_MAX {
                return Err(format!(
                    "the path is longer than {TARGET_BYTES_MAX} bytes after variables are replaced"
                ));
            }
            path = path.replace(&variable, &value);
        }
        Ok(path)
    }
}

fn number_in(value: &Literal) -> Option<f64> {
    let Literal::Text(text) = value else { return None };
    let is_number = text.len() <= NUMBER_BYTES_MAX
        && text.trim_start_matches('-').bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if is_number { text.parse().ok() } else { None }
}
