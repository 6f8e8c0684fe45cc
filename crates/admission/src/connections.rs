use model::TenantId;
use std::collections::HashMap;

/// Counts the connections of each tenant and compares them with the tenant's fair share. Connections whose
/// tenant is not known share one group of weight 1.
#[derive(Debug)]
pub struct Shares<'a> {
    most: usize,
    groups: HashMap<Option<&'a TenantId>, Group>,
    /// Sum of the weights of all groups. It is at least 1, because the group of unknown tenants always
    /// counts.
    weights: u64,
}

#[derive(Debug)]
struct Group {
    connections: usize,
    weight: u64,
}

impl<'a> Shares<'a> {
    pub fn new(most: usize) -> Self {
        Self { most, groups: HashMap::from([(None, Group { connections: 0, weight: 1 })]), weights: 1 }
    }

    /// Counts a connection of a tenant whose share has this weight. `None` stands for a tenant that is
    /// unknown or new.
    pub fn add(&mut self, tenant: Option<(&'a TenantId, u64)>) {
        let (tenant, weight) = tenant.map_or((None, 1), |(tenant, weight)| (Some(tenant), weight.max(1)));
        let group = self.groups.entry(tenant).or_insert_with(|| {
            self.weights += weight;
            Group { connections: 0, weight }
        });
        group.connections += 1;
    }

    /// True if the tenant has more connections than its share. Each share is at least one connection.
    pub fn are_exceeded_by(&self, tenant: Option<&TenantId>) -> bool {
        let Some(Group { connections, weight }) = self.groups.get(&tenant) else { return false };
        let share = self.most as u128 * u128::from(*weight) / u128::from(self.weights);
        *connections as u128 > share.max(1)
    }

    pub fn has_several(&self, tenant: Option<&TenantId>) -> bool {
        self.groups.get(&tenant).is_some_and(|group| group.connections > 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exceeding(most: usize, connections: &[(&str, usize, u64)]) -> Vec<String> {
        let tenants: Vec<_> = connections
            .iter()
            .map(|(name, count, weight)| (TenantId::parse(name).ok(), *count, *weight))
            .collect();
        let mut shares = Shares::new(most);
        for (tenant, count, weight) in &tenants {
            for _ in 0..*count {
                shares.add(tenant.as_ref().map(|tenant| (tenant, *weight)));
            }
        }
        let above = tenants.iter().filter(|(tenant, ..)| shares.are_exceeded_by(tenant.as_ref()));
        above.map(|(tenant, ..)| tenant.as_ref().map_or_else(String::new, ToString::to_string)).collect()
    }

    #[test]
    fn a_tenant_with_many_connections_exceeds_its_share() {
        assert_eq!(exceeding(100, &[("a", 3, 1), ("b", 97, 1)]), ["b"]);
        assert_eq!(exceeding(100, &[("a", 3, 1), ("", 97, 1)]), [""], "connections without a known tenant");
        assert_eq!(exceeding(100, &[("a", 33, 1), ("b", 33, 1), ("", 33, 1)]), [""; 0]);
    }

    #[test]
    fn shares_follow_weights() {
        assert_eq!(exceeding(100, &[("a", 25, 1), ("b", 50, 2), ("", 25, 1)]), [""; 0]);
        assert_eq!(exceeding(100, &[("a", 26, 1), ("b", 51, 2), ("", 23, 1)]), ["a", "b"]);
    }

    #[test]
    fn every_tenant_may_have_one_connection() {
        assert_eq!(exceeding(2, &[("a", 1, 1), ("b", 1, 1), ("c", 1, 1), ("", 1, 1)]), [""; 0]);
        assert_eq!(exceeding(2, &[("a", 1, 1), ("b", 2, 1)]), ["b"]);
    }
}
