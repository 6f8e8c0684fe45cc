//! Types of settings' values, with their parsing and formatting.

use super::admin_listen::AdminListen;
use super::graphite::{PICKLE, TenantAddress};
use super::label_name::LabelName;
use super::limit_status::LimitStatus;
use super::otlp::Scale;
use super::secret::{TablesUrl, without_secrets};
use super::setting::{Setting, Takes};
use crate::auth::Networks;
use crate::query_source::detail::Detail;
use crate::tls::ClientAuth;
use journal::Durability;
use model::TenantId;
use model::caps::LABEL_NAME_BYTES_MAX;
use model::labels::METRIC_NAME;
use protocol::influx::NameRule;
use protocol::otlp::{Delta, Naming, Promoted, Translation};
use serde_json::{Value as Json, json};
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::PathBuf;
use stdx::address;
use stdx::units::{bytes, bytes_text, duration_ms, duration_text};
use tables::TableError;
use tables::rollup::Resolution;

pub(super) type Bytes = u64;
pub(super) type Count = usize;
/// A duration in milliseconds, above 0.
pub(super) type Millis = i64;

/// A type that settings can have. If a value cannot be parsed, the error tells which values are valid.
pub(super) trait Value: Sized {
    const TAKES: Takes;

    fn parse(text: &str, setting: &Setting) -> Result<Self, String>;

    fn parse_os(text: &OsStr, setting: &Setting) -> Result<Self, String> {
        Self::parse(text.to_str().ok_or("must be valid UTF-8")?, setting)
    }

    /// Writes the value as in the configuration file, without secrets.
    fn show(&self, setting: &Setting) -> Json;
}

impl Value for Millis {
    const TAKES: Takes = Takes::Duration;

    fn parse(text: &str, _: &Setting) -> Result<Self, String> {
        let ms = duration_ms(text).filter(|ms| (1..Self::MAX).contains(ms));
        ms.ok_or_else(|| "must be a duration such as 30s, 5m or 1h30m".into())
    }

    fn show(&self, _: &Setting) -> Json {
        json!(duration_text(*self))
    }
}

impl Value for Option<Millis> {
    const TAKES: Takes = Takes::Duration;

    fn parse(text: &str, setting: &Setting) -> Result<Self, String> {
        let none = setting.none.expect("BUG: an optional setting has no word for no value");
        if text == none {
            return Ok(None);
        }
        Millis::parse(text, setting).map(Some).map_err(|must| format!("{must}, or {none}"))
    }

    fn show(&self, setting: &Setting) -> Json {
        self.map_or_else(|| json!(setting.none), |ms| ms.show(setting))
    }
}

impl Value for Bytes {
    const TAKES: Takes = Takes::Size;

    fn parse(text: &str, setting: &Setting) -> Result<Self, String> {
        let size = bytes(text).ok_or("must be a size such as 512MiB or 2GiB")?;
        setting.check(size).map(|()| size)
    }

    fn show(&self, _: &Setting) -> Json {
        json!(bytes_text(*self))
    }
}

impl Value for Count {
    const TAKES: Takes = Takes::Count;

    fn parse(text: &str, setting: &Setting) -> Result<Self, String> {
        let must = || format!("must be {}", setting.bounds_text().unwrap_or_default());
        let count = text.replace('_', "").parse::<Self>().map_err(|_| must())?;
        setting.check(count as u64).map(|()| count)
    }

    fn show(&self, _: &Setting) -> Json {
        json!(self)
    }
}

impl Value for Option<Count> {
    const TAKES: Takes = Takes::Count;

    fn parse(text: &str, setting: &Setting) -> Result<Self, String> {
        let none = setting.none.expect("BUG: an optional setting has no word for no value");
        if text == none {
            return Ok(None);
        }
        Count::parse(text, setting).map(Some).map_err(|must| format!("{must}, or {none}"))
    }

    fn show(&self, setting: &Setting) -> Json {
        self.map_or_else(|| json!(setting.none), |count| count.show(setting))
    }
}

impl Value for Option<Bytes> {
    const TAKES: Takes = Takes::Size;

    fn parse(text: &str, setting: &Setting) -> Result<Self, String> {
        let none = setting.none.expect("BUG: an optional setting has no word for no value");
        if text == none {
            return Ok(None);
        }
        Bytes::parse(text, setting).map(Some).map_err(|must| format!("{must}, or {none}"))
    }

    fn show(&self, setting: &Setting) -> Json {
        self.map_or_else(|| json!(setting.none), |bytes| bytes.show(setting))
    }
}

impl Value for LimitStatus {
    const TAKES: Takes = Takes::Word(&[
        ("429", "Prometheus drops the samples, unless its `retry_on_http_429` is set"),
        ("503", "every sender repeats the request, and sends its later requests only afterwards"),
    ]);

    fn parse(text: &str, _: &Setting) -> Result<Self, String> {
        match text {
            "429" => Ok(Self::TooManyRequests),
            "503" => Ok(Self::Unavailable),
            _ => Err("must be 429 or 503".into()),
        }
    }

    fn show(&self, _: &Setting) -> Json {
        json!(match self {
            Self::TooManyRequests => 429,
            Self::Unavailable => 503,
        })
    }
}

impl Value for LabelName {
    const TAKES: Takes = Takes::Label;

    fn parse(text: &str, _: &Setting) -> Result<Self, String> {
        match text {
            "" | METRIC_NAME => Err(format!("must be the name of a label other than {METRIC_NAME}")),
            _ if text.len() > LABEL_NAME_BYTES_MAX => {
                Err(format!("must have at most {LABEL_NAME_BYTES_MAX} bytes"))
            }
            _ => Ok(Self(text.into())),
        }
    }

    fn show(&self, _: &Setting) -> Json {
        json!(*self.0)
    }
}

impl Value for Option<LabelName> {
    const TAKES: Takes = Takes::Label;

    fn parse(text: &str, setting: &Setting) -> Result<Self, String> {
        let none = setting.none.expect("BUG: an optional setting has no word for no value");
        if text == none {
            return Ok(None);
        }
        LabelName::parse(text, setting).map(Some).map_err(|must| format!("{must}, or {none}"))
    }

    fn show(&self, setting: &Setting) -> Json {
        self.as_ref().map_or_else(|| json!(setting.none), |label| label.show(setting))
    }
}

impl Value for NameRule {
    const TAKES: Takes = Takes::Word(&[
        ("measurement_field", "`cpu_usage_user`, as in VictoriaMetrics"),
        ("field_label", "`cpu{field=\"usage_user\"}`"),
    ]);

    fn parse(text: &str, _: &Setting) -> Result<Self, String> {
        match text {
            "measurement_field" => Ok(Self::MeasurementAndField),
            "field_label" => Ok(Self::FieldAsLabel),
            _ => Err("must be measurement_field or field_label".into()),
        }
    }

    fn show(&self, _: &Setting) -> Json {
        json!(match self {
            Self::MeasurementAndField => "measurement_field",
            Self::FieldAsLabel => "field_label",
        })
    }
}

impl Value for TenantId {
    const TAKES: Takes = Takes::Tenant;

    fn parse(text: &str, _: &Setting) -> Result<Self, String> {
        let tenant = Self::parse(text).map_err(|error| error.to_string())?;
        match tenant == Self::anonymous() {
            true => Err(format!("must not be {tenant}, the tenant of requests that name no tenant")),
            false => Ok(tenant),
        }
    }

    fn show(&self, _: &Setting) -> Json {
        json!(self.as_str())
    }
}

impl Value for Option<TenantId> {
    const TAKES: Takes = Takes::Tenant;

    fn parse(text: &str, setting: &Setting) -> Result<Self, String> {
        if setting.none == Some(text) {
            return Ok(None);
        }
        <TenantId as Value>::parse(text, setting).map(Some)
    }

    fn show(&self, setting: &Setting) -> Json {
        self.as_ref().map_or_else(|| json!(setting.none), |tenant| tenant.show(setting))
    }
}

impl Value for bool {
    const TAKES: Takes = Takes::Word(&[("true", ""), ("false", "")]);

    fn parse(text: &str, _: &Setting) -> Result<Self, String> {
        text.parse().map_err(|_| "must be true or false".into())
    }

    fn show(&self, _: &Setting) -> Json {
        json!(self)
    }
}

impl Value for PathBuf {
    const TAKES: Takes = Takes::Directory;

    fn parse(text: &str, setting: &Setting) -> Result<Self, String> {
        Self::parse_os(text.as_ref(), setting)
    }

    fn parse_os(text: &OsStr, _: &Setting) -> Result<Self, String> {
        if text.is_empty() { Err("must be a path".into()) } else { Ok(text.into()) }
    }

    fn show(&self, _: &Setting) -> Json {
        json!(self.display().to_string())
    }
}

impl Value for Option<PathBuf> {
    const TAKES: Takes = Takes::File;

    fn parse(text: &str, setting: &Setting) -> Result<Self, String> {
        Self::parse_os(text.as_ref(), setting)
    }

    fn parse_os(text: &OsStr, setting: &Setting) -> Result<Self, String> {
        if setting.none.is_some_and(|none| text == none) {
            return Ok(None);
        }
        PathBuf::parse_os(text, setting).map(Some)
    }

    fn show(&self, setting: &Setting) -> Json {
        self.as_ref().map_or_else(|| json!(setting.none), |path| path.show(setting))
    }
}

impl Value for SocketAddr {
    const TAKES: Takes = Takes::Address;

    fn parse(text: &str, _: &Setting) -> Result<Self, String> {
        address::listen(text)
    }

    fn show(&self, _: &Setting) -> Json {
        json!(self.to_string())
    }
}

impl Value for Option<SocketAddr> {
    const TAKES: Takes = Takes::Address;

    fn parse(text: &str, setting: &Setting) -> Result<Self, String> {
        if setting.none == Some(text) {
            return Ok(None);
        }
        SocketAddr::parse(text, setting).map(Some)
    }

    fn show(&self, setting: &Setting) -> Json {
        self.map_or_else(|| json!(setting.none), |address| address.show(setting))
    }
}

impl Value for AdminListen {
    const TAKES: Takes = Takes::Address;

    fn parse(text: &str, setting: &Setting) -> Result<Self, String> {
        match text {
            Self::SAME => Ok(Self::Same),
            _ if setting.none == Some(text) => Ok(Self::Nowhere),
            _ => address::listen(text).map(Self::At).map_err(|must| format!("{must}; or http, or none")),
        }
    }

    fn show(&self, setting: &Setting) -> Json {
        match self {
            Self::Same => json!(Self::SAME),
            Self::Nowhere => json!(setting.none),
            Self::At(address) => address.show(setting),
        }
    }
}

impl Value for ClientAuth {
    const TAKES: Takes = Takes::Word(&[
        ("required", "the handshake fails without a certificate"),
        ("optional", "clients without a certificate need another credential"),
    ]);

    fn parse(text: &str, _: &Setting) -> Result<Self, String> {
        match text {
            "required" => Ok(Self::Required),
            "optional" => Ok(Self::Optional),
            _ => Err("must be required or optional".into()),
        }
    }

    fn show(&self, _: &Setting) -> Json {
        json!(match self {
            Self::Required => "required",
            Self::Optional => "optional",
        })
    }
}

impl Value for Naming {
    const TAKES: Takes = Takes::Word(&[
        (
            "UnderscoreEscapingWithSuffixes",
            "in metrics, runs of characters other than ASCII letters, digits and `:` become one `_`, in attributes \
                each character other than ASCII letters and digits, and metrics get suffixes for unit and type",
        ),
        (
            "UnderscoreEscapingWithoutSuffixes",
            "the same, but metrics keep their underscores and get no suffixes",
        ),
        ("NoUTF8EscapingWithSuffixes", "metrics get the suffixes"),
        ("NoTranslation", "names stay as they are"),
    ]);

    fn parse(text: &str, _: &Setting) -> Result<Self, String> {
        match text {
            "UnderscoreEscapingWithSuffixes" => Ok(Self::EscapedWithSuffixes),
            "UnderscoreEscapingWithoutSuffixes" => Ok(Self::Escaped),
            "NoUTF8EscapingWithSuffixes" => Ok(Self::WithSuffixes),
            "NoTranslation" => Ok(Self::Unchanged),
            _ => Err("must be UnderscoreEscapingWithSuffixes, UnderscoreEscapingWithoutSuffixes, \
                      NoUTF8EscapingWithSuffixes or NoTranslation"
                .into()),
        }
    }

    fn show(&self, _: &Setting) -> Json {
        json!(match self {
            Self::EscapedWithSuffixes => "UnderscoreEscapingWithSuffixes",
            Self::Escaped => "UnderscoreEscapingWithoutSuffixes",
            Self::WithSuffixes => "NoUTF8EscapingWithSuffixes",
            Self::Unchanged => "NoTranslation",
        })
    }
}

impl Value for Promoted {
    const TAKES: Takes = Takes::Names;

    fn parse(text: &str, _: &Setting) -> Result<Self, String> {
        match items(text)?.as_slice() {
            ["*"] => Ok(Self::All),
            names if names.contains(&"*") => Err("must be * alone, or names of attributes".into()),
            names => Ok(Self::These(names.iter().map(|name| (*name).into()).collect())),
        }
    }

    fn show(&self, _: &Setting) -> Json {
        match self {
            Self::All => json!(["*"]),
            Self::These(names) => names.iter().map(|name| json!(**name)).collect(),
        }
    }
}

impl Value for Delta {
    const TAKES: Takes = Takes::Word(&[
        ("accumulate", "they are added up, so that each series is cumulative"),
        ("refuse", "their points are refused, and the answer says so"),
        ("keep", "each point is stored as it was sent, so its series is not cumulative"),
    ]);

    fn parse(text: &str, _: &Setting) -> Result<Self, String> {
        match text {
            "accumulate" => Ok(Self::Accumulated),
            "refuse" => Ok(Self::Refused),
            "keep" => Ok(Self::Kept),
            _ => Err("must be accumulate, refuse or keep".into()),
        }
    }

    fn show(&self, _: &Setting) -> Json {
        json!(match self {
            Self::Accumulated => "accumulate",
            Self::Refused => "refuse",
            Self::Kept => "keep",
        })
    }
}

impl Value for Scale {
    const TAKES: Takes = Takes::Word(&[
        ("1", "bounds are 1, 2, 4, …"),
        ("2", "bounds are 1, 1.41, 2, …"),
        ("4", "bounds are 1, 1.19, 1.41, …"),
        ("8", "bounds are 1, 1.09, 1.19, …"),
    ]);

    fn parse(text: &str, _: &Setting) -> Result<Self, String> {
        let scale = (0..=Translation::SCALE_MAX).find(|scale| (1 << scale).to_string() == text);
        scale.map(Self).ok_or_else(|| "must be 1, 2, 4 or 8".into())
    }

    fn show(&self, _: &Setting) -> Json {
        json!(1 << self.0)
    }
}

impl Value for TablesUrl {
    const TAKES: Takes = Takes::Url;

    fn parse(text: &str, _: &Setting) -> Result<Self, String> {
        if !text.contains("://") {
            return Err("must be a URL such as file:///var/lib/tables or s3://bucket/folder".into());
        }
        match tables::store::check_url(text) {
            Ok(()) => Ok(text.into()),
            // the reason is enough for the message, because it begins with the URL
            Err(TableError::Location { reason, .. }) => Err(reason),
            Err(error) => Err(error.to_string()),
        }
    }

    fn show(&self, _: &Setting) -> Json {
        json!(without_secrets(&self.0))
    }
}

impl Value for Durability {
    const TAKES: Takes = Takes::Word(&[
        ("fsync", "once it survives a power loss"),
        ("os", "once it survives a crash of the process, but not necessarily of the machine"),
    ]);

    fn parse(text: &str, _: &Setting) -> Result<Self, String> {
        match text {
            "fsync" => Ok(Self::Fsync),
            "os" => Ok(Self::Os),
            _ => Err("must be fsync or os".into()),
        }
    }

    fn show(&self, _: &Setting) -> Json {
        json!(match self {
            Self::Fsync => "fsync",
            Self::Os => "os",
        })
    }
}

impl Value for Detail {
    const TAKES: Takes = Takes::Word(&[
        ("raw", "samples only"),
        ("auto", "the coarsest rollup that gives the same answer as samples"),
        ("5m", "rollups of 5 minutes"),
        ("1h", "rollups of 1 hour"),
    ]);

    fn parse(text: &str, _: &Setting) -> Result<Self, String> {
        Self::parse(text).ok_or_else(|| format!("must be {}", Self::WORDS))
    }

    fn show(&self, _: &Setting) -> Json {
        json!(self.word())
    }
}

impl Value for Vec<Resolution> {
    const TAKES: Takes = Takes::Durations;

    fn parse(text: &str, _: &Setting) -> Result<Self, String> {
        let resolution = |text: &str| {
            let ms = duration_ms(text);
            let found = Resolution::ALL.into_iter().find(|resolution| ms == Some(resolution.ms()));
            found.ok_or_else(|| "must be a list of 5m and 1h, or none".to_owned())
        };
        let items = if text == "none" { Vec::new() } else { items(text)? };
        let mut resolutions = items.into_iter().map(resolution).collect::<Result<Self, _>>()?;
        resolutions.sort_unstable();
        resolutions.dedup();
        Ok(resolutions)
    }

    fn show(&self, _: &Setting) -> Json {
        self.iter().map(|resolution| duration_text(resolution.ms())).collect()
    }
}

/// Names of hosts. `*` stands for any host.
impl Value for Vec<String> {
    const TAKES: Takes = Takes::Names;

    fn parse(text: &str, _: &Setting) -> Result<Self, String> {
        let is_name = |name: &str| {
            name == "*" || name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b))
        };
        let items = items(text)?;
        match items.iter().copied().all(is_name) {
            true => Ok(items.into_iter().map(str::to_owned).collect()),
            false => Err("must be names without a port, such as metrics.example, or *".into()),
        }
    }

    fn show(&self, _: &Setting) -> Json {
        json!(self)
    }
}

impl Value for Vec<TenantAddress> {
    const TAKES: Takes = Takes::TenantAddresses;

    /// The tenant may be `anonymous`, as it may be in `graphite_tenant`.
    fn parse(text: &str, _: &Setting) -> Result<Self, String> {
        let parse = |item: &str| {
            let form = "must be addresses with tenants, such as 127.0.0.1:2103=team-a or pickle:127.0.0.1:2104=team-a";
            let (address, tenant) = item.split_once('=').ok_or(form)?;
            let of_pickles = address.strip_prefix(PICKLE);
            Ok(TenantAddress {
                is_pickle: of_pickles.is_some(),
                address: address::listen(of_pickles.unwrap_or(address))?,
                tenant: TenantId::parse(tenant).map_err(|error| error.to_string())?,
            })
        };
        items(text)?.into_iter().map(parse).collect()
    }

    fn show(&self, _: &Setting) -> Json {
        self.iter().map(ToString::to_string).collect()
    }
}

impl Value for Networks {
    const TAKES: Takes = Takes::Networks;

    fn parse(text: &str, _: &Setting) -> Result<Self, String> {
        let networks = items(text)?.into_iter().map(Self::parse_one).collect::<Option<_>>();
        networks.map(Self).ok_or_else(|| "must be addresses or networks such as 10.0.0.0/8".into())
    }

    fn show(&self, _: &Setting) -> Json {
        self.0.iter().map(ToString::to_string).collect()
    }
}

/// How an empty list is written. An empty text is refused, because it may come from a shell variable that is
/// not set.
pub(super) const EMPTY_LIST: &str = "[]";

fn items(text: &str) -> Result<Vec<&str>, String> {
    if text == EMPTY_LIST {
        return Ok(Vec::new());
    }
    let items: Vec<_> = text.split(',').map(str::trim).collect();
    match items.iter().any(|item| item.is_empty()) {
        true => Err("must not have an empty item".into()),
        false => Ok(items),
    }
}
