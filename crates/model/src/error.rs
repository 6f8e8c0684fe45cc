//! Kinds of errors by what the caller should do.

/// Kind of error, by what the caller should do. Every error of every crate has one of these kinds. Only the server maps
/// kinds to the status codes of a protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The request is invalid and will remain so: do not retry.
    Invalid,
    /// The request is larger than allowed: do not retry it unchanged.
    TooLarge,
    /// The caller presents no known credentials.
    Unauthenticated,
    /// The principal lacks the right to the operation.
    Forbidden,
    /// The encoding or type of the request is not supported here.
    Unsupported,
    /// The request exceeds a limit set as a policy for the caller, independent of the node's capacity: retry later, and
    /// send less.
    Limited,
    /// The node cannot process the request now: retry later.
    Unavailable,
    /// Stored data is damaged.
    Data,
    /// A bug.
    Internal,
}
