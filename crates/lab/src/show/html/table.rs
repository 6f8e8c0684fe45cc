use super::escape::text;
use crate::result::figures::{ratio, show};

#[derive(Debug, Clone)]
pub(crate) enum Cell {
    Text(String),
    Number(String),
    Classed(&'static str, String),
}

impl Cell {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// Shows a dash if the value is `None`.
    pub(crate) fn number(value: Option<f64>, unit: &str) -> Self {
        Self::Number(value.map_or_else(|| "–".to_owned(), |value| show(value, unit)))
    }

    /// Shows a dash if the value is `None`.
    pub(crate) fn ratio(quotient: Option<f64>) -> Self {
        Self::Number(quotient.map_or_else(|| "–".to_owned(), |quotient| format!("{} ×", ratio(quotient))))
    }

    pub(crate) fn count(n: u64) -> Self {
        Self::number(Some(n as f64), "")
    }

    fn html(&self) -> String {
        let (class, content) = match self {
            Self::Text(content) => ("text", content),
            Self::Number(content) => ("num", content),
            Self::Classed(class, content) => (*class, content),
        };
        format!("<td class=\"{class}\">{}</td>", text(content))
    }
}

/// Builds a table. A heading that begins with `#` marks a column of numbers. Without rows, the result is empty.
pub(crate) fn table(id: &str, headings: &[&str], rows: impl IntoIterator<Item = Vec<Cell>>) -> String {
    let row = |cells: Vec<Cell>| format!("<tr>{}</tr>\n", cells.iter().map(Cell::html).collect::<String>());
    let rows: String = rows.into_iter().map(row).collect();
    if rows.is_empty() {
        return String::new();
    }
    let heading = |name: &&str| match name.strip_prefix('#') {
        Some(name) => format!("<th class=\"num\">{}</th>", text(name)),
        None => format!("<th>{}</th>", text(name)),
    };
    let headings: String = headings.iter().map(heading).collect();
    format!(
        "<div class=\"scroll\"><table id=\"{id}\"><thead><tr>{headings}</tr></thead><tbody>\n{rows}</tbody></table></div>\n"
    )
}

/// Builds a section of the page. Without content, the result is empty.
pub(crate) fn section(title: &str, content: &str) -> String {
    if content.is_empty() {
        return String::new();
    }
    format!("<section><h2>{}</h2>\n{content}</section>\n", text(title))
}

/// Builds a list. Without items, the result is empty.
pub(crate) fn list(class: &str, items: &[String]) -> String {
    if items.is_empty() {
        return String::new();
    }
    let items: String = items.iter().map(|item| format!("<li>{}</li>\n", text(item))).collect();
    format!("<ul class=\"{class}\">\n{items}</ul>\n")
}
