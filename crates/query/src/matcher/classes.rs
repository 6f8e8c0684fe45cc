//! A limit on the time to translate a pattern's character classes, because the translation cannot be
//! interrupted. With `(?i)`, the eight bytes of `[!-\u{10ffff}]` take 1.1 million steps.

use regex_syntax::ast::{
    Ast, ClassBracketed, ClassSet, ClassSetBinaryOp, ClassSetBinaryOpKind, ClassSetItem, ClassSetRange,
    ClassUnicode, Flag, Flags, Visitor, visit,
};
use regex_syntax::hir::translate::Translator;
use regex_syntax::hir::{Class, HirKind};

/// Maximum number of steps for the classes of one pattern, about 75 ms.
const CLASS_STEPS_MAX: u64 = 2 << 20;

const CODE_POINTS: u64 = 0x11_0000;

/// Maximum number of ranges that case folding adds to a class.
const FOLDED_RANGES_MAX: u64 = 3_000;

pub(super) fn check_cost(text: &str, ast: &Ast) -> Result<(), String> {
    let steps = visit(ast, Cost::of(text)).unwrap_or(u64::MAX);
    if steps <= CLASS_STEPS_MAX {
        return Ok(());
    }
    Err(format!(
        "the character classes take {steps} steps to compile, the limit is {CLASS_STEPS_MAX}; (?i) takes one step for each \
         character of a class"
    ))
}

struct Cost<'t> {
    text: &'t str,
    /// True if `(?i)` occurs anywhere in the pattern.
    ignores_case: bool,
    folds: u64,
    merges: u64,
}

#[derive(Clone, Copy)]
struct Size {
    ranges: u64,
    code_points: u64,
    /// True if case folding adds nothing to the set.
    folded: bool,
}

impl Size {
    const EMPTY: Self = Self { ranges: 0, code_points: 0, folded: true };

    const fn range(code_points: u64) -> Self {
        Self { ranges: 1, code_points, folded: false }
    }

    fn joined(self, other: Self) -> Self {
        Self {
            ranges: self.ranges + other.ranges,
            code_points: (self.code_points + other.code_points).min(CODE_POINTS),
            folded: self.folded && other.folded,
        }
    }

    fn negated_if(self, negated: bool) -> Self {
        if negated { Self { ranges: self.ranges + 1, code_points: CODE_POINTS, ..self } } else { self }
    }
}

impl<'t> Cost<'t> {
    const fn of(text: &'t str) -> Self {
        Self { text, ignores_case: false, folds: 0, merges: 0 }
    }

    fn bracketed(&mut self, class: &ClassBracketed) -> Size {
        let inside = self.set(&class.kind);
        self.fold(inside).negated_if(class.negated)
    }

    /// Size of a set. The parser bounds the depth of the recursion.
    fn set(&mut self, set: &ClassSet) -> Size {
        match set {
            ClassSet::Item(item) => self.item(Size::EMPTY, item),
            ClassSet::BinaryOp(op) => self.operation(op),
        }
    }

    fn item(&mut self, before: Size, item: &ClassSetItem) -> Size {
        let class = match item {
            ClassSetItem::Empty(_) => return before,
            ClassSetItem::Union(union) => {
                return union.items.iter().fold(before, |sum, item| self.item(sum, item));
            }
            ClassSetItem::Literal(_) => return before.joined(Size::range(1)),
            ClassSetItem::Range(ClassSetRange { start, end, .. }) => {
                let code_points = u64::from(u32::from(end.c).saturating_sub(u32::from(start.c))) + 1;
                return before.joined(Size::range(code_points));
            }
            ClassSetItem::Ascii(class) => {
                let ascii = Size { ranges: 4, code_points: 128, folded: false };
                self.fold(ascii).negated_if(class.negated)
            }
            ClassSetItem::Unicode(class) => self.unicode(class),
            ClassSetItem::Perl(_) => Size { ranges: 1_000, code_points: CODE_POINTS, folded: true },
            ClassSetItem::Bracketed(class) => self.bracketed(class),
        };
        self.merges += before.ranges + class.ranges;
        before.joined(class)
    }

    fn operation(&mut self, op: &ClassSetBinaryOp) -> Size {
        let [left, right] = [&op.lhs, &op.rhs].map(|side| {
            let side = self.set(side);
            self.fold(side)
        });
        self.merges += left.ranges + right.ranges;
        let code_points = match op.kind {
            ClassSetBinaryOpKind::Intersection => left.code_points.min(right.code_points),
            ClassSetBinaryOpKind::Difference => left.code_points,
            ClassSetBinaryOpKind::SymmetricDifference => left.joined(right).code_points,
        };
        Size { code_points, ..left.joined(right) }
    }

    /// Size of a class such as `\pL`.
    fn unicode(&mut self, class: &ClassUnicode) -> Size {
        let plain = Ast::class_unicode(ClassUnicode { negated: false, ..class.clone() });
        let mut size = Size { ranges: 0, code_points: 0, folded: false };
        // an unknown class fails later, in the translation
        if let Ok(hir) = Translator::new().translate(self.text, &plain)
            && let HirKind::Class(Class::Unicode(class)) = hir.kind()
        {
            size.ranges = class.ranges().len() as u64;
            size.code_points = class.ranges().iter().map(|r| r.len() as u64).sum();
        }
        self.merges += size.ranges;
        self.fold(size).negated_if(class.is_negated())
    }

    fn fold(&mut self, size: Size) -> Size {
        if size.folded {
            return size;
        }
        self.folds += size.code_points;
        Size { ranges: size.ranges + size.code_points.min(FOLDED_RANGES_MAX), folded: true, ..size }
    }

    fn note(&mut self, flags: &Flags) {
        self.ignores_case |= flags.flag_state(Flag::CaseInsensitive) == Some(true);
    }
}

impl Visitor for Cost<'_> {
    type Output = u64;
    type Err = std::convert::Infallible;

    fn finish(self) -> Result<u64, Self::Err> {
        Ok(self.merges + if self.ignores_case { self.folds } else { 0 })
    }

    fn visit_pre(&mut self, ast: &Ast) -> Result<(), Self::Err> {
        match ast {
            Ast::Flags(set) => self.note(&set.flags),
            Ast::Group(group) => group.flags().into_iter().for_each(|flags| self.note(flags)),
            Ast::ClassUnicode(class) => {
                self.unicode(class);
            }
            Ast::ClassBracketed(class) => {
                self.bracketed(class);
            }
            // `[ab]|[cd]` becomes one class, so the parts are merged
            Ast::Alternation(all) => {
                let mut apart = Cost::of(self.text);
                let classes = all.asts.iter().filter_map(|ast| match ast {
                    Ast::ClassBracketed(class) => Some(apart.bracketed(class).ranges),
                    _ => None,
                });
                let (count, ranges) = classes.fold((0, 0), |(count, sum), ranges| (count + 1, sum + ranges));
                self.merges += count * ranges / 2;
            }
            _ => {}
        }
        Ok(())
    }
}
