//! Escapes text and data for HTML, so that a target or scenario cannot inject markup or code.

/// Escapes text so that it can stand in an element or in a quoted attribute.
pub(crate) fn text(raw: &str) -> String {
    let mut out = String::with_capacity(raw.len());
    for c in raw.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // browsers would replace or hide control characters
            '\0' => out.push('\u{fffd}'),
            // characters that change the writing direction could disguise the text of a line
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// Escapes JSON so that it can stand in a `script` element. It must not end the element or begin a comment there.
pub(crate) fn json(raw: &str) -> String {
    let mut out = String::with_capacity(raw.len());
    for c in raw.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn text_and_json_are_escaped() {
        assert_eq!(super::text("<b a='\"'>&\0\u{202e}"), "&lt;b a=&#39;&quot;&#39;&gt;&amp;\u{fffd}\u{fffd}");
        let json = serde_json::to_string("</script><!--\u{2028}&").unwrap();
        let escaped = super::json(&json);
        assert!(!escaped.contains(['<', '>', '&', '\u{2028}']), "{escaped}");
        assert_eq!(serde_json::from_str::<String>(&escaped).unwrap(), "</script><!--\u{2028}&");
    }
}
