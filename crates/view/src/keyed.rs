//! Items that are found by a key, in the order in which they came.

use std::collections::HashMap;
use std::hash::Hash;

/// One item for each key. Where there are many, one is found as fast as where there are few.
#[derive(Debug)]
pub(crate) struct Keyed<K, T> {
    places: HashMap<K, usize>,
    items: Vec<T>,
}

impl<K: Eq + Hash, T> Keyed<K, T> {
    /// Without any item.
    pub fn new() -> Self {
        Self { places: HashMap::new(), items: Vec::new() }
    }

    /// The item of a key, which is made where there is none yet.
    pub fn entry(&mut self, key: K, make: impl FnOnce() -> T) -> &mut T {
        let place = *self.places.entry(key).or_insert(self.items.len());
        if place == self.items.len() {
            self.items.push(make());
        }
        &mut self.items[place]
    }

    /// The item of a key; `None`: it has none.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut T> {
        self.items.get_mut(*self.places.get(key)?)
    }

    /// All items, the first that came first.
    pub fn into_items(self) -> Vec<T> {
        self.items
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::hash::Hasher;

    thread_local! {
        static COMPARED: Cell<u64> = const { Cell::new(0) };
    }

    /// Counts how often it is compared with another.
    struct Counted(u32);

    impl PartialEq for Counted {
        fn eq(&self, other: &Self) -> bool {
            COMPARED.set(COMPARED.get() + 1);
            self.0 == other.0
        }
    }

    impl Eq for Counted {}

    impl Hash for Counted {
        fn hash<H: Hasher>(&self, state: &mut H) {
            self.0.hash(state);
        }
    }

    #[test]
    fn each_is_found_without_a_look_at_the_others() {
        let (mut keyed, keys) = (Keyed::new(), 5000);
        for time in 0..3 {
            for key in (0..keys).rev() {
                *keyed.entry(Counted(key), || 0) += time;
                assert_eq!(keyed.get_mut(&Counted(key)).copied(), Some((0..=time).sum()));
            }
        }
        let look_ups = u64::from(keys) * 3 * 2;
        assert!(COMPARED.get() < 2 * look_ups, "{} comparisons", COMPARED.get());
        assert_eq!(keyed.get_mut(&Counted(keys)), None);
        assert_eq!(keyed.into_items(), vec![3; keys as usize]);
    }

    #[test]
    fn they_stay_in_the_order_in_which_they_came() {
        let mut keyed = Keyed::new();
        for key in [3, 1, 2, 1, 3] {
            keyed.entry(key, || key);
        }
        assert_eq!(keyed.into_items(), [3, 1, 2]);
    }
}
