/// Kind of an error, named by what the caller should do. Only the server maps kinds to status codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The request is invalid: do not retry.
    Invalid,
    /// The request is too large: do not retry it unchanged.
    TooLarge,
    /// The caller presents no known credentials.
    Unauthenticated,
    Forbidden,
    /// The encoding or type of the request is not supported.
    Unsupported,
    /// The caller exceeds a limit that is a policy: send less, retry later.
    Limited,
    /// The node cannot do this now: retry later.
    Unavailable,
    Data,
    Internal,
}
