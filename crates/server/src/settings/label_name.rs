#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelName(pub Box<str>);
