use std::net::{Ipv6Addr, SocketAddr, ToSocketAddrs};

/// Parses an address to listen on, such as `127.0.0.1:9009`, `[::1]:9009` or `localhost:9009`.
/// `:9009` means all addresses of this machine. If a host name has several addresses, its first
/// IPv4 address is preferred.
pub fn listen(text: &str) -> Result<SocketAddr, String> {
    let form = "an address and a port, such as 127.0.0.1:9009, localhost:9009 or :9009 for all addresses";
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let (host, port) = text.rsplit_once(':').ok_or(form)?;
    let port: u16 = port.parse().map_err(|_| form)?;
    if host.is_empty() {
        return Ok(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)));
    }
    // without brackets, the last group of an IPv6 address would be read as the port
    if host.contains([':', '[', ']', '/', '@']) || host.contains(char::is_whitespace) {
        return Err(form.into());
    }
    let found: Vec<_> =
        (host, port).to_socket_addrs().map_err(|e| format!("cannot look up {host}: {e}"))?.collect();
    let address = found.iter().find(|address| address.is_ipv4()).or(found.first());
    address.copied().ok_or_else(|| format!("host name {host} has no address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listen_addresses_are_parsed() {
        let check = |text: &str, expected: &str| {
            assert_eq!(listen(text).map(|address| address.to_string()), Ok(expected.into()), "{text}");
        };
        check("127.0.0.1:9009", "127.0.0.1:9009");
        check("0.0.0.0:0", "0.0.0.0:0");
        check("[::1]:9009", "[::1]:9009");
        check("localhost:9009", "127.0.0.1:9009");
        check(":9009", "[::]:9009");
        for bad in
            ["", ":", "9009", "localhost", "localhost:", "localhost:99999", "::1:9009", "http://x:1", "a b:1"]
        {
            assert!(listen(bad).is_err_and(|e| e.contains("127.0.0.1:9009")), "{bad}");
        }
    }
}
