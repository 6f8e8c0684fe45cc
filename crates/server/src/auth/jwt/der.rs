//! Public keys in DER, as `openssl pkey -pubout` writes them: RFC 5280, section 4.1.2.7.

const RSA: &[u8] = &[0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00];
const P256: &[u8] = &[
    0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03,
    0x01, 0x07,
];

const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const SEQUENCE: u8 = 0x30;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum PublicKey<'a> {
    Rsa {
        n: &'a [u8],
        e: &'a [u8],
    },
    /// The point of the curve in uncompressed form: the byte 4, then x and y.
    P256([u8; 65]),
}

/// Reads a `SubjectPublicKeyInfo`. Returns `None` if it is malformed or the key has another type.
pub(super) fn public_key(der: &[u8]) -> Option<PublicKey<'_>> {
    let (info, []) = element(der, SEQUENCE)? else { return None };
    let (algorithm, rest) = element(info, SEQUENCE)?;
    let (bits, []) = element(rest, BIT_STRING)? else { return None };
    let [0, key @ ..] = bits else { return None }; // the first byte is the number of unused bits
    match algorithm {
        RSA => {
            let (numbers, []) = element(key, SEQUENCE)? else { return None };
            let (n, rest) = element(numbers, INTEGER)?;
            let (e, []) = element(rest, INTEGER)? else { return None };
            Some(PublicKey::Rsa { n, e })
        }
        P256 if key.first() == Some(&4) => Some(PublicKey::P256(key.try_into().ok()?)),
        _ => None,
    }
}

/// Reads the first element, which must have this tag. Returns its content, and the bytes after it.
fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (first, rest) = der.split_first()?;
    if *first != tag {
        return None;
    }
    let (length, rest) = match rest {
        [length @ 0..=0x7f, rest @ ..] => (usize::from(*length), rest),
        [0x81, length, rest @ ..] => (usize::from(*length), rest),
        [0x82, high, low, rest @ ..] => (usize::from(*high) << 8 | usize::from(*low), rest),
        _ => return None,
    };
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};

    #[test]
    fn a_point_comes_back_and_what_is_broken_is_refused() {
        let random = ring::rand::SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random).unwrap();
        let point = pair.public_key().as_ref();
        let header = [0x30, 0x59, 0x30, 0x13];
        let der = [&header, P256, &[BIT_STRING, 0x42, 0], point].concat();
        assert_eq!(public_key(&der), Some(PublicKey::P256(point.try_into().unwrap())));
        for cut in 0..der.len() {
            assert_eq!(public_key(&der[..cut]), None);
        }
        assert_eq!(public_key(&[&*der, &[0]].concat()), None);
        for at in (0..der.len() - 64).filter(|at| *at != 26) {
            let mut broken = der.clone();
            broken[at] ^= 0x80;
            assert_eq!(public_key(&broken), None, "byte {at}");
        }
    }
}
