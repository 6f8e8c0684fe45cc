//! Why a client's certificate is not accepted, in words for the log. The TLS library's own texts are names of its types.

use stdx::calendar::Date;
use tokio_rustls::rustls::pki_types::UnixTime;
use tokio_rustls::rustls::{CertificateError, OtherError};

const DAY_S: u64 = 86_400;

pub(crate) fn certificate_fault(error: &CertificateError) -> String {
    match error {
        CertificateError::BadEncoding => "it is malformed".into(),
        CertificateError::Expired => "it has expired".into(),
        CertificateError::ExpiredContext { not_after, .. } => format!("it expired on {}", date(not_after)),
        CertificateError::NotValidYetContext { not_before, .. } => {
            format!("it is not valid before {}", date(not_before))
        }
        CertificateError::UnknownIssuer => "no authority in tls_client_ca has signed it".into(),
        CertificateError::BadSignature => {
            "a signature is wrong: that of its issuer, or that of the client, which may have another key"
                .into()
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "it is not for clients: its extended key usage does not have clientAuth".into()
        }
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "its signature has an algorithm that is not supported".into()
        }
        CertificateError::Other(OtherError(error)) => match error.downcast_ref::<webpki::Error>() {
            Some(webpki::Error::CaUsedAsEndEntity) => {
                "it is the certificate of an authority, and not of a client".into()
            }
            Some(webpki::Error::EndEntityUsedAsCa) => {
                "it is signed by a certificate that is not one of an authority".into()
            }
            Some(webpki::Error::PathLenConstraintViolated) => {
                "there are more authorities between it and tls_client_ca than one of them allows".into()
            }
            Some(webpki::Error::NameConstraintViolation) => "its authority may not sign for its names".into(),
            _ => format!("it cannot be verified ({error})"),
        },
        error => format!("it cannot be verified ({error})"),
    }
}

fn date(time: &UnixTime) -> Date {
    Date::of_days(i64::try_from(time.as_secs() / DAY_S).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn causes_are_words() {
        let day = |number| UnixTime::since_unix_epoch(Duration::from_secs(number * DAY_S));
        let of_library = |error: webpki::Error| CertificateError::Other(OtherError(Arc::new(error)));
        for (error, expected) in [
            (
                CertificateError::ExpiredContext { time: day(11), not_after: day(10) },
                "it expired on 1970-01-11",
            ),
            (
                CertificateError::NotValidYetContext { time: day(9), not_before: day(10) },
                "it is not valid before 1970-01-11",
            ),
            (
                of_library(webpki::Error::CaUsedAsEndEntity),
                "it is the certificate of an authority, and not of a client",
            ),
            (
                of_library(webpki::Error::UnsupportedCertVersion),
                "it cannot be verified (UnsupportedCertVersion)",
            ),
            (CertificateError::Revoked, "it cannot be verified (Revoked)"),
        ] {
            assert_eq!(certificate_fault(&error), expected);
        }
    }
}
