//! Settings of the listeners: their addresses, and whether connections are encrypted.

use super::admin_listen::{AdminListen, is_reachable};
use super::given::SettingsError;
use super::reader::Reader;
use super::table;
use crate::tls::{Clients, TlsFiles};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Where administration is served by default if other machines can reach the address `http`.
const ADMIN_DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9010);

pub(super) fn admin_listen(reader: &mut Reader<'_>, http: SocketAddr) -> Result<AdminListen, SettingsError> {
    let default = if is_reachable(http) { AdminListen::At(ADMIN_DEFAULT) } else { AdminListen::Same };
    let admin = reader.derive(&table::ADMIN_LISTEN, default)?;
    if admin == AdminListen::At(http) && http.port() != 0 {
        let reason = "the setting http already has this address; to serve administration there too, set admin_listen to \
            the word http";
        return Err(reader.error(&table::ADMIN_LISTEN, reason.into()));
    }
    Ok(admin)
}

pub(super) fn tls(
    reader: &mut Reader<'_>,
    warnings: &mut Vec<String>,
) -> Result<Option<TlsFiles>, SettingsError> {
    let (cert, key) = (reader.read(&table::TLS_CERT)?, reader.read(&table::TLS_KEY)?);
    let (ca, auth) = (reader.read(&table::TLS_CLIENT_CA)?, reader.read(&table::TLS_CLIENT_AUTH)?);
    let (cert, key) = match (cert, key, &ca) {
        (Some(cert), Some(key), _) => (cert, key),
        (None, None, None) => return Ok(None),
        (Some(_), None, _) => return Err(reader.error(&table::TLS_CERT, "needs tls_key too".into())),
        (None, Some(_), _) => return Err(reader.error(&table::TLS_KEY, "needs tls_cert too".into())),
        (None, None, Some(_)) => {
            return Err(reader.error(&table::TLS_CLIENT_CA, "needs tls_cert and tls_key too".into()));
        }
    };
    let files = TlsFiles { cert, key, clients: ca.map(|ca| Clients { ca, auth }) };
    warnings.extend(files.check().map_err(|reason| reader.error(&table::TLS_CERT, reason))?);
    Ok(Some(files))
}
