//! Finds a single wrong byte by its CRC-32C.
//!
//! CRCs are linear. If one byte differs by the mask `m` and `k` bytes follow, the checksums differ by the CRC table's
//! entry for `m`, advanced by `k` zero bytes. So the difference is moved *back* byte by byte, until it is an entry of
//! the table. Several wrong bytes among `n` look like one wrong byte with a probability of `256 n / 2^32`. So a repair
//! needs another confirmation.

/// The CRC-32C of each single byte, without inversions (reflected polynomial 0x82F63B78).
const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        let mut crc = i as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
            bit += 1;
        }
        table[i] = crc;
        i += 1;
    }
    table
};

/// For each high byte, the index of the only entry in `TABLE` that has it.
const BY_HIGH_BYTE: [u8; 256] = {
    let mut index = [0; 256];
    let mut i = 0;
    while i < 256 {
        index[(TABLE[i] >> 24) as usize] = i as u8;
        i += 1;
    }
    index
};

/// Finds the one byte whose change explains the `difference` between two checksums of `len` bytes. Returns
/// its position and the mask that corrects it. If several positions are possible, it is the last. `None` if
/// no single byte explains the difference.
pub(super) fn wrong_byte(difference: u32, len: usize) -> Option<(usize, u8)> {
    if difference == 0 {
        return None;
    }
    let mut state = difference;
    for i in (0..len).rev() {
        let index = BY_HIGH_BYTE[(state >> 24) as usize];
        let entry = TABLE[index as usize];
        if state == entry {
            return Some((i, index));
        }
        // undoes the step that processed the last zero byte
        state = (state ^ entry) << 8 | u32::from(index);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_wrong_byte_is_located() {
        let bytes: Vec<u8> = (0..700).map(|i| (i * 7 % 256) as u8).collect();
        let sound = crc32c::crc32c(&bytes);
        assert_eq!(wrong_byte(0, bytes.len()), None);
        for i in 0..bytes.len() {
            for mask in [1, 0x80, 0x5a, 0xff] {
                let mut harmed = bytes.clone();
                harmed[i] ^= mask;
                assert_eq!(wrong_byte(crc32c::crc32c(&harmed) ^ sound, bytes.len()), Some((i, mask)));
            }
        }
    }
}
