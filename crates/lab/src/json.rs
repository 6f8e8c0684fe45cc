//! Reads JSON without converting its numbers. serde_json rounds some decimals to a neighbouring double, so that a value
//! would not be compared bit by bit.

use anyhow::{Context, Result, bail, ensure};
use std::borrow::Cow;

/// A position in a JSON text.
#[derive(Debug, Clone)]
pub(crate) struct Json<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Json<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// Reads a list. `item` must read one item.
    pub(crate) fn list(&mut self, mut item: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        self.expect(b'[')?;
        if self.take(b']') {
            return Ok(());
        }
        loop {
            item(self)?;
            if !self.take(b',') {
                return self.expect(b']');
            }
        }
    }

    /// Reads an object. `member` must read the value of the key that it gets.
    pub(crate) fn object(&mut self, mut member: impl FnMut(&mut Self, &'a str) -> Result<()>) -> Result<()> {
        self.expect(b'{')?;
        if self.take(b'}') {
            return Ok(());
        }
        loop {
            let key = self.string()?;
            self.expect(b':')?;
            member(self, key)?;
            if !self.take(b',') {
                return self.expect(b'}');
            }
        }
    }

    /// Text between the quotes of a string. Escapes are left as they are.
    pub(crate) fn string(&mut self) -> Result<&'a str> {
        self.expect(b'"')?;
        let start = self.at;
        let bytes = self.text.as_bytes();
        while let Some(byte) = bytes.get(self.at) {
            match byte {
                b'"' => {
                    self.at += 1;
                    return Ok(&self.text[start..self.at - 1]);
                }
                // a backslash and what it escapes; if that is longer than a byte, it has no quotes
                b'\\' => self.at += 2,
                _ => self.at += 1,
            }
        }
        bail!("a string is not closed")
    }

    /// Text of a number, or of `null`, `true`, `false`.
    pub(crate) fn word(&mut self) -> Result<&'a str> {
        self.skip_space();
        let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.');
        let rest = &self.text[self.at..];
        let len = rest.bytes().position(|byte| !is_word(&byte)).unwrap_or(rest.len());
        ensure!(len > 0, "there is no value at byte {}", self.at);
        self.at += len;
        Ok(&rest[..len])
    }

    /// Text of a string without its quotes, or of a number.
    pub(crate) fn scalar(&mut self) -> Result<&'a str> {
        self.skip_space();
        match self.text.as_bytes().get(self.at) {
            Some(b'"') => self.string(),
            _ => self.word(),
        }
    }

    /// Skips a value of any type.
    pub(crate) fn skip(&mut self) -> Result<()> {
        let mut depth = 0usize;
        loop {
            self.skip_space();
            match self.text.as_bytes().get(self.at).context("the text ends within a value")? {
                b'"' => {
                    self.string()?;
                }
                b'[' | b'{' => {
                    depth += 1;
                    self.at += 1;
                }
                b']' | b'}' => {
                    depth = depth.checked_sub(1).context("a closing bracket has no opening one")?;
                    self.at += 1;
                }
                b',' | b':' if depth > 0 => self.at += 1,
                _ => {
                    self.word()?;
                }
            }
            if depth == 0 {
                return Ok(());
            }
        }
    }

    pub(crate) fn end(&mut self) -> Result<()> {
        self.skip_space();
        ensure!(self.at == self.text.len(), "there is more text at byte {}", self.at);
        Ok(())
    }

    pub(crate) fn expect(&mut self, byte: u8) -> Result<()> {
        ensure!(self.take(byte), "there is no {:?} at byte {}", char::from(byte), self.at);
        Ok(())
    }

    fn take(&mut self, byte: u8) -> bool {
        self.skip_space();
        let found = self.text.as_bytes().get(self.at) == Some(&byte);
        self.at += usize::from(found);
        found
    }

    fn skip_space(&mut self) {
        let rest = &self.text.as_bytes()[self.at.min(self.text.len())..];
        self.at += rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
    }
}

/// The text that a string stands for. `text` is what is between its quotes.
pub(crate) fn unescape(text: &str) -> Result<Cow<'_, str>> {
    if !text.contains('\\') {
        return Ok(Cow::Borrowed(text));
    }
    Ok(Cow::Owned(serde_json::from_str(&format!("\"{text}\""))?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use stdx::rng::Rng;

    #[test]
    fn any_text_ends_in_a_value_or_an_error() {
        let seed = 5;
        println!("seed {seed}");
        let mut rng = Rng::new(seed);
        let pieces =
            ["[", "]", "{", "}", ",", ":", "\"", "\\", "\\u00e9", "é", "1", "-0.5e9", "null", " ", "a"];
        for _ in 0..20_000 {
            let text: String =
                (0..rng.below(12)).map(|_| pieces[rng.below(pieces.len() as u64) as usize]).collect();
            let skipped = Json::new(&text).skip();
            if serde_json::from_str::<serde_json::Value>(&text).is_ok() {
                let mut json = Json::new(&text);
                json.skip().and_then(|()| json.end()).unwrap_or_else(|why| panic!("{text}: {why}"));
            }
            let mut json = Json::new(&text);
            let listed = json.list(|json| json.object(|json, _| json.skip()));
            assert!(skipped.is_ok() || listed.is_err(), "{text}");
        }
    }
}
