//! Limit on the size of a tenant's tables. When it is reached, the tenant's writes are refused. Samples that
//! were accepted before are still sealed, so the tables can exceed the limit by what the tenant has in the
//! head.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableBytes {
    /// Size of the tenant's tables, not counting files that were already replaced or deleted.
    pub used_bytes: u64,
    pub limit_bytes: Option<u64>,
    /// True if an operator has set the limit. Otherwise, it was derived from the size of the disk.
    pub is_configured: bool,
}

impl TableBytes {
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
