//! What most programs use: `use unisono::prelude::*;`.

pub use crate::collective::{CollectiveError, SystemOperation};
pub use crate::{Communicator, Failure, Rank, Request, Scope, Status, Tag, World};
