//! Messages over what an endpoint delivers: which payload belongs to which receive, and how much may be on its way to one that
//! is not there yet.
//!
//! [`steps`]: the messages of collectives, whose keys are exact.

pub mod steps;
