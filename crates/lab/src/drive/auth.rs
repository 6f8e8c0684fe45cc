//! Builds the `Authorization` headers of requests. Results of runs never contain these secrets.

use crate::scenario::Auth;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::hmac;

pub(crate) fn authorization(auth: &Auth, tenant: &str, now_s: u64) -> String {
    match auth {
        Auth::Bearer { token } => format!("Bearer {}", fill(token, tenant)),
        Auth::Basic { user, password } => {
            let pair = format!("{}:{}", fill(user, tenant), fill(password, tenant));
            format!("Basic {}", STANDARD.encode(pair))
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
    let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256","typ":"JWT"}"#);
    let token = format!("{header}.{}", URL_SAFE_NO_PAD.encode(claims));
    let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), token.as_bytes());
    format!("{token}.{}", URL_SAFE_NO_PAD.encode(signature))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Span;

    #[test]
    fn headers_of_each_kind() {
        let basic = Auth::Basic { user: "Aladdin".into(), password: "open sesame".into() };
        assert_eq!(authorization(&basic, "t", 0), "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        let bearer = Auth::Bearer { token: "key-{tenant}".into() };
        assert_eq!(authorization(&bearer, "blue", 0), "Bearer key-blue");
    }

    #[test]
    fn tokens_are_minted_for_each_tenant() {
        // the example token of jwt.io
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
        assert_eq!(claims, URL_SAFE_NO_PAD.encode(expected));
    }
}
