//! The syntax tree of a target, before its functions are looked up.

use std::sync::Arc;

/// A part of a target, and the place of its first byte.
#[derive(Debug)]
pub(super) struct Ast {
    pub(super) at: usize,
    pub(super) kind: Kind,
}

#[derive(Debug)]
pub(super) enum Kind {
    /// A path, a glob, a full tagged name or a variable. Backslashes that escape are removed.
    Path(String),
    Call(Call),
    /// `template(body, …)`, with the values of variables by name. Those without a name are called `1`, `2`, ….
    Template {
        body: Box<Ast>,
        variables: Vec<(String, Literal)>,
    },
    Literal(Literal),
}

#[derive(Debug)]
pub(super) struct Call {
    pub(super) name: String,
    pub(super) positional: Vec<Ast>,
    pub(super) named: Vec<(String, Ast)>,
    /// The call as it is written.
    pub(super) text: String,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Literal {
    Integer(i64),
    Float(f64),
    /// A text between quotes, as it is written: escapes are not replaced. It is shared by all arguments that have it through
    /// a variable.
    Text(Arc<str>),
    Boolean(bool),
    None,
}
