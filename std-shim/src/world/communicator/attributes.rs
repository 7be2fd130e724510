//! Attributes: values that a program or a library attaches to a communicator (`MPI_Comm_set_attr`).

use alloc::sync::Arc;
use core::any::Any;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicU64, Ordering};

use super::Communicator;

/// Names an attribute of type `T`. Each key names another attribute.
pub struct AttributeKey<T> {
    id: u64,
    copy: Copier,
    value: PhantomData<fn(T) -> T>,
}

/// A value of any type.
type Value = Arc<dyn Any + Send + Sync>;

/// Makes the value of a duplicate; `None`: it gets none.
type Copier = Arc<dyn Fn(&Value) -> Option<Value> + Send + Sync>;

#[derive(Clone)]
struct Attribute {
    id: u64,
    value: Value,
    copy: Copier,
}

/// The attributes of a communicator, in the order of their first values. They are dropped in the opposite order.
#[derive(Default)]
pub(in crate::world) struct Attributes(Vec<Attribute>);

static NEXT: AtomicU64 = AtomicU64::new(0);

impl<T: Send + Sync + 'static> AttributeKey<T> {
    /// A key of values that a duplicate of the communicator does not get (`MPI_Comm_create_keyval` with
    /// `MPI_COMM_NULL_COPY_FN`).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let key = AttributeKey::new();
    /// world.set_attribute(&key, 7);
    /// assert_eq!(world.duplicate()?.attribute(&key), None);
    /// # Ok::<(), Error>(())
    /// ```
    #[expect(clippy::new_without_default, reason = "every key is another one")]
    pub fn new() -> Self {
        Self::copied_by(|_| None)
    }

    /// A key of values that a duplicate shares (`MPI_COMM_DUP_FN`).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let key = AttributeKey::shared();
    /// world.set_attribute(&key, 7);
    /// assert_eq!(world.duplicate()?.attribute(&key).as_deref(), Some(&7));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn shared() -> Self {
        Self::with(Arc::new(|value| Some(Arc::clone(value))))
    }

    /// A key of values of which `copy` makes those of a duplicate; `None`: it gets none. It runs in
    /// [`duplicate`](Communicator::duplicate).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let depth = AttributeKey::copied_by(|depth: &u32| Some(depth + 1));
    /// world.set_attribute(&depth, 0);
    /// assert_eq!(world.duplicate()?.attribute(&depth).as_deref(), Some(&1));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn copied_by(copy: impl Fn(&T) -> Option<T> + Send + Sync + 'static) -> Self {
        Self::with(Arc::new(move |value| {
            let copied: Value = Arc::new(copy(value.downcast_ref()?)?);
            Some(copied)
        }))
    }

    fn with(copy: Copier) -> Self {
        Self { id: NEXT.fetch_add(1, Ordering::Relaxed), copy, value: PhantomData }
    }
}

impl Communicator {
    /// Attaches a value (`MPI_Comm_set_attr`), and returns the previous one of that key. A value is dropped with the
    /// communicator, unless it was returned before.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let (name, level) = (AttributeKey::<String>::shared(), AttributeKey::copied_by(|level: &u32| Some(level + 1)));
    /// let cache = AttributeKey::<Vec<u8>>::new();
    /// world.set_attribute(&name, String::from("solver"));
    /// world.set_attribute(&level, 0);
    /// world.set_attribute(&cache, vec![1, 2]);
    /// let copy = world.duplicate()?;
    /// assert_eq!(copy.attribute(&name).as_deref().map(String::as_str), Some("solver"));
    /// assert_eq!((copy.attribute(&level).as_deref(), copy.attribute(&cache)), (Some(&1), None));
    /// assert_eq!(world.set_attribute(&level, 9).as_deref(), Some(&0));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn set_attribute<T: Send + Sync + 'static>(&self, key: &AttributeKey<T>, value: T) -> Option<Arc<T>> {
        let mut attributes = self.attributes.lock();
        let value: Value = Arc::new(value);
        match attributes.0.iter_mut().find(|attribute| attribute.id == key.id) {
            Some(attribute) => core::mem::replace(&mut attribute.value, value).downcast().ok(),
            None => {
                attributes.0.push(Attribute { id: key.id, value, copy: Arc::clone(&key.copy) });
                None
            }
        }
    }

    /// The value of a key (`MPI_Comm_get_attr`).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let key = AttributeKey::<u32>::new();
    /// assert_eq!(world.attribute(&key), None);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn attribute<T: Send + Sync + 'static>(&self, key: &AttributeKey<T>) -> Option<Arc<T>> {
        let attributes = self.attributes.lock();
        let found = attributes.0.iter().find(|attribute| attribute.id == key.id)?;
        Arc::clone(&found.value).downcast().ok()
    }

    /// Detaches the value of a key, and returns it (`MPI_Comm_delete_attr`).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let key = AttributeKey::new();
    /// world.set_attribute(&key, 7);
    /// assert_eq!((world.attribute(&key).as_deref(), world.remove_attribute(&key).as_deref()), (Some(&7), Some(&7)));
    /// assert_eq!((world.attribute(&key), world.remove_attribute(&key)), (None, None));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn remove_attribute<T: Send + Sync + 'static>(&self, key: &AttributeKey<T>) -> Option<Arc<T>> {
        let mut attributes = self.attributes.lock();
        let place = attributes.0.iter().position(|attribute| attribute.id == key.id)?;
        attributes.0.remove(place).value.downcast().ok()
    }

    /// Gives a duplicate the attributes that are copied.
    pub(super) fn copy_attributes_to(&self, other: &Self) {
        // A copy function may use this communicator's attributes.
        let all = self.attributes.lock().0.clone();
        let copy = |attribute: Attribute| Some(Attribute { value: (attribute.copy)(&attribute.value)?, ..attribute });
        let copied = all.into_iter().filter_map(copy).collect();
        other.attributes.lock().0 = copied;
    }
}

impl Drop for Attributes {
    fn drop(&mut self) {
        while let Some(last) = self.0.pop() {
            drop(last);
        }
    }
}
