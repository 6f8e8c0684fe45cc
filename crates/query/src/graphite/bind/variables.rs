//! Variables of `template`: `$name` in paths.

use crate::allowance::Allowance;
use crate::graphite::ast::Literal;
use crate::graphite::text::shortest;
use crate::graphite::{TARGET_BYTES_MAX, Variables};

/// Values of the variables that are in scope, in the order in which they replace text.
#[derive(Debug, Default)]
pub(super) struct Values(Vec<(String, Literal)>);

impl Values {
    /// The scope in a template. The variables of an outer template are not visible in an inner one.
    pub(super) fn with(&self, variables: &[(String, Literal)], overrides: &Variables) -> Self {
        let mut all = variables.to_vec();
        for (name, value) in overrides {
            let value = Literal::Text(value.clone());
            match all.iter_mut().find(|(known, _)| known == name) {
                Some((_, old)) => *old = value,
                None => all.push((name.clone(), value)),
            }
        }
        Self(all)
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
