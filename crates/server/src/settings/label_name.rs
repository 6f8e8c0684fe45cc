//! Names of labels in settings.

/// Name of a label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelName(pub Box<str>);
