//! Offline tuning: which parameters of a scheme to try next, and which of those tried are best. It runs nothing itself.

pub mod figures;
pub mod parameters;
pub mod score;
pub mod search;
