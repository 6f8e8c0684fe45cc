use super::super::rows::check_path;
use super::super::{Fault, Rows, time};
use super::parser::Parser;
use model::AttributeValue;

/// Reads objects into records. Its memory is used again for the next object.
#[derive(Debug, Default)]
pub(in crate::records) struct Reader {
    /// The path of the value that is being read.
    path: String,
    /// The string that is being read, if it has escape sequences.
    text: String,
}

impl Reader {
    /// Adds the values of an object to the present record. After an error, some of them may have been added.
    pub(in crate::records) fn object(
        &mut self,
        json: &mut Parser<'_>,
        rows: &mut Rows<'_, '_>,
    ) -> Result<(), Fault> {
        self.path.clear();
        self.members(json, rows)
    }

    /// Reads the members of an object. The path is that of the object, with a dot behind it; that of a record is empty.
    fn members(&mut self, json: &mut Parser<'_>, rows: &mut Rows<'_, '_>) -> Result<(), Fault> {
        let base = self.path.len();
        let mut has_more = json.begin_object()?;
        while has_more {
            self.key(json, rows)?;
            json.expect(b':', "expected a colon")?;
            self.value(base == 0, json, rows)?;
            self.path.truncate(base);
            has_more = json.next_member()?;
        }
        Ok(())
    }

    /// Appends a key to the path.
    #[inline(always)]
    fn key(&mut self, json: &mut Parser<'_>, rows: &mut Rows<'_, '_>) -> Result<(), Fault> {
        let key = match json.plain()? {
            Some(key) => key,
            None => {
                json.unescape(&mut self.text, rows.memory)?;
                &self.text
            }
        };
        check_path(self.path.len() + key.len())?;
        self.path.push_str(key);
        Ok(())
    }

    /// `is_top`: whether the value is a member of the record itself, which may be its time.
    #[inline(always)]
    fn value(&mut self, is_top: bool, json: &mut Parser<'_>, rows: &mut Rows<'_, '_>) -> Result<(), Fault> {
        let value = match json.peek() {
            Some(b'"') => match json.plain()? {
                Some(text) => AttributeValue::Text(text),
                None => {
                    json.unescape(&mut self.text, rows.memory)?;
                    AttributeValue::Text(&self.text)
                }
            },
            Some(b'-' | b'0'..=b'9') => json.number()?,
            Some(b'{') => match json.empty_object() {
                Some(empty) => AttributeValue::Json(empty),
                None => {
                    self.path.push('.');
                    return self.members(json, rows);
                }
            },
            Some(b'[') => AttributeValue::Json(json.raw()?),
            _ => match json.word()? {
                Some(word) => AttributeValue::Bool(word),
                None => return Ok(()),
            },
        };
        let rank = if is_top { time::rank(&self.path) } else { None };
        rows.put(&self.path, rank, value)
    }
}
