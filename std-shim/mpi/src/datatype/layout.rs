//! The layout of a datatype: where its basic values lie, in the order in which they are sent. Nested repetitions stay
//! nested, so that a large vector needs no more memory than a small one.

use alloc::sync::Arc;

use super::basic::Basic;

/// A layout, from its offset 0 on.
#[derive(Clone, Debug)]
pub enum Layout {
    /// `count` values, one after the other.
    Values {
        /// The type of the values.
        basic: &'static Basic,
        /// Number of values.
        count: usize,
    },
    /// `count` times the same, `stride` bytes apart.
    Repeat {
        /// Number of repetitions.
        count: usize,
        /// Bytes from one to the next.
        stride: isize,
        /// What is repeated.
        inner: Arc<Self>,
    },
    /// Layouts at offsets.
    List(Arc<[(isize, Self)]>),
}

/// Equal runs of values.
#[derive(Clone, Copy, Debug)]
pub struct Runs {
    /// The offset of the first run.
    pub at: isize,
    /// The type of the values.
    pub basic: &'static Basic,
    /// Values of a run.
    pub count: usize,
    /// Number of runs.
    pub runs: usize,
    /// Bytes from one run to the next.
    pub stride: isize,
}

impl Runs {
    /// Bytes of a run.
    pub const fn bytes(&self) -> usize {
        self.count * self.basic.size as usize
    }
}

impl Layout {
    /// Nothing.
    pub fn empty() -> Self {
        Self::List(Arc::from([]))
    }

    /// This layout `count` times, `stride` bytes apart.
    pub fn repeat(&self, count: usize, stride: isize) -> Self {
        match self {
            _ if count == 0 => Self::empty(),
            _ if count == 1 => self.clone(),
            Self::Values { basic, count: inner } if basic.size as isize * *inner as isize == stride => {
                Self::Values { basic, count: inner * count }
            }
            Self::Repeat { count: inner, stride: step, inner: what } if *inner as isize * step == stride => {
                Self::Repeat { count: inner * count, stride: *step, inner: Arc::clone(what) }
            }
            _ => Self::Repeat { count, stride, inner: Arc::new(self.clone()) },
        }
    }

    /// Layouts at offsets, joined where they adjoin.
    pub fn list(blocks: impl IntoIterator<Item = (isize, Self)>) -> Self {
        let mut list: Vec<(isize, Self)> = Vec::new();
        for (at, block) in blocks {
            if let Self::List(inner) = &block
                && inner.is_empty()
            {
                continue;
            }
            if let (Some((before, Self::Values { basic, count })), Self::Values { basic: next, count: more }) =
                (list.last_mut(), &block)
                && basic.handle == next.handle
                && *before + (basic.size as usize * *count) as isize == at
            {
                *count += more;
                continue;
            }
            list.push((at, block));
        }
        match list.first() {
            Some((0, _)) if list.len() == 1 => list.swap_remove(0).1,
            _ => Self::List(list.into()),
        }
    }

    /// Calls `visit` for all runs, in order, until it returns false; returns whether it never did.
    pub fn visit(&self, at: isize, visit: &mut dyn FnMut(Runs) -> bool) -> bool {
        match self {
            Self::Values { basic, count } => visit(Runs { at, basic, count: *count, runs: 1, stride: 0 }),
            Self::Repeat { count, stride, inner } => match &**inner {
                Self::Values { basic, count: values } => {
                    visit(Runs { at, basic, count: *values, runs: *count, stride: *stride })
                }
                inner => (0..*count as isize).all(|number| inner.visit(at + number * stride, visit)),
            },
            Self::List(list) => list.iter().all(|(offset, inner)| inner.visit(at + offset, visit)),
        }
    }

    /// Whether all values follow each other from offset 0 on.
    pub fn is_dense(&self) -> bool {
        let mut next = 0;
        self.visit(0, &mut |runs| {
            let bytes = (runs.count * runs.basic.size as usize) as isize;
            let follows = runs.at == next && (runs.runs == 1 || runs.stride == bytes);
            next += bytes * runs.runs as isize;
            follows
        })
    }

    /// The largest alignment of a value.
    pub fn alignment(&self) -> usize {
        match self {
            Self::Values { basic, .. } => basic.alignment(),
            Self::Repeat { inner, .. } => inner.alignment(),
            Self::List(list) => list.iter().map(|(_, inner)| inner.alignment()).max().unwrap_or(1),
        }
    }
}
