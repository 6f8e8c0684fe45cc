//! Format of a record with ids of batches that were stored, though their own records are no longer in the journal.
//!
//! ```text
//!   ids = u8 version  u8 tenant length  tenant  varint n, for each: 16 bytes id  varint arrival, µs since 1970  varint records
//! ```

use super::{BatchError, IDS_VERSION, name, put_name};
use crate::record::wire::Cursor;
use model::TenantId;
use stdx::varint;

/// Batches of a tenant that were stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredIds {
    pub tenant: TenantId,
    pub ids: Vec<StoredId>,
}

/// A batch that was stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredId {
    pub id: [u8; 16],
    /// When the batch arrived, in microseconds since the Unix epoch.
    pub arrival_us: i64,
    /// Number of records.
    pub records: u32,
}

/// The bytes of an id in a record are no fewer than this.
const ID_BYTES_MIN: usize = 18;

pub fn encode(tenant: &TenantId, ids: &[StoredId]) -> Vec<u8> {
    let mut out = vec![IDS_VERSION];
    put_name(&mut out, tenant.as_str());
    varint::put(&mut out, ids.len() as u64);
    for StoredId { id, arrival_us, records } in ids {
        out.extend_from_slice(id);
        varint::put(&mut out, *arrival_us as u64);
        varint::put(&mut out, u64::from(*records));
    }
    out
}

/// Decodes what follows the version.
pub(super) fn read(cursor: &mut Cursor<'_>) -> Result<StoredIds, BatchError> {
    let tenant =
        TenantId::parse(name(cursor)?).map_err(|_| BatchError::Malformed("an invalid tenant name"))?;
    let count = cursor.length()?;
    if count > cursor.rest.len() / ID_BYTES_MIN {
        return Err(BatchError::Malformed("more ids than bytes"));
    }
    let id = |_| {
        let id = cursor.take(16)?.try_into().expect("BUG: took 16 bytes");
        let arrival_us = cursor.varint()? as i64;
        let records =
            u32::try_from(cursor.length()?).map_err(|_| BatchError::Malformed("too many records"))?;
        Ok(StoredId { id, arrival_us, records })
    };
    let ids = (0..count).map(id).collect::<Result<_, BatchError>>()?;
    match cursor.rest {
        [] => Ok(StoredIds { tenant, ids }),
        _ => Err(BatchError::Malformed("bytes after the ids")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Content, read_content};
    use super::*;

    #[test]
    fn ids_round_trip() {
        let tenant = TenantId::parse("a").unwrap();
        let id = |n: u8, arrival_us, records| StoredId { id: [n; 16], arrival_us, records };
        let ids = vec![id(1, 1_795_000_000_000_000, 7), id(255, 0, u32::MAX), id(0, i64::MAX, 0)];
        let bytes = encode(&tenant, &ids);
        assert_eq!(read_content(&bytes), Ok(Content::Ids(StoredIds { tenant, ids })));
        for len in 0..bytes.len() {
            assert!(read_content(&bytes[..len]).is_err(), "{len}");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert!(read_content(&longer).is_err());
    }
}
