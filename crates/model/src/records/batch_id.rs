use crate::{StreamName, TenantId};
use xxhash_rust::xxh3::Xxh3;

/// Identifies a batch that a client may send again, because it did not get the answer: the hash (XXH3-128) of tenant, stream
/// and the client's key. A client that provokes a collision only loses a batch of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BatchId(pub u128);

impl BatchId {
    pub fn of(tenant: &TenantId, stream: &StreamName, key: &[u8]) -> Self {
        let mut hash = Xxh3::new();
        // names have no byte 0
        for part in [tenant.as_str().as_bytes(), &[0], stream.as_str().as_bytes(), &[0], key] {
            hash.update(part);
        }
        Self(hash.digest128())
    }

    pub const fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    pub const fn of_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_differ_by_tenant_and_stream_and_key() {
        let id = |tenant, stream, key: &str| {
            BatchId::of(
                &TenantId::parse(tenant).unwrap(),
                &StreamName::parse(stream).unwrap(),
                key.as_bytes(),
            )
        };
        let all =
            [id("a", "b", "c"), id("ab", "b", "c"), id("a", "bc", ""), id("a", "b", "d"), id("a", "c", "c")];
        for (i, one) in all.iter().enumerate() {
            assert!(all[..i].iter().all(|other| other != one));
        }
        assert_eq!(BatchId::of_bytes(all[0].to_bytes()), all[0]);
    }
}
