//! The opcodes of pickle protocols 0 to 5.

/// Opcodes that a list of points may have.
pub(super) mod allowed {
    pub(in super::super) const MARK: u8 = b'(';
    pub(in super::super) const STOP: u8 = b'.';
    /// `None`, which stands for a missing value. Only the points that have it are refused, not the whole list.
    pub(in super::super) const NONE: u8 = b'N';
    pub(in super::super) const INT: u8 = b'I';
    pub(in super::super) const LONG: u8 = b'L';
    pub(in super::super) const FLOAT: u8 = b'F';
    pub(in super::super) const STRING: u8 = b'S';
    pub(in super::super) const UNICODE: u8 = b'V';
    pub(in super::super) const APPEND: u8 = b'a';
    pub(in super::super) const APPENDS: u8 = b'e';
    pub(in super::super) const LIST: u8 = b'l';
    pub(in super::super) const TUPLE: u8 = b't';
    pub(in super::super) const GET: u8 = b'g';
    pub(in super::super) const PUT: u8 = b'p';
    pub(in super::super) const EMPTY_LIST: u8 = b']';
    pub(in super::super) const EMPTY_TUPLE: u8 = b')';
    pub(in super::super) const BININT: u8 = b'J';
    pub(in super::super) const BININT1: u8 = b'K';
    pub(in super::super) const BININT2: u8 = b'M';
    pub(in super::super) const BINFLOAT: u8 = b'G';
    pub(in super::super) const BINSTRING: u8 = b'T';
    pub(in super::super) const SHORT_BINSTRING: u8 = b'U';
    pub(in super::super) const BINUNICODE: u8 = b'X';
    pub(in super::super) const BINBYTES: u8 = b'B';
    pub(in super::super) const SHORT_BINBYTES: u8 = b'C';
    pub(in super::super) const BINGET: u8 = b'h';
    pub(in super::super) const LONG_BINGET: u8 = b'j';
    pub(in super::super) const BINPUT: u8 = b'q';
    pub(in super::super) const LONG_BINPUT: u8 = b'r';
    pub(in super::super) const PROTO: u8 = 0x80;
    pub(in super::super) const TUPLE1: u8 = 0x85;
    pub(in super::super) const TUPLE2: u8 = 0x86;
    pub(in super::super) const TUPLE3: u8 = 0x87;
    pub(in super::super) const NEWTRUE: u8 = 0x88;
    pub(in super::super) const NEWFALSE: u8 = 0x89;
    pub(in super::super) const LONG1: u8 = 0x8a;
    pub(in super::super) const LONG4: u8 = 0x8b;
    pub(in super::super) const SHORT_BINUNICODE: u8 = 0x8c;
    pub(in super::super) const BINUNICODE8: u8 = 0x8d;
    pub(in super::super) const BINBYTES8: u8 = 0x8e;
    pub(in super::super) const MEMOIZE: u8 = 0x94;
    pub(in super::super) const FRAME: u8 = 0x95;
}

/// Returns the name of an opcode that is not allowed. `None` if there is no such opcode.
pub(super) const fn refused(opcode: u8) -> Option<&'static str> {
    Some(match opcode {
        b'0' => "POP",
        b'1' => "POP_MARK",
        b'2' => "DUP",
        b'P' => "PERSID",
        b'Q' => "BINPERSID",
        b'R' => "REDUCE",
        b'b' => "BUILD",
        b'c' => "GLOBAL",
        b'd' => "DICT",
        b'i' => "INST",
        b'o' => "OBJ",
        b's' => "SETITEM",
        b'u' => "SETITEMS",
        b'}' => "EMPTY_DICT",
        0x81 => "NEWOBJ",
        0x82 => "EXT1",
        0x83 => "EXT2",
        0x84 => "EXT4",
        0x8f => "EMPTY_SET",
        0x90 => "ADDITEMS",
        0x91 => "FROZENSET",
        0x92 => "NEWOBJ_EX",
        0x93 => "STACK_GLOBAL",
        0x96 => "BYTEARRAY8",
        0x97 => "NEXT_BUFFER",
        0x98 => "READONLY_BUFFER",
        _ => return None,
    })
}
