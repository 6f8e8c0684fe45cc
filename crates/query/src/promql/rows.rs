//! Rows of equal width that never move.

/// A block has room for about this many values, or for one row if that is longer.
const BLOCK_VALUES: usize = 256;

/// Rows of `width` values each, in blocks. A single large vector would take three times the memory while it
/// grows.
#[derive(Debug)]
pub(super) struct Rows<T> {
    width: usize,
    rows_per_block: usize,
    blocks: Vec<Vec<T>>,
    len: usize,
}

impl<T: Copy> Rows<T> {
    pub(super) const fn new(width: usize) -> Self {
        let rows_per_block = if width == 0 || width >= BLOCK_VALUES { 1 } else { BLOCK_VALUES / width };
        Self { width, rows_per_block, blocks: Vec::new(), len: 0 }
    }

    pub(super) fn push(&mut self, value: T) {
        let block = self.len / self.rows_per_block;
        if block == self.blocks.len() {
            self.blocks.push(Vec::with_capacity(self.rows_per_block * self.width));
        }
        let values = &mut self.blocks[block];
        values.resize(values.len() + self.width, value);
        self.len += 1;
    }

    pub(super) fn row(&self, i: usize) -> &[T] {
        let at = i % self.rows_per_block * self.width;
        &self.blocks[i / self.rows_per_block][at..at + self.width]
    }

    pub(super) fn row_mut(&mut self, i: usize) -> &mut [T] {
        let at = i % self.rows_per_block * self.width;
        &mut self.blocks[i / self.rows_per_block][at..at + self.width]
    }

    /// Frees blocks with only rows before `i`. Those rows must not be read again.
    pub(super) fn free_before(&mut self, i: usize) {
        if i.is_multiple_of(self.rows_per_block) && i > 0 {
            self.blocks[i / self.rows_per_block - 1] = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_keep_their_values() {
        for width in [0, 1, 3, 255, 256, 1000] {
            let mut rows = Rows::new(width);
            for i in 0..1000 {
                rows.push(0);
                rows.row_mut(i).fill(i);
            }
            assert!((0..1000).all(|i| rows.row(i).len() == width && rows.row(i).iter().all(|v| *v == i)));
        }
    }

    #[test]
    fn nothing_is_held_beyond_a_block() {
        for width in [1, 7, 300] {
            let mut rows = Rows::new(width);
            (0..10_000).for_each(|_| rows.push(0.0));
            let held: usize = rows.blocks.iter().map(Vec::capacity).sum();
            assert!(held <= 10_000 * width + BLOCK_VALUES, "{held}");
            (0..10_000).for_each(|i| rows.free_before(i));
            let held: usize = rows.blocks.iter().map(Vec::capacity).sum();
            assert!(held <= BLOCK_VALUES.max(width), "{held}");
        }
    }
}
