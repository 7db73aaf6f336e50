//! Traces of requests for pages: read from files, or made up.
//!
//! Whatever the source, a trace in memory is a list of dense page numbers, 4 bytes a request, and where requests differ
//! in more than the page, a byte each for that. Names of pages in the source (addresses, block numbers, hashes) are
//! looked up once, while reading, so that policies need no hashing.

mod ahead;
mod chosen;
mod csv;
mod dense;
mod error;
mod generate;
mod groups;
mod ids;
mod input;
mod lackey;
mod oracle;
mod record;
mod save;
mod source;

pub use error::TraceError;
pub use generate::{Generator, generate};
pub use groups::Groups;
pub(crate) use input::from_reader;
pub use input::{Format, read};
pub use save::save_oracle;

#[cfg(test)]
mod tests;

use ids::{Ids, TOGETHER};

/// What a request is besides its page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Manner(u8);

impl Manner {
    /// A load from memory that belongs to no file.
    pub const MAPPED: Self = Self(0);
    /// A read through a file descriptor.
    pub const FD: Self = Self(Self::FD_BIT | Self::FILE_BIT);

    const WRITE_BIT: u8 = 1;
    const FD_BIT: u8 = 2;
    const FILE_BIT: u8 = 4;

    /// The same, writing or not.
    #[must_use]
    pub(crate) const fn with_write(self, write: bool) -> Self {
        Self(if write { self.0 | Self::WRITE_BIT } else { self.0 & !Self::WRITE_BIT })
    }

    /// The same for a page of a file.
    #[must_use]
    pub const fn of_file(self) -> Self {
        Self(self.0 | Self::FILE_BIT)
    }

    /// Whether it writes.
    pub(crate) const fn is_write(self) -> bool {
        self.0 & Self::WRITE_BIT != 0
    }

    /// Whether it goes through a file descriptor, not through a page table.
    pub(crate) const fn is_fd(self) -> bool {
        self.0 & Self::FD_BIT != 0
    }

    /// Whether the page belongs to a file.
    pub const fn is_file(self) -> bool {
        self.0 & Self::FILE_BIT != 0
    }
}

/// A trace in memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    pages: Vec<u32>,
    manner: Manner,
    manners: Vec<Manner>,
    names: Vec<u64>,
    seen: u64,
    sample_rate: Option<f64>,
    groups: Groups,
}

impl Trace {
    /// The page of each request, numbered from 0 in order of appearance.
    pub fn pages(&self) -> &[u32] {
        &self.pages
    }

    /// How the request at `at` is made.
    pub fn manner(&self, at: usize) -> Manner {
        self.manners.get(at).copied().unwrap_or(self.manner)
    }

    /// On whose behalf requests are made; empty if the source does not tell.
    pub const fn groups(&self) -> &Groups {
        &self.groups
    }

    /// Number of different pages.
    pub fn footprint(&self) -> u32 {
        self.names.len() as u32
    }

    /// Number of different pages that were anonymous memory when they were asked for first.
    pub(crate) fn anonymous_pages(&self) -> u32 {
        if self.manners.is_empty() {
            return if self.manner.is_file() { 0 } else { self.footprint() };
        }
        // Pages are numbered in order of appearance.
        let (mut seen, mut anonymous) = (0, 0);
        for (at, &page) in self.pages.iter().enumerate() {
            if page == seen {
                seen += 1;
                anonymous += u32::from(!self.manner(at).is_file());
            }
        }
        anonymous
    }

    /// The name of each page in the source.
    pub fn names(&self) -> &[u64] {
        &self.names
    }

    /// Requests in the source; more than are kept where it was sampled.
    pub const fn seen(&self) -> u64 {
        self.seen
    }

    /// The share of pages that was kept, if not all were.
    pub const fn sample_rate(&self) -> Option<f64> {
        self.sample_rate
    }

    /// The requests for one of `of` parts into which a hash divides the pages, numbered anew. What is kept of the
    /// source stays the same: it is for comparing parts with each other.
    #[must_use]
    pub fn part(&self, number: u64, of: u64) -> Self {
        const ELSEWHERE: u32 = u32::MAX;
        // The low bits of the hash: the high ones have chosen the sample.
        let mut names = Vec::new();
        let renumbered: Vec<u32> = self
            .names
            .iter()
            .map(|&name| {
                if ids::hash(name) % of != number {
                    return ELSEWHERE;
                }
                names.push(name);
                names.len() as u32 - 1
            })
            .collect();
        let groups =
            Groups { of_requests: Vec::new(), names: self.groups.names.clone(), seen: self.groups.seen.clone() };
        let mut part = Self { pages: Vec::new(), manners: Vec::new(), names, groups, ..*self };
        for (at, &page) in self.pages.iter().enumerate() {
            let page = renumbered[page as usize];
            if page != ELSEWHERE {
                part.pages.push(page);
                part.manners.extend(self.manners.get(at));
                part.groups.of_requests.extend(self.groups.of_requests.get(at));
            }
        }
        part
    }
}

/// What to take of a source.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Selection {
    /// Keep only the requests for this share of the pages, chosen by a hash of their names.
    pub sample_rate: Option<f64>,
    /// End after so many requests.
    pub limit: Option<u64>,
    /// Take all requests to be made this way, whatever the source says; whether they write stays.
    pub manner: Option<Manner>,
}

/// Most different pages in a trace: 512 GiB of 4 KiB pages. Keeps broken traces from eating all memory.
pub(crate) const MOST_PAGES: u32 = 1 << 27;
/// Most requests kept of a trace.
pub(crate) const MOST_REQUESTS: u64 = u32::MAX as u64 - 1;
/// Requests between two reports of progress.
const REPORT_EVERY: u64 = 1 << 20;

/// Whether a source shall go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    More,
    Enough,
}

/// Takes requests as a source yields them.
struct Builder<'a> {
    ids: Ids,
    pages: Vec<u32>,
    manner: Option<Manner>,
    manners: Vec<Manner>,
    seen: u64,
    limit: u64,
    /// Keep pages whose hash is at most this.
    threshold: u64,
    sample_rate: Option<f64>,
    forced: Option<Manner>,
    groups: Groups,
    progress: &'a mut dyn FnMut(u64),
}

impl<'a> Builder<'a> {
    fn new(selection: Selection, progress: &'a mut dyn FnMut(u64)) -> Self {
        let rate = selection.sample_rate.filter(|r| *r < 1.0);
        Self {
            ids: Ids::new(),
            pages: Vec::new(),
            manner: None,
            manners: Vec::new(),
            seen: 0,
            limit: selection.limit.unwrap_or(u64::MAX),
            threshold: rate.map_or(u64::MAX, |r| (r * u64::MAX as f64) as u64),
            sample_rate: rate,
            forced: selection.manner,
            groups: Groups::default(),
            progress,
        }
    }

    /// Requests that are all made in the same manner, as by [`Self::add`], but faster where pages were seen before.
    fn add_all(&mut self, names: &[u64; TOGETHER], manner: Manner) -> Result<Next, TraceError> {
        // Of a sample most are not looked up.
        let numbers = if self.sample_rate.is_none() { self.ids.find(names) } else { ids::NONE };
        for (&name, number) in names.iter().zip(numbers) {
            let found = Ids::is_number(number).then_some(number);
            if self.take(name, found, manner)? == Next::Enough {
                return Ok(Next::Enough);
            }
        }
        Ok(Next::More)
    }

    /// A request on behalf of a group; see [`Builder::group`]. Either all requests of a source have one, or none.
    fn add_for(&mut self, group: u8, name: u64, manner: Manner) -> Result<Next, TraceError> {
        let before = self.pages.len();
        let next = self.add(name, manner)?;
        if self.pages.len() > before {
            self.groups.of_requests.push(group);
        }
        if next == Next::More {
            self.groups.seen[usize::from(group)] += 1;
        }
        Ok(next)
    }

    /// The number of a group by its name; `None`: there are too many.
    fn group(&mut self, name: &str) -> Option<u8> {
        self.groups.number(name)
    }

    #[inline]
    fn add(&mut self, name: u64, manner: Manner) -> Result<Next, TraceError> {
        self.take(name, None, manner)
    }

    /// A request for a page whose number may be known.
    #[inline]
    fn take(&mut self, name: u64, found: Option<u32>, manner: Manner) -> Result<Next, TraceError> {
        if self.seen == self.limit {
            return Ok(Next::Enough);
        }
        self.seen += 1;
        if self.seen.is_multiple_of(REPORT_EVERY) {
            (self.progress)(self.seen);
        }
        let page = match found {
            Some(number) => number,
            None => {
                let hash = ids::hash(name);
                if hash > self.threshold {
                    return Ok(Next::More);
                }
                self.ids.number(name, hash).ok_or(TraceError::TooManyPages)?
            }
        };
        if self.pages.len() as u64 == MOST_REQUESTS {
            return Err(TraceError::TooManyRequests);
        }
        let manner = self.forced.map_or(manner, |forced| forced.with_write(manner.is_write()));
        let common = *self.manner.get_or_insert(manner);
        if manner != common || !self.manners.is_empty() {
            // The first request that differs: all before it were alike.
            self.manners.resize(self.pages.len(), common);
            self.manners.push(manner);
        }
        self.pages.push(page);
        Ok(Next::More)
    }

    fn finish(self) -> Trace {
        Trace {
            pages: self.pages,
            manner: self.manner.unwrap_or(Manner::MAPPED),
            manners: self.manners,
            names: self.ids.into_names(),
            seen: self.seen,
            sample_rate: self.sample_rate,
            groups: self.groups,
        }
    }
}
