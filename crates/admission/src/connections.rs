use model::TenantId;
use std::collections::HashMap;

/// Counts the connections of each tenant and compares them with the tenant's fair share. Connections whose
/// tenant is not known share one group of weight 1.
#[derive(Debug)]
pub struct Shares {
    most: usize,
    groups: HashMap<Option<TenantId>, Group>,
    /// Sum of the weights of all groups. It is at least 1, because the group of unknown tenants always
    /// counts.
    weights: u64,
}

#[derive(Debug, Default)]
struct Group {
    connections: usize,
    weight: u64,
}

impl Shares {
    pub fn new(most: usize) -> Self {
        Self { most, groups: HashMap::from([(None, Group { connections: 0, weight: 1 })]), weights: 1 }
    }

    /// Counts a connection of a tenant whose share has this weight. `None` stands for a tenant that is
    /// unknown or new.
    pub fn add(&mut self, tenant: Option<(&TenantId, u64)>) {
        let (tenant, weight) = tenant.map_or((None, 1), |(tenant, weight)| (Some(tenant), weight.max(1)));
        let group = self.groups.entry(tenant.cloned()).or_default();
        group.connections += 1;
        self.weights = self.weights - group.weight + weight;
        group.weight = weight; // it may have been changed
    }

    /// Must be called when a counted connection ends or gets another tenant.
    pub fn remove(&mut self, tenant: Option<&TenantId>) {
        let tenant = tenant.cloned();
        let Some(group) = self.groups.get_mut(&tenant) else { return };
        group.connections = group.connections.saturating_sub(1);
        if group.connections == 0 && tenant.is_some() {
            self.weights -= group.weight;
            self.groups.remove(&tenant);
        }
    }

    /// True if the tenant has more connections than its share. Each share is at least one connection.
    pub fn are_exceeded_by(&self, tenant: &Option<TenantId>) -> bool {
        let Some(Group { connections, weight }) = self.groups.get(tenant) else { return false };
        let share = self.most as u128 * u128::from(*weight) / u128::from(self.weights);
        *connections as u128 > share.max(1)
    }

    pub fn has_several(&self, tenant: &Option<TenantId>) -> bool {
        self.groups.get(tenant).is_some_and(|group| group.connections > 1)
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
        let above = tenants.iter().filter(|(tenant, ..)| shares.are_exceeded_by(tenant));
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

    #[test]
    fn connections_that_end_no_longer_count() {
        let (a, b) = (TenantId::parse("a").unwrap(), TenantId::parse("b").unwrap());
        let mut shares = Shares::new(10);
        (0..6).for_each(|_| shares.add(Some((&a, 1))));
        (0..4).for_each(|_| shares.add(Some((&b, 1))));
        assert!(shares.are_exceeded_by(&Some(a.clone())) && shares.are_exceeded_by(&Some(b.clone())));
        (0..4).for_each(|_| shares.remove(Some(&b)));
        assert!(shares.are_exceeded_by(&Some(a.clone())), "6 of 10, of which the unknown may have 5");
        shares.remove(Some(&a));
        assert!(!shares.are_exceeded_by(&Some(a.clone())));
        shares.add(Some((&a, 4)));
        assert!(!shares.are_exceeded_by(&Some(a.clone())), "the weight has changed");
        (0..6).for_each(|_| shares.remove(Some(&a)));
        assert_eq!((shares.groups.len(), shares.weights), (1, 1));
    }
}
