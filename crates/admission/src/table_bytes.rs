//! Limit on the bytes of a tenant's tables. At the limit, the tenant may not write. Earlier samples are still
//! sealed, so the tables may exceed the limit by the tenant's part of the head.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableBytes {
    /// Bytes of the live files of the tenant's tables.
    pub used_bytes: u64,
    /// `None`: no limit.
    pub limit_bytes: Option<u64>,
    /// True if an operator set the limit. Otherwise, it was derived from the disk.
    pub is_configured: bool,
}

impl TableBytes {
    /// The limit, if it is reached.
    pub fn reached(&self) -> Option<u64> {
        self.limit_bytes.filter(|limit_bytes| self.used_bytes >= *limit_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_reached_when_no_byte_is_left() {
        let check = |used_bytes, limit_bytes, expected| {
            let table_bytes = TableBytes { used_bytes, limit_bytes, is_configured: false };
            assert_eq!(table_bytes.reached(), expected, "{table_bytes:?}");
        };
        check(0, Some(5), None);
        check(4, Some(5), None);
        check(5, Some(5), Some(5));
        check(u64::MAX, Some(5), Some(5));
        check(u64::MAX, None, None);
    }
}
