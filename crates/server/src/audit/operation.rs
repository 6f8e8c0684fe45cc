//! What an administrative request asks for.
//!
//! The request's line in the audit log is written where its caller is known, but its tenant may be in a form, which is read
//! later. So what the request asks for is noted on the way.

use super::beginning;
use axum::http::Uri;
use model::{TenantId, TenantSet};
use parking_lot::Mutex;
use std::sync::Arc;

/// Limit on the parameters in a line.
const PARAMETERS_BYTES_MAX: usize = 4 << 10;

/// A parameter whose name contains one of these words has a secret value, which is not logged.
const SECRET_NAMES: [&str; 12] = [
    "auth",
    "bearer",
    "cookie",
    "credential",
    "jwt",
    "key",
    "pass",
    "pwd",
    "secret",
    "session",
    "sig",
    "token",
];

/// So has a parameter with exactly one of these names: the code of OAuth, and the password in the URLs of InfluxDB.
const WHOLE_SECRET_NAMES: [&str; 2] = ["code", "p"];

/// Limit on the names of several tenants.
const TENANTS_BYTES_MAX: usize = 1 << 10;

/// A form that is none, such as JSON, is read as a name without a value. It may have secrets, so only what may be a name is logged.
const NAME_BYTES_MAX: usize = 64;

/// An extension of administrative requests. Clones are handles of the same operation.
#[derive(Debug, Clone, Default)]
pub(crate) struct Operation(Arc<Mutex<Noted>>);

#[derive(Debug, Default)]
struct Noted {
    tenant: Option<String>,
    parameters: Option<String>,
    dry_run: Option<bool>,
}

#[derive(Debug, PartialEq)]
pub(super) struct Asked {
    pub(super) tenant: Option<String>,
    /// Parameters of the form and the URL, decoded except for `&` and `%` in a value.
    pub(super) parameters: String,
    /// `None` for operations that delete nothing.
    pub(super) dry_run: Option<bool>,
}

impl Operation {
    pub(crate) fn note_tenant(&self, tenant: &TenantId) {
        self.0.lock().tenant = Some(tenant.to_string());
    }

    /// For an operation on what several tenants share, such as a query over them.
    pub(crate) fn note_tenants(&self, tenants: &TenantSet) {
        self.0.lock().tenant = Some(beginning(&tenants.to_string(), TENANTS_BYTES_MAX).to_owned());
    }

    pub(crate) fn note_parameters<'a>(&self, parameters: impl Iterator<Item = (&'a str, &'a str)>) {
        self.0.lock().parameters = Some(shown(parameters));
    }

    pub(crate) fn note_dry_run(&self, is_dry: bool) {
        self.0.lock().dry_run = Some(is_dry);
    }

    /// What was noted. If the request's parameters were not read, those in its URL count.
    pub(super) fn asked(&self, uri: &Uri) -> Asked {
        let Noted { tenant, parameters, dry_run } = std::mem::take(&mut *self.0.lock());
        let parameters = parameters.unwrap_or_else(|| {
            let query = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
            let pairs: Vec<_> = query.take(PARAMETERS_BYTES_MAX).collect();
            shown(pairs.iter().map(|(name, value)| (&**name, &**value)))
        });
        Asked { tenant, parameters, dry_run }
    }
}

fn shown<'a>(parameters: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let mut text = String::new();
    for (name, value) in parameters {
        if text.len() > PARAMETERS_BYTES_MAX {
            break;
        }
        if !text.is_empty() {
            text.push('&');
        }
        let is_of_name = |b: u8| b.is_ascii_alphanumeric() || b"_-.[]".contains(&b);
        if name.len() > NAME_BYTES_MAX || !name.bytes().all(is_of_name) {
            text.push('…');
            continue;
        }
        let lower = name.to_ascii_lowercase();
        text += &escaped(name);
        text.push('=');
        let is_secret = WHOLE_SECRET_NAMES.contains(&lower.as_str())
            || SECRET_NAMES.iter().any(|word| lower.contains(word));
        match is_secret {
            true => text.push('…'),
            false => text += &escaped(beginning(value, PARAMETERS_BYTES_MAX)),
        }
    }
    if text.len() > PARAMETERS_BYTES_MAX {
        text.truncate(text.floor_char_boundary(PARAMETERS_BYTES_MAX));
        text.push('…');
    }
    text
}

/// Without this, a value could look like a further parameter.
fn escaped(text: &str) -> String {
    text.replace('%', "%25").replace('&', "%26")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(operation: &Operation, uri: &str) -> Asked {
        operation.asked(&uri.parse().unwrap())
    }

    #[test]
    fn values_of_parameters_that_may_be_secret_are_left_out() {
        for (query, expected) in [
            ("", ""),
            ("mode=diff&tenant=a", "mode=diff&tenant=a"),
            ("Token=abc&mode=diff", "Token=…&mode=diff"),
            ("access_token=a=b&a", "access_token=…&a="),
            ("acc%65ss_t%6fken=b", "access_token=…"),
            ("x=1&password", "x=1&password=…"),
            ("p=b&path=c&P=d", "p=…&path=c&P=…"),
            ("bearer=b&Bearer_x=c&code=d&codec=e", "bearer=…&Bearer_x=…&code=…&codec=e"),
            ("match[]=%7Ba%3D%22b%26start%3D0%25%22%7D", "match[]={a=\"b%26start=0%25\"}"),
        ] {
            let url = asked(&Operation::default(), &format!("/p?{query}"));
            let expected = Asked { tenant: None, parameters: expected.into(), dry_run: None };
            assert_eq!(url, expected, "{query}");
        }
    }

    #[test]
    fn what_was_noted_goes_before_the_url_and_is_bounded() {
        let operation = Operation::default();
        let long = "x".repeat(1 << 20);
        operation.note_tenant(&TenantId::anonymous());
        operation.note_parameters([("match[]", "a"), ("path", long.as_str()), ("b", "c")].into_iter());
        operation.note_dry_run(false);
        let Asked { tenant, parameters, dry_run } = asked(&operation, "/p?dry_run=true");
        assert_eq!((tenant.as_deref(), dry_run), (Some("anonymous"), Some(false)));
        assert!(parameters.starts_with("match[]=a&path=xxx") && parameters.ends_with("x…"));
        assert!(parameters.len() < PARAMETERS_BYTES_MAX + 10, "{} bytes", parameters.len());
    }
}
