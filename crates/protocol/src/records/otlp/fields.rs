//! The fields of the messages, from `opentelemetry/proto` 1.x.
//!
//! ```text
//!   ExportLogsServiceRequest, ExportTraceServiceRequest   1 (ResourceLogs | ResourceSpans)*
//!   ResourceLogs, ResourceSpans                           1 Resource   2 (ScopeLogs | ScopeSpans)*   3 schema_url
//!   ScopeLogs, ScopeSpans                                 1 InstrumentationScope   2 (LogRecord | Span)*   3 schema_url
//! ```

use crate::wire::{Tag, WireType, tag};

/// The outermost message.
pub(super) const GROUP: Tag = tag(1, WireType::Len);

/// The elements of a list or of a map.
pub(super) const VALUES: Tag = tag(1, WireType::Len);

/// Records of one resource, or of one scope.
pub(super) mod group {
    use super::*;

    /// The resource, or the scope.
    pub(in super::super) const ORIGIN: Tag = tag(1, WireType::Len);
    /// The scopes of the resource, or the records of the scope.
    pub(in super::super) const MEMBER: Tag = tag(2, WireType::Len);
    pub(in super::super) const SCHEMA_URL: Tag = tag(3, WireType::Len);
    pub(in super::super) const KNOWN: &[u32] = &[1, 2, 3];
}

pub(super) mod resource {
    use super::*;

    pub(in super::super) const ATTRIBUTE: Tag = tag(1, WireType::Len);
    pub(in super::super) const KNOWN: &[u32] = &[1];
}

pub(super) mod scope {
    use super::*;

    pub(in super::super) const NAME: Tag = tag(1, WireType::Len);
    pub(in super::super) const VERSION: Tag = tag(2, WireType::Len);
    pub(in super::super) const ATTRIBUTE: Tag = tag(3, WireType::Len);
    pub(in super::super) const KNOWN: &[u32] = &[1, 2, 3];
}

pub(super) mod log {
    use super::*;

    pub(in super::super) const TIME: Tag = tag(1, WireType::Fixed64);
    pub(in super::super) const SEVERITY_NUMBER: Tag = tag(2, WireType::Varint);
    pub(in super::super) const SEVERITY_TEXT: Tag = tag(3, WireType::Len);
    pub(in super::super) const BODY: Tag = tag(5, WireType::Len);
    pub(in super::super) const ATTRIBUTE: Tag = tag(6, WireType::Len);
    pub(in super::super) const DROPPED_ATTRIBUTES: Tag = tag(7, WireType::Varint);
    pub(in super::super) const FLAGS: Tag = tag(8, WireType::Fixed32);
    pub(in super::super) const TRACE_ID: Tag = tag(9, WireType::Len);
    pub(in super::super) const SPAN_ID: Tag = tag(10, WireType::Len);
    pub(in super::super) const OBSERVED_TIME: Tag = tag(11, WireType::Fixed64);
    pub(in super::super) const EVENT_NAME: Tag = tag(12, WireType::Len);
    pub(in super::super) const KNOWN: &[u32] = &[1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12];
}

pub(super) mod span {
    use super::*;

    pub(in super::super) const TRACE_ID: Tag = tag(1, WireType::Len);
    pub(in super::super) const SPAN_ID: Tag = tag(2, WireType::Len);
    pub(in super::super) const TRACE_STATE: Tag = tag(3, WireType::Len);
    pub(in super::super) const PARENT_SPAN_ID: Tag = tag(4, WireType::Len);
    pub(in super::super) const NAME: Tag = tag(5, WireType::Len);
    pub(in super::super) const KIND: Tag = tag(6, WireType::Varint);
    pub(in super::super) const START: Tag = tag(7, WireType::Fixed64);
    pub(in super::super) const END: Tag = tag(8, WireType::Fixed64);
    pub(in super::super) const ATTRIBUTE: Tag = tag(9, WireType::Len);
    pub(in super::super) const DROPPED_ATTRIBUTES: Tag = tag(10, WireType::Varint);
    pub(in super::super) const EVENT: Tag = tag(11, WireType::Len);
    pub(in super::super) const DROPPED_EVENTS: Tag = tag(12, WireType::Varint);
    pub(in super::super) const LINK: Tag = tag(13, WireType::Len);
    pub(in super::super) const DROPPED_LINKS: Tag = tag(14, WireType::Varint);
    pub(in super::super) const STATUS: Tag = tag(15, WireType::Len);
    pub(in super::super) const FLAGS: Tag = tag(16, WireType::Fixed32);
    pub(in super::super) const KNOWN: &[u32] = &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];
}

pub(super) mod event {
    use super::*;

    pub(in super::super) const TIME: Tag = tag(1, WireType::Fixed64);
    pub(in super::super) const NAME: Tag = tag(2, WireType::Len);
    pub(in super::super) const ATTRIBUTE: Tag = tag(3, WireType::Len);
    pub(in super::super) const DROPPED_ATTRIBUTES: Tag = tag(4, WireType::Varint);
    pub(in super::super) const KNOWN: &[u32] = &[1, 2, 3, 4];
}

pub(super) mod link {
    use super::*;

    pub(in super::super) const TRACE_ID: Tag = tag(1, WireType::Len);
    pub(in super::super) const SPAN_ID: Tag = tag(2, WireType::Len);
    pub(in super::super) const TRACE_STATE: Tag = tag(3, WireType::Len);
    pub(in super::super) const ATTRIBUTE: Tag = tag(4, WireType::Len);
    pub(in super::super) const DROPPED_ATTRIBUTES: Tag = tag(5, WireType::Varint);
    pub(in super::super) const FLAGS: Tag = tag(6, WireType::Fixed32);
    pub(in super::super) const KNOWN: &[u32] = &[1, 2, 3, 4, 5, 6];
}

pub(super) mod status {
    use super::*;

    pub(in super::super) const MESSAGE: Tag = tag(2, WireType::Len);
    pub(in super::super) const CODE: Tag = tag(3, WireType::Varint);
    pub(in super::super) const KNOWN: &[u32] = &[2, 3];
}
