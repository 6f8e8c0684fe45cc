//! Which series carry a label pair: ascending references.

use model::SeriesRef;
use roaring::RoaringBitmap;

/// Up to this many references are kept as a plain list: most pairs of churning labels have one or a few.
const LIST_MAX: usize = 32;
/// What a new bitmap costs beyond the list that it replaces.
const BITMAP_BYTES: usize = 96;

#[derive(Debug)]
pub(crate) enum Postings {
    List(Vec<u32>),
    Bitmap(Box<RoaringBitmap>),
}

impl Default for Postings {
    fn default() -> Self {
        Self::List(Vec::new())
    }
}

impl Postings {
    /// Adds a reference larger than all before it; says by how many bytes memory grew (for a bitmap, as
    /// near as can be told from outside: two bytes a reference and the slack of its lists).
    pub(crate) fn push(&mut self, series: SeriesRef) -> usize {
        match self {
            Self::List(list) if list.len() < LIST_MAX => {
                debug_assert!(list.last().is_none_or(|last| *last < series.0));
                let before = list.capacity();
                if list.len() == before {
                    list.reserve_exact(list.len().max(1));
                }
                list.push(series.0);
                (list.capacity() - before) * size_of::<u32>()
            }
            Self::List(list) => {
                let mut bitmap: RoaringBitmap = list.iter().copied().collect();
                bitmap.insert(series.0);
                *self = Self::Bitmap(Box::new(bitmap));
                BITMAP_BYTES
            }
            Self::Bitmap(bitmap) => {
                let ascending = bitmap.try_push(series.0);
                assert!(ascending.is_ok(), "BUG: series are created in ascending order");
                3
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::List(list) => list.len(),
            Self::Bitmap(bitmap) => bitmap.len() as usize,
        }
    }

    pub(crate) fn add_to(&self, out: &mut RoaringBitmap) {
        match self {
            Self::List(list) => out.extend(list.iter().copied()),
            Self::Bitmap(bitmap) => *out |= &**bitmap,
        }
    }

    pub(crate) fn to_bitmap(&self) -> RoaringBitmap {
        match self {
            Self::List(list) => list.iter().copied().collect(),
            Self::Bitmap(bitmap) => (**bitmap).clone(),
        }
    }

    pub(crate) fn intersects(&self, with: &RoaringBitmap) -> bool {
        match self {
            Self::List(list) => list.iter().any(|r| with.contains(*r)),
            Self::Bitmap(bitmap) => !bitmap.is_disjoint(with),
        }
    }
}
