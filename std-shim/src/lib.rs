//! Messaging and collective communication on clusters.

pub mod fault;
