//! Variables of `template`: `$name` in paths.

use crate::allowance::Allowance;
use crate::graphite::ast::Literal;
use crate::graphite::text::shortest;
use crate::graphite::{TARGET_BYTES_MAX, Variables};

/// Memory of a variable besides its texts, in a list that is at least half full.
const VARIABLE_BYTES: usize = 2 * size_of::<(String, Literal)>() + 32;

/// Values of the variables that are in scope, in the order in which they replace text.
#[derive(Debug, Default)]
pub(super) struct Values(Vec<(String, Literal)>);

impl Values {
    /// The scope in a template. The variables of an outer template are not visible in an inner one. Fails if the memory
    /// of all scopes gets too large, or once the request is canceled.
    pub(super) fn within(
        variables: &[(String, Literal)],
        overrides: &Variables,
        allowance: &mut Allowance,
    ) -> Result<Self, String> {
        if allowance.is_interrupted() {
            return Err("the request was canceled".into());
        }
        let text_bytes = |value: &Literal| if let Literal::Text(text) = value { text.len() } else { 0 };
        let own_bytes = variables.iter().map(|(name, value)| name.len() + text_bytes(value));
        let all_bytes = own_bytes.chain(overrides.iter().map(|(name, value)| name.len() + value.len()));
        allowance.spend(all_bytes.map(|bytes| VARIABLE_BYTES + bytes).sum())?;
        let mut all = variables.to_vec();
        for (name, value) in overrides {
            let value = Literal::Text(value.clone());
            match all.iter_mut().find(|(known, _)| known == name) {
                Some((_, old)) => *old = value,
                None => all.push((name.clone(), value)),
            }
        }
        Ok(Self(all))
    }

    /// The value of a path that is a variable and nothing else. A text that looks like a number is one.
    pub(super) fn value_of(&self, path: &str) -> Option<Literal> {
        let name = path.strip_prefix('$')?;
        let (_, value) = self.0.iter().find(|(known, _)| known == name)?;
        let number = match value {
            Literal::Text(text)
                if text.trim_start_matches('-').bytes().all(|b| b.is_ascii_digit() || b == b'.') =>
            {
                text.parse().ok().map(Literal::Float)
            }
            _ => None,
        };
        Some(number.unwrap_or_else(|| value.clone()))
    }

    /// Replaces all variables in a path. Fails if the path gets too long, or once the request is canceled.
    pub(super) fn replace(&self, path: &str, allowance: &Allowance) -> Result<String, String> {
        let mut path = path.to_owned();
        for (name, value) in self.0.iter().filter(|_| path.contains('$')).collect::<Vec<_>>() {
            if allowance.is_interrupted() {
                return Err("the request was canceled".into());
            }
            let value = match value {
                Literal::Integer(integer) => integer.to_string(),
                Literal::Float(number) => shortest(*number),
                Literal::Text(text) => text.clone(),
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
