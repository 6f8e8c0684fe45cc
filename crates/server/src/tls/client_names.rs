use super::der::{Elements, IA5_STRING, OBJECT_ID, PRINTABLE_STRING, SEQUENCE, SET, UTF8_STRING};
use std::borrow::Cow;
use std::sync::Arc;
use tokio_rustls::rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

/// Further names in a certificate are ignored, because names stay in memory with the connection.
const NAMES_MAX: usize = 16;

/// Longer names are ignored. Domain names have at most 253 bytes, but URIs can be longer.
pub(crate) const NAME_BYTES_MAX: usize = 512;

/// Object identifier 2.5.4.3 in DER, which marks the common name.
const COMMON_NAME: [u8; 3] = [0x55, 0x04, 0x03];

/// The names in a verified client certificate: its DNS names and URIs, or its common name if it has neither.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientNames(Arc<[Box<str>]>);

impl ClientNames {
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Self {
        let Ok(certificate) = EndEntityCert::try_from(certificate) else { return Self(Arc::default()) };
        let mut names: Vec<_> = certificate.valid_dns_names().chain(certificate.valid_uri_names()).collect();
        if names.is_empty() {
            names.extend(common_name(certificate.subject()));
        }
        let names = names.into_iter().filter(|name| !name.is_empty() && name.len() <= NAME_BYTES_MAX);
        Self(names.take(NAMES_MAX).map(|name| normal(name).into()).collect())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|name| &**name)
    }
}

/// Converts a name so that names can be compared: to lower case, unless it is a URI (a name with a colon).
pub(crate) fn normal(name: &str) -> Cow<'_, str> {
    match name.contains(':') || !name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        true => name.into(),
        false => name.to_ascii_lowercase().into(),
    }
}

/// Returns the last common name of a subject. If there are several, it is the most specific one.
fn common_name(subject: &[u8]) -> Option<&str> {
    let attributes = Elements(subject).filter_map(|part| part.elements(SET)).flatten();
    let names = attributes.filter_map(|attribute| {
        let mut fields = attribute.elements(SEQUENCE)?;
        let (kind, value) = (fields.next()?, fields.next()?);
        let is_name = kind.tag == OBJECT_ID && kind.content == COMMON_NAME;
        let is_text = [UTF8_STRING, PRINTABLE_STRING, IA5_STRING].contains(&value.tag);
        (is_name && is_text).then(|| std::str::from_utf8(value.content).ok())?
    });
    names.last()
}

#[cfg(test)]
impl From<&[&str]> for ClientNames {
    fn from(names: &[&str]) -> Self {
        Self(names.iter().map(|name| normal(name).into()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stdx::authority::Authority;
    use tokio_rustls::rustls::pki_types::pem::PemObject;

    #[test]
    fn names_are_dns_names_and_uris_or_else_the_common_name() {
        let dir = tempfile::tempdir().unwrap();
        let Some(authority) = Authority::new(dir.path()) else { return };
        let check = |subject: &str, alternative: &str, expected: &[&str]| {
            authority.client("c", subject, alternative);
            let certificate = CertificateDer::from_pem_file(authority.path("c.pem")).unwrap();
            let names = ClientNames::of(&certificate);
            assert_eq!(names.iter().collect::<Vec<_>>(), expected, "{subject} {alternative}");
        };
        check("/CN=Team-A.example", "", &["team-a.example"]);
        check("/O=Example/CN=outer/CN=inner", "", &["inner"]);
        check("/O=Example", "", &[]);
        check("/CN=ignored", "DNS:B.example,DNS:*.c.example", &["b.example", "*.c.example"]);
        check("/CN=ignored", "URI:spiffe://example/Team-A,DNS:x", &["x", "spiffe://example/Team-A"]);
        check("/CN=named", "IP:127.0.0.1,email:a@b.example", &["named"]);
        let many: Vec<_> = (0..100).map(|number| format!("DNS:n{number}")).collect();
        let first: Vec<_> = (0..NAMES_MAX).map(|number| format!("n{number}")).collect();
        check("/CN=x", &many.join(","), &first.iter().map(String::as_str).collect::<Vec<_>>());
        let long = format!("URI:u:{}", "x".repeat(NAME_BYTES_MAX));
        check("/CN=x", &long, &[]);
        assert_eq!(ClientNames::of(&b"nonsense"[..].into()).iter().count(), 0);
    }
}
