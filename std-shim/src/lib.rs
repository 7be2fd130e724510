//! Messaging and collective communication on clusters.
