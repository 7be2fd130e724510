//! The collectives, each as one round whose result is checked.

pub mod broadcast_job;
mod calls;
pub mod group_parameters;
pub mod group_policies;
pub mod hockney;
pub mod leader_broadcast;
pub mod levels;
pub mod oracle;
mod rounds;
pub mod selection_log;
pub mod semi_dynamic_tree;
pub mod skew;
pub mod skew_charts;
pub mod strided;

use core::fmt;

use unisono::collective::CollectiveError;
use unisono_core::collective::CollectiveKind;

pub use rounds::Rounds;

/// The form of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// Returns when it is complete.
    Blocking,
    /// Started, then waited for.
    Immediate,
    /// Prepared, then started twice.
    Persistent,
    /// One buffer for data and result.
    InPlace,
    /// Blocks of several lengths.
    Varying,
}

impl Form {
    const ALL: [(&'static str, Self); 5] = [
        ("blocking", Self::Blocking),
        ("immediate", Self::Immediate),
        ("persistent", Self::Persistent),
        ("in-place", Self::InPlace),
        ("varying", Self::Varying),
    ];
}

/// A kind of collective in one form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Collective {
    /// The kind.
    pub kind: CollectiveKind,
    /// The form.
    pub form: Form,
}

impl Collective {
    /// All combinations that exist.
    pub fn all() -> Vec<Self> {
        let forms = |verb| Form::ALL.map(|(_, form)| Self { kind: verb, form });
        CollectiveKind::ALL.into_iter().flat_map(forms).filter(|one| one.exists()).collect()
    }

    const fn exists(self) -> bool {
        match self.form {
            Form::Blocking | Form::Immediate | Form::Persistent => true,
            Form::InPlace => !matches!(self.kind, CollectiveKind::Barrier | CollectiveKind::Broadcast),
            Form::Varying => matches!(
                self.kind,
                CollectiveKind::Gather
                    | CollectiveKind::Scatter
                    | CollectiveKind::Allgather
                    | CollectiveKind::Alltoall
                    | CollectiveKind::ReduceScatter
            ),
        }
    }

    /// Parses the displayed form.
    pub fn named(name: &str) -> Option<Self> {
        Self::all().into_iter().find(|one| one.to_string() == name)
    }
}

impl fmt::Display for Collective {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let form = Form::ALL.iter().find(|(_, form)| *form == self.form).map_or("", |(name, _)| name);
        write!(to, "{}:{form}", self.kind.name())
    }
}

/// Why a round failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RoundError {
    /// It failed.
    Failed(CollectiveError),
    /// Wrong data, of this rank where they are one rank's alone.
    Wrong(Option<u32>),
}

impl fmt::Display for RoundError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(error) => error.fmt(to),
            Self::Wrong(Some(rank)) => write!(to, "wrong data of rank {rank}"),
            Self::Wrong(None) => to.write_str("wrong data"),
        }
    }
}

impl From<CollectiveError> for RoundError {
    fn from(error: CollectiveError) -> Self {
        Self::Failed(error)
    }
}
