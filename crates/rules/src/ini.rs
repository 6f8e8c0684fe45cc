//! The sections of a file in the format of Python's `configparser`.
//!
//! ```text
//! [carbon]
//! pattern = ^carbon\.
//! retentions = 60s:90d,
//!     1h:5y                  an indented line continues the value before it
//! ```
//!
//! Names of options ignore case. Lines that begin with `#` or `;` are comments. `%%` stands for `%`.

use crate::{RULES_MAX, RuleError};

#[derive(Debug)]
pub(crate) struct Section {
    pub(crate) name: String,
    pub(crate) line: usize,
    options: Vec<ConfigOption>,
}

/// An option of a section. Its name is in lower case.
#[derive(Debug)]
pub(crate) struct ConfigOption {
    name: String,
    pub(crate) value: String,
    pub(crate) line: usize,
}

impl Section {
    pub(crate) fn get(&self, name: &str) -> Option<&ConfigOption> {
        self.options.iter().find(|option| option.name == name)
    }

    /// Returns an option that must be present and not empty.
    pub(crate) fn require(&self, name: &str) -> Result<&ConfigOption, RuleError> {
        let missing = || RuleError::new(self.line, format!("section [{}] has no {name:?}", self.name));
        self.get(name).filter(|option| !option.value.is_empty()).ok_or_else(missing)
    }

    fn put(&mut self, name: &str, value: &str, line: usize) -> Result<(), RuleError> {
        let name = name.trim_end().to_ascii_lowercase();
        if name.is_empty() {
            return Err(RuleError::new(line, "a value without a name"));
        }
        if self.get(&name).is_some() {
            return Err(RuleError::new(line, format!("section [{}] has two values of {name:?}", self.name)));
        }
        self.options.push(ConfigOption { name, value: value.trim().replace("%%", "%"), line });
        Ok(())
    }
}

/// Parses the sections in the order of the file.
pub(crate) fn sections(text: &str) -> Result<Vec<Section>, RuleError> {
    let mut sections: Vec<Section> = Vec::new();
    for (raw, line) in text.strip_prefix('\u{feff}').unwrap_or(text).lines().zip(1..) {
        let content = raw.trim();
        if content.is_empty() || content.starts_with(['#', ';']) {
            continue;
        }
        if raw.starts_with([' ', '\t'])
            && let Some(option) = sections.last_mut().and_then(|section| section.options.last_mut())
        {
            option.value.push('\n');
            option.value.push_str(content);
            continue;
        }
        if let Some(name) = content.strip_prefix('[') {
            let name = name.split_once(']').map(|(name, _)| name);
            let name =
                name.ok_or_else(|| RuleError::new(line, "a section's name has no \"]\" at its end"))?;
            open(&mut sections, name, line)?;
            continue;
        }
        let Some(section) = sections.last_mut() else {
            return Err(RuleError::new(line, "a line before the first [section]"));
        };
        let Some(at) = content.find(['=', ':']) else {
            return Err(RuleError::new(
                line,
                format!("{content:?} is neither a [section] nor \"name = value\""),
            ));
        };
        section.put(&content[..at], &content[at + 1..], line)?;
    }
    Ok(sections)
}

fn open(sections: &mut Vec<Section>, name: &str, line: usize) -> Result<(), RuleError> {
    if sections.iter().any(|section| section.name == name) {
        return Err(RuleError::new(line, format!("section [{name}] occurs twice")));
    }
    if sections.len() == RULES_MAX {
        return Err(RuleError::new(line, format!("more than {RULES_MAX} sections")));
    }
    sections.push(Section { name: name.to_owned(), line, options: Vec::new() });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_and_comments() {
        let text = "# c\n[a b]\nPattern: ^a = b\n; c\n\nretentions=60:90 ,\n  # c\n  1h:5y\n[c]\nx = 100%%\n";
        let found = sections(text).unwrap();
        assert_eq!((found[0].name.as_str(), found[0].line), ("a b", 2));
        assert_eq!(found[0].get("pattern").unwrap().value, "^a = b");
        assert_eq!(found[0].get("retentions").unwrap().value, "60:90 ,\n1h:5y");
        assert_eq!(found[0].get("retentions").unwrap().line, 6);
        assert_eq!(found[1].get("x").unwrap().value, "100%");
        assert_eq!(found[1].require("y").unwrap_err().to_string(), "line 9: section [c] has no \"y\"");
    }

    #[test]
    fn errors_name_the_line() {
        for (text, error) in [
            ("x = 1\n", "line 1: a line before the first [section]"),
            ("[a]\n[a]\n", "line 2: section [a] occurs twice"),
            ("[a\n", "line 1: a section's name has no \"]\" at its end"),
            ("[a]\nx\n", "line 2: \"x\" is neither a [section] nor \"name = value\""),
            ("[a]\nx=1\nX=2\n", "line 3: section [a] has two values of \"x\""),
            ("[a]\n= 2\n", "line 2: a value without a name"),
        ] {
            assert_eq!(sections(text).unwrap_err().to_string(), error);
        }
        let many: String = (0..=RULES_MAX).map(|i| format!("[{i}]\n")).collect();
        assert_eq!(sections(&many).unwrap_err().to_string(), "line 1001: more than 1000 sections");
    }
}
