//! Label pairs and label names of a tenant, by number.

/// ID of a label pair of one tenant, reused once no label set has the pair.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PairId(pub(crate) u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PairCount<'a> {
    pub name: &'a str,
    pub value: &'a str,
    pub series: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NameCount<'a> {
    pub name: &'a str,
    pub values: usize,
    pub bytes: usize,
}
