/// The kinds of errors differ in what the caller should do about them. Only the server maps them to
/// status codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The request is invalid: do not retry.
    Invalid,
    /// The request is too large: do not retry it unchanged.
    TooLarge,
    Unauthenticated,
    Forbidden,
    Unsupported,
    /// The caller exceeds a limit that an operator has set: send less, or retry later.
    Limited,
    /// The node cannot do this now: retry later.
    Unavailable,
    Data,
    Internal,
}
