//! Doubly linked lists of pages, threaded through one flat table: 8 bytes a page.

/// Not in any list.
const NONE: u32 = u32::MAX;

/// Most pages that [`Links`] can hold.
pub const MAX_PAGES: u32 = u32::MAX - 16;

#[derive(Debug, Clone, Copy)]
struct Node {
    prev: u32,
    next: u32,
}

/// A list of [`Links`], by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct List(pub u32);

/// Several lists; a page is in at most one of them. Each list is a ring through a node of its own behind the pages, so
/// that linking and unlinking know no special cases.
#[derive(Debug, Clone)]
pub struct Links {
    nodes: Vec<Node>,
    pages: u32,
}

impl Links {
    /// Room for `pages` pages, at most [`MAX_PAGES`], in `lists` lists, at most 16.
    pub fn new(pages: u32, lists: u32) -> Self {
        let mut nodes = vec![Node { prev: NONE, next: NONE }; pages as usize];
        nodes.extend((0..lists).map(|i| Node { prev: pages + i, next: pages + i }));
        Self { nodes, pages }
    }

    const fn head(&self, list: List) -> u32 {
        self.pages + list.0
    }

    /// Whether `page` is in a list.
    #[inline]
    pub fn contains(&self, page: u32) -> bool {
        self.nodes[page as usize].next != NONE
    }

    #[inline]
    fn insert_between(&mut self, page: u32, prev: u32, next: u32) {
        self.nodes[page as usize] = Node { prev, next };
        self.nodes[prev as usize].next = page;
        self.nodes[next as usize].prev = page;
    }

    /// Puts a page that is in no list to the front of `list`.
    #[inline]
    pub fn push_front(&mut self, list: List, page: u32) {
        let head = self.head(list);
        let first = self.nodes[head as usize].next;
        self.insert_between(page, head, first);
    }

    #[inline]
    fn detach(&mut self, page: u32) {
        let Node { prev, next } = self.nodes[page as usize];
        self.nodes[prev as usize].next = next;
        self.nodes[next as usize].prev = prev;
    }

    /// Takes a page out of its list.
    #[inline]
    pub fn remove(&mut self, page: u32) {
        self.detach(page);
        self.nodes[page as usize] = Node { prev: NONE, next: NONE };
    }

    /// Moves a page from its list to the front of `list`.
    #[inline]
    pub(crate) fn move_front(&mut self, list: List, page: u32) {
        // Programs use a page several times in a row; linking it anew waits for what the last time has written.
        if self.nodes[page as usize].prev == self.head(list) {
            return;
        }
        self.detach(page);
        self.push_front(list, page);
    }

    /// The last page of `list`.
    #[inline]
    pub fn back(&self, list: List) -> Option<u32> {
        let last = self.nodes[self.head(list) as usize].prev;
        (last < self.pages).then_some(last)
    }

    /// Takes the last page of `list` out.
    #[inline]
    pub(crate) fn pop_back(&mut self, list: List) -> Option<u32> {
        let last = self.back(list)?;
        self.remove(last);
        Some(last)
    }

    /// The page before `page`, towards the front.
    #[inline]
    pub fn before(&self, page: u32) -> Option<u32> {
        let prev = self.nodes[page as usize].prev;
        (prev < self.pages).then_some(prev)
    }

    /// Reads the nodes of `page` and of its neighbours; see [`Policy::warm`](super::Policy::warm).
    #[inline]
    pub fn warm(&self, page: u32) -> u32 {
        let Node { prev, next } = self.nodes[page as usize];
        let last = self.nodes.len() - 1;
        self.nodes[(prev as usize).min(last)].next ^ self.nodes[(next as usize).min(last)].prev
    }
}
