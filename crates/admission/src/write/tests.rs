use super::*;
use crate::tenant_slots::{Limits, Presence};
use crate::{Head, ProcessMemory, TableBytes};
use model::{ErrorKind, Rights};
use std::time::Duration;
use stdx::rng::Rng;

#[derive(Debug, Clone)]
struct Node {
    stopping: bool,
    replaying: bool,
    closed: bool,
    blocked_from: Option<u64>,
    exceeded_share: Option<u64>,
    table_bytes: TableBytes,
    head: Head,
    process: ProcessMemory,
    presence: Presence,
    is_known: bool,
    is_any_above_share: bool,
    token: Result<(), Duration>,
    limits: Limits,
}

impl tenant_slots::Facts for Node {
    fn presence(&self, _: &TenantId) -> Presence {
        self.presence
    }
    fn is_known(&self, _: &TenantId) -> bool {
        self.is_known
    }
    fn head(&self) -> Head {
        self.head
    }
    fn is_any_above_share(&self) -> bool {
        self.is_any_above_share
    }
    fn process(&self) -> ProcessMemory {
        self.process
    }
    fn take_token(&self, _: &TenantId) -> Result<(), Duration> {
        self.token
    }
    fn limits(&self) -> Limits {
        self.limits
    }
}

impl Facts for Node {
    fn is_stopping(&self) -> bool {
        self.stopping
    }
    fn replaying(&self) -> Option<String> {
        self.replaying.then(|| "; partition 3: waits for memory".into())
    }
    fn closed(&self, _: &TenantId) -> Option<String> {
        self.closed.then(|| "the log is damaged".into())
    }
    fn blocked_from(&self, _: &TenantId) -> Option<u64> {
        self.blocked_from
    }
    fn exceeded_share(&self, _: &TenantId) -> Option<u64> {
        self.exceeded_share
    }
    fn table_bytes(&self, _: &TenantId) -> TableBytes {
        self.table_bytes
    }
}

const MIB: u64 = 1 << 20;

fn principal(write: bool) -> Principal {
    Principal { tenant: TenantId::anonymous(), rights: Rights { read: true, write } }
}

#[test]
fn checks_come_in_their_order() {
    let mut node = Node {
        stopping: true,
        replaying: true,
        closed: true,
        blocked_from: Some(60),
        exceeded_share: Some(7 * MIB),
        table_bytes: TableBytes { used_bytes: 9 * MIB, limit_bytes: Some(9 * MIB), is_configured: true },
        head: Head { used_bytes: 100 * MIB, limit_bytes: 100 * MIB },
        process: ProcessMemory { held_bytes: 100 * MIB, limit_bytes: 100 * MIB },
        presence: Presence { is_in_memory: false, is_any_full: true },
        is_known: false,
        is_any_above_share: false,
        token: Err(Duration::from_secs(1)),
        limits: Limits { tenants: 3, burst: 2, per_minute: 1 },
    };
    // the first check that fails decides, and each remedy makes one more check pass
    type Remedy = fn(&mut Node);
    let order: [(&str, Remedy); 11] = [
        ("stopping", |node| node.stopping = false),
        ("replaying", |node| node.replaying = false),
        ("table_unreadable", |node| node.closed = false),
        ("head_full", |node| node.head.used_bytes = 95 * MIB),
        ("table_unwritable", |node| node.blocked_from = None),
        ("tenant_share", |node| node.exceeded_share = None),
        ("disk_bytes", |node| node.table_bytes.used_bytes -= 1),
        ("tenants", |node| node.presence.is_any_full = false),
        ("process_memory", |node| node.process.held_bytes = 0),
        ("head_full", |node| node.head.used_bytes = 0),
        ("new_tenants", |node| node.token = Ok(())),
    ];
    assert_eq!(check(&principal(false), &node).unwrap_err().reason(), "rights");
    for (reason, remedy) in order {
        assert_eq!(check(&principal(true), &node).unwrap_err().reason(), reason);
        remedy(&mut node);
    }
    assert_eq!(check(&principal(true), &node), Ok(()));
    assert_eq!(check(&principal(false), &node).unwrap_err().reason(), "rights");
}

/// Records have an account of their own. A tenant that has some is not new, although it is in no head.
#[test]
fn a_full_head_does_not_refuse_records() {
    let node = Node {
        stopping: false,
        replaying: false,
        closed: false,
        blocked_from: Some(60),
        exceeded_share: Some(7 * MIB),
        table_bytes: TableBytes { used_bytes: MIB, limit_bytes: Some(9 * MIB), is_configured: true },
        head: Head { used_bytes: 100 * MIB, limit_bytes: 100 * MIB },
        process: ProcessMemory { held_bytes: 0, limit_bytes: 100 * MIB },
        presence: Presence { is_in_memory: false, is_any_full: false },
        is_known: false,
        is_any_above_share: false,
        token: Ok(()),
        limits: Limits { tenants: 3, burst: 2, per_minute: 1 },
    };
    let check = |node: &Node, [without, with]: [Option<&str>; 2]| {
        for (has_streams, expected) in [(false, without), (true, with)] {
            let refused = check_records(&principal(true), has_streams, node).err();
            assert_eq!(refused.as_ref().map(WriteRefusal::reason), expected, "{has_streams} {node:?}");
        }
        assert_eq!(check_records(&principal(false), true, node).unwrap_err().reason(), "rights");
    };
    check(&node, [None; 2]);
    let token = Err(Duration::from_secs(1));
    check(&Node { token, ..node.clone() }, [Some("new_tenants"), None]);
    check(&Node { is_known: true, token, ..node.clone() }, [None; 2]);
    let presence = Presence { is_in_memory: false, is_any_full: true };
    check(&Node { presence, ..node.clone() }, [Some("tenants"), None]);
    let process = ProcessMemory { held_bytes: 96 * MIB, ..node.process };
    check(&Node { process, ..node.clone() }, [Some("process_memory"), None]);
    let table_bytes = TableBytes { used_bytes: 9 * MIB, ..node.table_bytes };
    check(&Node { table_bytes, ..node.clone() }, [Some("disk_bytes"); 2]);
    check(&Node { closed: true, ..node.clone() }, [Some("table_unreadable"); 2]);
    check(&Node { replaying: true, ..node.clone() }, [Some("replaying"); 2]);
    check(&Node { stopping: true, ..node }, [Some("stopping"); 2]);
}

/// The message of a refusal has the numbers and the setting that caused it. All refusals have a
/// `Retry-After`, except those for missing rights.
#[test]
fn refusals_name_amount_and_setting() {
    let mut rng = Rng::announced();
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..100_000 {
        let node = random(&mut rng);
        let Err(refused) = check(&principal(!rng.chance(0.05)), &node) else { continue };
        let (reason, text) = (refused.reason(), refused.to_string());
        assert!(
            refused.kind() == ErrorKind::Forbidden
                || refused.retry_after().is_some_and(|wait| wait.by_default() >= Duration::from_secs(1)),
            "{text}"
        );
        assert_eq!(refused.kind() == ErrorKind::Forbidden, refused.retry_after().is_none(), "{text}");
        let setting = match reason {
            "head_full" | "process_memory" | "tenant_share" => Some("--memory"),
            "tenants" => Some("tenants"),
            "disk_bytes" => Some("disk_bytes"),
            "new_tenants" => Some("tenants_per_minute"),
            _ => None,
        };
        if let Some(setting) = setting {
            assert!(
                text.contains(setting) && text.contains(|c: char| c.is_ascii_digit()),
                "{reason}: {text}"
            );
        }
        seen.insert(reason);
    }
    assert_eq!(seen.len(), 11, "{seen:?}");
}

fn random(rng: &mut Rng) -> Node {
    let bytes = |rng: &mut Rng| match rng.below(4) {
        0 => 0,
        1 => rng.next_u64(),
        _ => rng.below(100) * MIB,
    };
    let limit = |rng: &mut Rng| if rng.chance(0.1) { rng.next_u64() } else { 100 * MIB };
    Node {
        stopping: rng.chance(0.05),
        replaying: rng.chance(0.05),
        closed: rng.chance(0.05),
        exceeded_share: rng.chance(0.3).then(|| bytes(rng)),
        table_bytes: TableBytes {
            used_bytes: bytes(rng),
            limit_bytes: rng.chance(0.3).then(|| limit(rng)),
            is_configured: rng.chance(0.5),
        },
        blocked_from: rng.chance(0.2).then(|| crate::watermarks::refuse_blocked_from(rng.chance(0.5))),
        head: Head { used_bytes: bytes(rng), limit_bytes: limit(rng) },
        process: ProcessMemory { held_bytes: bytes(rng), limit_bytes: limit(rng) },
        presence: Presence { is_in_memory: rng.chance(0.5), is_any_full: rng.chance(0.2) },
        is_known: rng.chance(0.3),
        is_any_above_share: rng.chance(0.3),
        token: if rng.chance(0.5) { Ok(()) } else { Err(Duration::from_millis(rng.below(120_000))) },
        limits: Limits {
            tenants: rng.below(9) as usize,
            burst: rng.below(9) as usize,
            per_minute: rng.below(9) as usize,
        },
    }
}
