use ipnet::IpNet;
use std::net::IpAddr;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Networks(pub(crate) Vec<IpNet>);

impl Networks {
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }

    pub(crate) fn parse_one(text: &str) -> Option<IpNet> {
        text.parse().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_in_networks() {
        let networks =
            Networks(["127.0.0.0/8", "10.1.2.3", "fd00::/8"].map(|t| Networks::parse_one(t).unwrap()).into());
        for (address, expected) in [
            ("127.0.0.1", true),
            ("::ffff:127.9.9.9", true),
            ("10.1.2.3", true),
            ("10.1.2.4", false),
            ("fd12::1", true),
            ("::1", false),
        ] {
            assert_eq!(networks.contains(address.parse().unwrap()), expected, "{address}");
        }
        assert!(
            ["", "10.0.0.0/33", "localhost", "10.0.0.0/8 "]
                .iter()
                .all(|text| Networks::parse_one(text).is_none())
        );
    }
}
