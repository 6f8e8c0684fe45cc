//! Varints, and byte strings preceded by their length as a varint.

pub(super) use stdx::varint::{put, take};
use stdx::varint::{unzigzag, zigzag};

pub(super) fn put_signed(out: &mut Vec<u8>, n: i64) {
    put(out, zigzag(n));
}

pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

pub(super) fn take_signed(from: &mut &[u8]) -> Option<i64> {
    take(from).map(unzigzag)
}

pub(super) fn take_bytes<'a>(from: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(take(from)?).ok()?;
    let (bytes, rest) = from.split_at_checked(len)?;
    *from = rest;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        for n in [0, 1, 127, 128, 16_383, 16_384, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut bytes = Vec::new();
            put(&mut bytes, n);
            put_signed(&mut bytes, n as i64);
            let mut rest = bytes.as_slice();
            assert_eq!((take(&mut rest), take_signed(&mut rest)), (Some(n), Some(n as i64)));
            assert!(rest.is_empty());
        }
    }

    #[test]
    fn malformed_varints_are_refused() {
        for bytes in [&[][..], &[0x80], &[0xff; 10], &[0xff; 11], &[5, 1, 2]] {
            assert_eq!(take_bytes(&mut &*bytes), None, "{bytes:?}");
        }
    }
}
