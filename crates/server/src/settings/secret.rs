use std::collections::BTreeMap;

const REDACTED: &str = "(redacted)";

/// Options of object stores that may be shown. All others are treated as secrets.
const PLAIN_OPTIONS: [&str; 14] = [
    "allow_http",
    "bucket",
    "conditional_put",
    "container_name",
    "endpoint",
    "endpoint_url",
    "region",
    "default_region",
    "skip_signature",
    "timeout",
    "unsigned_payload",
    "use_emulator",
    "virtual_hosted_style_request",
    "account_name",
];

/// URL of an object store, which may contain a password.
#[derive(Clone, PartialEq, Eq)]
pub struct TablesUrl(pub String);

impl<T: Into<String>> From<T> for TablesUrl {
    fn from(url: T) -> Self {
        Self(url.into())
    }
}

impl std::fmt::Debug for TablesUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        without_secrets(&self.0).fmt(f)
    }
}

/// Options of an object store, by name in lower case. Debug output leaves out their values.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct StoreOptions(pub BTreeMap<String, String>);

impl std::fmt::Debug for StoreOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Returns the option's value, without what may be secret. `name` is in lower case.
pub(super) fn option_shown(name: &str, value: &str) -> String {
    let prefixes = ["aws_", "azure_storage_", "azure_", "google_"];
    let bare = prefixes.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
    match PLAIN_OPTIONS.contains(&bare) {
        // an endpoint is a URL, and may contain a user and a password
        true if value.contains("://") => without_secrets(value),
        true => value.to_owned(),
        false => REDACTED.to_owned(),
    }
}

/// Removes user, password and query from a URL. A text that is not a URL is redacted as a whole.
pub(super) fn without_secrets(text: &str) -> String {
    let Ok(mut url) = url::Url::parse(text) else { return REDACTED.to_owned() };
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
        // these fail only for a URL without a host, and such a URL has no user
        let _ = url.set_password(None);
        let _ = url.set_username("redacted");
        url.set_query(None);
        return url.into();
    }
    text.to_owned()
}
