//! A buffer of the user: adjacent bytes, or those that a datatype names.

use alloc::sync::Arc;
use core::ptr::NonNull;

use unisono_datatype::Datatype;

use crate::element_type::ElementType;

/// Memory that a message or a collective reads or writes.
#[derive(Clone, Debug)]
pub struct UserBuffer {
    /// The buffer's first byte; with a layout, the byte that its offsets count from.
    pub start: NonNull<u8>,
    /// Number of bytes that are read or written.
    pub bytes: usize,
    /// Which bytes; `None` where they are adjacent.
    pub layout: Option<Arc<Datatype>>,
    /// The type of its elements.
    pub element: ElementType,
}

impl UserBuffer {
    /// Adjacent bytes.
    pub const fn plain(start: NonNull<u8>, bytes: usize) -> Self {
        Self { start, bytes, layout: None, element: ElementType::Unknown }
    }

    /// The same buffer, with elements of this type.
    pub fn of(self, element: ElementType) -> Self {
        Self { element, ..self }
    }

    /// The bytes that a datatype names, counted from `start` on.
    pub fn new(start: NonNull<u8>, layout: &Arc<Datatype>) -> Self {
        let bytes = layout.size();
        match layout.adjacent(0, bytes) {
            Some(first) => Self::plain(offset(start, first), bytes),
            None if bytes == 0 => Self::plain(start, 0),
            None => Self { layout: Some(Arc::clone(layout)), ..Self::plain(start, bytes) },
        }
    }

    /// The bytes of a layout if there is one, else `bytes` adjacent ones.
    pub fn with(start: NonNull<u8>, bytes: usize, layout: Option<&Arc<Datatype>>) -> Self {
        layout.map_or(Self::plain(start, bytes), |layout| Self::new(start, layout))
    }
}

/// The byte at this offset. Outside of the address space, where no buffer is: the first one.
pub(crate) fn offset(start: NonNull<u8>, offset: isize) -> NonNull<u8> {
    NonNull::new(start.as_ptr().wrapping_offset(offset)).unwrap_or(start)
}
