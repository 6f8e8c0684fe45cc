//! How a generator proves who it is: the values of `Authorization` headers.
//!
//! Tokens are minted for each tenant when a run begins. Secrets come from scenarios and end in headers; they
//! are in no result.

mod sha256;

use crate::scenario::Auth;
use sha256::hmac;
use std::fmt::Write;

const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const FOR_URLS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The header's value for `tenant`, at `now_s` seconds since 1970.
pub fn authorization(auth: &Auth, tenant: &str, now_s: u64) -> String {
    match auth {
        Auth::Bearer { token } => format!("Bearer {}", fill(token, tenant)),
        Auth::Basic { user, password } => {
            let pair = format!("{}:{}", fill(user, tenant), fill(password, tenant));
            format!("Basic {}", base64(STANDARD, pair.as_bytes(), true))
        }
        Auth::Jwt { secret, claim, claims, valid_for } => {
            let mut body = serde_json::Map::new();
            for (name, value) in claims {
                body.insert(name.clone(), fill(value, tenant).into());
            }
            body.insert(claim.clone(), tenant.into());
            body.insert("iat".into(), now_s.into());
            body.insert("exp".into(), now_s.saturating_add(valid_for.0.as_secs()).into());
            format!("Bearer {}", jwt(secret.as_bytes(), &serde_json::Value::Object(body).to_string()))
        }
    }
}

fn fill(text: &str, tenant: &str) -> String {
    text.replace("{tenant}", tenant)
}

/// A token in the compact form of RFC 7515, signed with `HS256`.
fn jwt(secret: &[u8], claims: &str) -> String {
    let mut token = base64(FOR_URLS, br#"{"alg":"HS256","typ":"JWT"}"#, false);
    write!(token, ".{}", base64(FOR_URLS, claims.as_bytes(), false)).expect("BUG: a String takes all");
    let signature = hmac(secret, token.as_bytes());
    write!(token, ".{}", base64(FOR_URLS, &signature, false)).expect("BUG: a String takes all");
    token
}

/// RFC 4648, with or without padding.
fn base64(alphabet: &[u8; 64], bytes: &[u8], padded: bool) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let bits =
            chunk.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for letter in 0..=chunk.len() {
            out.push(char::from(alphabet[(bits >> (18 - 6 * letter) & 63) as usize]));
        }
        if padded {
            out.extend(std::iter::repeat_n('=', 3 - chunk.len()));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Span;

    #[test]
    fn base64_as_in_the_rfc() {
        let check =
            |text: &str, expected: &str| assert_eq!(base64(STANDARD, text.as_bytes(), true), expected);
        check("", "");
        check("f", "Zg==");
        check("fo", "Zm8=");
        check("foobar", "Zm9vYmFy");
        assert_eq!(base64(FOR_URLS, &[0xfb, 0xff], false), "-_8");
    }

    #[test]
    fn headers_of_each_kind() {
        let basic = Auth::Basic { user: "Aladdin".into(), password: "open sesame".into() };
        assert_eq!(authorization(&basic, "t", 0), "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        let bearer = Auth::Bearer { token: "key-{tenant}".into() };
        assert_eq!(authorization(&bearer, "blue", 0), "Bearer key-blue");
    }

    #[test]
    fn tokens_are_minted_for_each_tenant() {
        // the well-known token of jwt.io
        let token = jwt(b"your-256-bit-secret", r#"{"sub":"1234567890","name":"John Doe","iat":1516239022}"#);
        assert!(token.ends_with(".SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c"), "{token}");
        let auth = Auth::Jwt {
            secret: "s".into(),
            claim: "org".into(),
            claims: [("aud".to_owned(), "{tenant}-write".to_owned())].into(),
            valid_for: Span::seconds(60.0),
        };
        let (blue, red) = (authorization(&auth, "blue", 100), authorization(&auth, "red", 100));
        assert_ne!(blue, red);
        let claims = blue.split('.').nth(1).unwrap();
        let expected = r#"{"aud":"blue-write","exp":160,"iat":100,"org":"blue"}"#;
        assert_eq!(claims, base64(FOR_URLS, expected.as_bytes(), false));
    }
}
