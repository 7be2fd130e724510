//! The waits of a blocked rank, as it reports them to the rendezvous server.

use crate::agreement::{AgreementId, RANGES_MAX, RankRanges};
use serde::{Deserialize, Serialize, Serializer};

/// Most waits in a report. A rank with more does not report: without all its waits it would seem unable to continue.
pub const WAITS_MAX: usize = 16;
/// Most conditions in a report. Further conditions of a wait are left out: it then seems easier to satisfy.
pub const CONDITIONS_MAX: usize = 64;
/// Longest description of a wait, in bytes.
pub(crate) const DESCRIPTION_MAX: usize = 512;

/// Ranks of which one, or all, must act before a wait can end.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum WaitCondition {
    /// One of these ranks.
    AnyOf(RankRanges),
    /// All ranks that have not entered the fence.
    Fence,
    /// All members that have not voted in this agreement.
    Agreement(AgreementId),
}

/// A wait of one thread, or an operation under way. It can end once all its conditions hold.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Wait {
    /// A description for people that follows the rank's name; empty for an operation that no thread waits for.
    #[serde(serialize_with = "truncate")]
    pub what: String,
    /// Its conditions.
    pub conditions: Vec<WaitCondition>,
}

/// The report of a rank that made no progress for some time. Without waits: it is not blocked any more.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct WaitReport {
    /// The number of the server's request that this answers; 0: none.
    pub round: u32,
    /// A counter that changes with every operation that ends and every payload that is accepted.
    pub progress: u64,
    /// Whether something that the rank sent is not acknowledged.
    pub in_flight: bool,
    /// The rank can continue as soon as one of these can end.
    pub waits: Vec<Wait>,
}

impl WaitReport {
    /// Whether its parts are within their limits, as they may not be when it came from elsewhere.
    pub(crate) fn is_bounded(&self) -> bool {
        let conditions = || self.waits.iter().flat_map(|wait| &wait.conditions);
        let ranges = |condition: &WaitCondition| match condition {
            WaitCondition::AnyOf(ranks) => ranks.0.len(),
            WaitCondition::Fence | WaitCondition::Agreement(_) => 0,
        };
        self.waits.len() <= WAITS_MAX
            && self.waits.iter().all(|wait| wait.what.len() <= DESCRIPTION_MAX)
            && conditions().count() <= CONDITIONS_MAX
            && conditions().map(ranges).sum::<usize>() <= RANGES_MAX
    }
}

fn truncate<S: Serializer>(text: &str, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(text.get(..text.floor_char_boundary(DESCRIPTION_MAX)).unwrap_or_default())
}
