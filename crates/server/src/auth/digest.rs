use ring::digest::{SHA256, digest};
use subtle::ConstantTimeEq;

pub(super) type Digest = [u8; 32];

pub(super) fn sha256(secret: &[u8]) -> Digest {
    digest(&SHA256, secret).as_ref().try_into().expect("BUG: a SHA-256 digest does not have 32 bytes")
}

pub(super) fn is_same(a: &Digest, b: &Digest) -> bool {
    a.ct_eq(b).into()
}
