//! Selection of the algorithm of each collective over messages: by the user's override (`bruck:k=2,segments=4`), by a
//! table of measurements (the user's or the built-in one), or by the cost model (`unisono_core::schedule::choose`).

mod composed;
mod hierarchy_options;
mod interconnect;
mod multicast;
mod overrides;
mod rdma;
mod signature;
pub(super) mod table;
mod table_file;
pub(super) mod tree;

use alloc::sync::Arc;
use std::path::Path;
use std::sync::OnceLock;

pub use composed::{Composed, Composition};
pub use interconnect::{Carrier, Interconnect, RINGS_COST, SLOTS_COST, UDP_COST};
pub use multicast::MulticastUse;
pub(crate) use multicast::{MEMBERS_MAX as MULTICAST_MEMBERS_MAX, NAME as MULTICAST_NAME};
pub use overrides::{Override, OverrideError, SEGMENTS_MAX, algorithm_names};
use overrides::{Wanted, store};
pub use rdma::name as rdma_name;
pub use tree::name as tree_name;
pub(crate) use tree::{TREE_BYTES_MAX, UNITS_MAX};

pub use signature::{Difference, JobSignature, SignatureError, SignatureMismatch};
pub use table::{NumberRange, TuningLine, TuningLineError, TuningTable, TuningTableError, lines_from_fastest};
pub use table_file::{TableFile, TableFileError};
use unisono_core::collective::token_tree::header::TreeShape;
use unisono_core::collective::{CollectiveKind, CollectiveSpec};
use unisono_core::schedule::{
    Algorithm, Choice, Constraints, LowerTrees, Plan as Schedule, Unsupported, algorithms, choose, choose_with,
    multicast_pays,
};

use super::hierarchy::{HierarchyChoice, SubgroupChoice, Subgroups};
use super::link_speed::LinkSpeed;
use super::{LeaderChoice, LeaderMeans, PartsChoice};

/// The collectives that can be tuned, with their names on the command line and in the environment.
pub const COLLECTIVES: [(CollectiveKind, &str, &str); 11] = [
    (CollectiveKind::Barrier, "barrier", "BARRIER"),
    (CollectiveKind::Broadcast, "broadcast", "BROADCAST"),
    (CollectiveKind::Reduce, "reduce", "REDUCE"),
    (CollectiveKind::Allreduce, "allreduce", "ALLREDUCE"),
    (CollectiveKind::Gather, "gather", "GATHER"),
    (CollectiveKind::Scatter, "scatter", "SCATTER"),
    (CollectiveKind::Allgather, "allgather", "ALLGATHER"),
    (CollectiveKind::Alltoall, "alltoall", "ALLTOALL"),
    (CollectiveKind::ReduceScatter, "reduce-scatter", "REDUCE_SCATTER"),
    (CollectiveKind::Scan, "scan", "SCAN"),
    (CollectiveKind::Exscan, "exscan", "EXSCAN"),
];

/// The built-in table of measurements.
const BUILT_IN: &str = include_str!("tuning/measured.tuning");

/// The trees below the leaders of the last level: within a node a rank copies one message at a time.
const LOWER_TREES: LowerTrees = LowerTrees { radix: 2, ports: 1 };

/// What selected the algorithm of a collective.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SelectedBy {
    /// Nothing: no other algorithm can do the call. The model selects its parameters.
    Only,
    /// The measured rule of collectives in shared memory, by ranks and bytes.
    Rule,
    /// The cost model.
    Model,
    /// The built-in table of measurements.
    BuiltIn,
    /// The user's table of measurements.
    Table,
    /// The user's override.
    Override,
}

impl SelectedBy {
    /// What selects the algorithm of a collective in shared memory, whose blocking calls use no override: a barrier has
    /// only one.
    ///
    /// ```
    /// use unisono::environment::tuning::SelectedBy;
    /// use unisono_core::collective::CollectiveKind;
    ///
    /// assert_eq!(SelectedBy::in_slots(CollectiveKind::Barrier), SelectedBy::Only);
    /// ```
    pub const fn in_slots(kind: CollectiveKind) -> Self {
        if matches!(kind, CollectiveKind::Barrier) { Self::Only } else { Self::Rule }
    }

    /// Whether the user or a table selects.
    const fn is_measured(self) -> bool {
        matches!(self, Self::BuiltIn | Self::Table | Self::Override)
    }

    /// Its name in records and on the screen.
    ///
    /// ```
    /// use unisono::environment::tuning::SelectedBy;
    ///
    /// assert_eq!(SelectedBy::Only.name(), "only algorithm");
    /// ```
    pub const fn name(self) -> &'static str {
        match self {
            Self::Only => "only algorithm",
            Self::Rule => "rule",
            Self::Model => "model",
            Self::BuiltIn => "built in",
            Self::Table => "table",
            Self::Override => "override",
        }
    }
}

/// The algorithm selected for a collective.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Decision {
    /// The algorithm and its parameters.
    pub choice: Choice,
    /// What selected it.
    pub selected_by: SelectedBy,
    /// Why the user's override is not used, if there is one.
    pub override_error: Option<Unsupported>,
}

/// The user's tables.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct UserTable {
    /// The file that they were read from.
    path: Arc<str>,
    file: Arc<TableFile>,
    /// That of the job; before its signature is known, that of every job.
    selected: Option<Arc<TuningTable>>,
}

/// The user's settings for collectives. They must be equal on all ranks of a job.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Tuning {
    overrides: [Option<Override>; COLLECTIVES.len()],
    table: Option<UserTable>,
    /// Ranks per processor in the model.
    sharing: Option<u16>,
    link_speed: Option<LinkSpeed>,
    hierarchy: HierarchyChoice,
    leaders: LeaderChoice,
    parts: PartsChoice,
}

impl Tuning {
    /// Sets an override for its collective.
    ///
    /// ```
    /// use unisono::environment::{Override, Tuning};
    /// use unisono_core::collective::CollectiveKind;
    ///
    /// let mut tuning = Tuning::default();
    /// tuning.set(Override::new(CollectiveKind::Allgather, "ring")?);
    /// assert_eq!(tuning.get(CollectiveKind::Allgather).map(|wanted| wanted.to_string()), Some("ring".to_owned()));
    /// # Ok::<(), unisono::environment::OverrideError>(())
    /// ```
    pub fn set(&mut self, wanted: Override) {
        if let Some(place) = self.overrides.get_mut(wanted.kind as usize) {
            *place = Some(wanted);
        }
    }

    /// The override of a collective, if there is one.
    ///
    /// ```
    /// use unisono_core::collective::CollectiveKind;
    ///
    /// assert_eq!(unisono::environment::Tuning::default().get(CollectiveKind::Scan), None);
    /// ```
    pub fn get(&self, verb: CollectiveKind) -> Option<Override> {
        self.overrides.get(verb as usize).copied().flatten()
    }

    /// Reads the user's tables. That of the job, which [`select_table`](Self::select_table) finds, selects where there is no
    /// override.
    ///
    /// ```
    /// assert!(unisono::environment::Tuning::default().load_table("/nowhere/table").is_err());
    /// ```
    ///
    /// # Errors
    /// [`TableFileError`].
    pub fn load_table(&mut self, path: &str) -> Result<(), TableFileError> {
        // Ranks may run in another directory.
        let whole = std::path::absolute(path).ok();
        let path = whole.as_deref().and_then(Path::to_str).unwrap_or(path);
        let file = Arc::new(TableFile::load(Path::new(path))?);
        self.table = Some(UserTable { path: path.into(), selected: file.table_for_any_job(), file });
        Ok(())
    }

    /// Selects the user's table of the job, if there are tables.
    ///
    /// ```
    /// use unisono::environment::{DeviceChoice, Tuning, tuning::JobSignature};
    ///
    /// assert_eq!(Tuning::default().select_table(&JobSignature::here(&[0, 0], |_| true, DeviceChoice::Udp)), Ok(()));
    /// ```
    ///
    /// # Errors
    /// They were measured in other jobs, or on another machine.
    pub fn select_table(&mut self, here: &JobSignature) -> Result<(), SignatureMismatch> {
        if let Some(table) = &mut self.table {
            table.selected = Some(table.file.table_for(here)?);
        }
        Ok(())
    }

    /// Whether the user has given a file of tables.
    pub(crate) const fn has_table(&self) -> bool {
        self.table.is_some()
    }

    fn selected_table(&self) -> Option<&TuningTable> {
        self.table.as_ref()?.selected.as_deref()
    }

    /// The subgroups over which collectives are composed.
    ///
    /// ```
    /// use unisono::environment::{HierarchyChoice, Tuning};
    ///
    /// assert_eq!(Tuning::default().hierarchy(), HierarchyChoice::default());
    /// ```
    pub const fn hierarchy(&self) -> HierarchyChoice {
        self.hierarchy
    }

    /// The subgroups of a job's communicators. Where no collective is composed, they need no shared memory.
    pub(crate) fn hierarchy_in_use(&self) -> HierarchyChoice {
        match self.hierarchy.groups {
            SubgroupChoice::Auto if self.sharing() > 1 && !self.names_hosts() => self.hierarchy.by_messages(),
            _ => self.hierarchy,
        }
    }

    /// Whether an override or the table names a schedule over hosts.
    fn names_hosts(&self) -> bool {
        let overrides = self.overrides.iter().flatten().any(|wanted| wanted.hosts.is_some());
        overrides || self.selected_table().is_some_and(TuningTable::names_hosts)
    }

    /// Why schedules over hosts that an override or the table names are not used in a job with these subgroups, if there are
    /// any.
    ///
    /// ```
    /// use unisono::environment::{Override, Tuning};
    /// use unisono_core::collective::CollectiveKind;
    ///
    /// let mut tuning = Tuning::default();
    /// assert_eq!(tuning.ignored_hosts(None), None);
    /// tuning.set(Override::new(CollectiveKind::Reduce, "host+ring")?);
    /// assert_eq!(tuning.ignored_hosts(None), Some("no host has several ranks, or there is only one"));
    /// # Ok::<(), unisono::environment::OverrideError>(())
    /// ```
    pub fn ignored_hosts(&self, over: Option<&Subgroups>) -> Option<&'static str> {
        if !self.names_hosts() || over.is_some_and(Subgroups::is_auto) {
            return None;
        }
        let is_auto = self.hierarchy.groups == SubgroupChoice::Auto;
        Some(if is_auto {
            "no host has several ranks, or there is only one"
        } else {
            "--hierarchy selects the subgroups"
        })
    }

    /// Sets the subgroups over which collectives are composed.
    ///
    /// ```
    /// use unisono::environment::{HierarchyChoice, Tuning};
    ///
    /// let mut tuning = Tuning::default();
    /// tuning.set_hierarchy(HierarchyChoice::OFF);
    /// assert_eq!(tuning.hierarchy(), HierarchyChoice::OFF);
    /// ```
    pub const fn set_hierarchy(&mut self, choice: HierarchyChoice) {
        self.hierarchy = choice;
    }

    /// The number of ranks that share a processor; 1 if unknown.
    ///
    /// ```
    /// assert_eq!(unisono::environment::Tuning::default().sharing(), 1);
    /// ```
    pub fn sharing(&self) -> u16 {
        self.sharing.unwrap_or(1)
    }

    /// As [`sharing`](Self::sharing), but `None` if unknown.
    ///
    /// ```
    /// assert_eq!(unisono::environment::Tuning::default().explicit_sharing(), None);
    /// ```
    pub const fn explicit_sharing(&self) -> Option<u16> {
        self.sharing
    }

    /// Sets the number of ranks that share a processor.
    ///
    /// ```
    /// let mut tuning = unisono::environment::Tuning::default();
    /// tuning.set_sharing(4);
    /// assert_eq!(tuning.explicit_sharing(), Some(4));
    /// ```
    pub const fn set_sharing(&mut self, ranks: u16) {
        self.sharing = Some(ranks);
    }

    /// Clears the number of ranks that share a processor, as it was of another job.
    ///
    /// ```
    /// let mut tuning = unisono::environment::Tuning::default();
    /// tuning.set_sharing(4);
    /// tuning.clear_sharing();
    /// assert_eq!(tuning.sharing(), 1);
    /// ```
    pub const fn clear_sharing(&mut self) {
        self.sharing = None;
    }

    /// Sets the number of ranks that share a processor, unless it is set, for a job whose ranks are all on this host.
    ///
    /// ```
    /// let mut tuning = unisono::environment::Tuning::default();
    /// tuning.set_default_sharing(8, 2);
    /// assert_eq!(tuning.sharing(), 4);
    /// ```
    pub fn set_default_sharing(&mut self, ranks: u32, processors: usize) {
        let sharing = (ranks as usize).div_ceil(processors.max(1));
        self.sharing.get_or_insert(u16::try_from(sharing).unwrap_or(u16::MAX));
    }

    /// A digest of these settings and of the tables: ranks that have the same one select the same algorithms.
    ///
    /// ```
    /// let [mut tuning, same] = [(); 2].map(|()| unisono::environment::Tuning::default());
    /// assert_eq!(tuning.digest(), same.digest());
    /// tuning.set_sharing(2);
    /// assert_ne!(tuning.digest(), same.digest());
    /// ```
    pub fn digest(&self) -> u64 {
        let begin = table::digest(built_in(), 0xcbf2_9ce4_8422_2325);
        let variables = self.variables();
        let said = variables.fold(begin, |hash, (name, value)| table::digest(&format_args!("{name}={value}"), hash));
        // Files of one name may have different tables on different hosts.
        let said = self.table.as_ref().map_or(said, |table| table::digest(&table.file, said));
        self.selected_table().map_or(said, |table| table::digest(table, said))
    }

    /// Selects the algorithm of a collective: the override if it is valid for the call, else the user's table, else the
    /// built-in table, else the cost model. Equal on all ranks if `plan` differs in the rank only.
    ///
    /// ```
    /// # use unisono_core::collective::{CollectiveKind, CollectiveSpec, Order};
    /// # use unisono_core::ids::Rank;
    /// # let spec = CollectiveSpec {
    /// #     collective: CollectiveKind::Allgather, rank: Rank(0), size: 4, root: Rank(0), bytes: 8, grain: 1, order: Order::Any,
    /// #     in_place: false, reduction_id: 0,
    /// # };
    /// use unisono::environment::tuning::{Carrier, Tuning};
    ///
    /// // An allgather of 8 bytes among 4 ranks.
    /// let choice = Tuning::default().choose(&spec, false, Carrier::Udp).expect("some algorithm can do it");
    /// println!("{choice:?}");
    /// ```
    ///
    /// # Errors
    /// No schedule exists for the call: the rank is outside the group, or there are too many ranks.
    pub fn choose(
        &self,
        plan: &CollectiveSpec,
        varying: bool,
        interconnect: impl Into<Interconnect>,
    ) -> Result<Choice, Unsupported> {
        self.decide(plan, varying, interconnect).map(|decision| decision.choice)
    }

    /// As [`choose`](Self::choose), with what selected the algorithm.
    ///
    /// ```
    /// # use unisono_core::collective::{CollectiveKind, CollectiveSpec, Order};
    /// # use unisono_core::ids::Rank;
    /// # let spec = CollectiveSpec {
    /// #     collective: CollectiveKind::Allgather, rank: Rank(0), size: 4, root: Rank(0), bytes: 8, grain: 1, order: Order::Any,
    /// #     in_place: false, reduction_id: 0,
    /// # };
    /// use unisono::environment::tuning::{Carrier, Tuning};
    ///
    /// // An allgather of 8 bytes among 4 ranks.
    /// let decision = Tuning::default().decide(&spec, false, Carrier::Udp).expect("some algorithm can do it");
    /// println!("{:?}, selected by {:?}", decision.choice, decision.selected_by);
    /// ```
    ///
    /// # Errors
    /// As [`choose`](Self::choose).
    pub fn decide(
        &self,
        plan: &CollectiveSpec,
        varying: bool,
        interconnect: impl Into<Interconnect>,
    ) -> Result<Decision, Unsupported> {
        let interconnect = interconnect.into();
        let (carrier, link) = (interconnect.carrier, self.cost(interconnect));
        let given = |wanted: Override| match wanted.wanted {
            Wanted::Schedule(_) if wanted.hosts.is_some() => Err(Unsupported::Groups),
            Wanted::Schedule(constraints) => choose_with(plan, varying, &link, &constraints),
            Wanted::Tree(tree) => Err(tree.shape(plan, varying).err().unwrap_or(Unsupported::Unavailable)),
            Wanted::Multicast => Err(multicast::check(plan, varying).err().unwrap_or(Unsupported::Unavailable)),
            Wanted::Rdma(rdma) => Err(rdma.check(plan, varying).err().unwrap_or(Unsupported::Unavailable)),
        };
        let wanted = self.get(plan.collective).map(given);
        let refused = wanted.and_then(Result::err);
        let found = |table: &TuningTable, reason| {
            let wanted = table.find(carrier, self.sharing(), plan)?;
            Some((given(wanted).ok()?, reason))
        };
        let measured = || self.selected_table().and_then(|table| found(table, SelectedBy::Table));
        let (choice, reason) = match wanted {
            Some(Ok(choice)) => (choice, SelectedBy::Override),
            _ => { measured() }.or_else(|| found(built_in(), SelectedBy::BuiltIn)).unwrap_or_else(|| {
                let can = |algorithm: &&Algorithm| {
                    let constraints = Constraints { ports: Some(1), ..Constraints::only(**algorithm) };
                    choose_with(plan, varying, &link, &constraints).is_ok()
                };
                let is_only = algorithms(plan.collective).iter().filter(can).nth(1).is_none();
                let reason = if is_only { SelectedBy::Only } else { SelectedBy::Model };
                (choose(plan, varying, &link), reason)
            }),
        };
        Schedule::new(choice.spec(plan, varying)).map(|_| Decision {
            choice,
            selected_by: reason,
            override_error: refused,
        })
    }

    /// The tree of a collective that the user's override, or else the user's table, executes by one. `None`, equal on
    /// all ranks: a schedule executes it. Neither the built-in table nor the model selects a tree: it is the fastest in
    /// depth only where releases go by multicast, which the user decides.
    ///
    /// ```
    /// # use unisono_core::collective::{CollectiveKind, CollectiveSpec, Order};
    /// # use unisono_core::ids::Rank;
    /// # let spec = CollectiveSpec {
    /// #     collective: CollectiveKind::Barrier, rank: Rank(0), size: 4, root: Rank(0), bytes: 0, grain: 1, order: Order::Any,
    /// #     in_place: false, reduction_id: 0,
    /// # };
    /// use unisono::environment::tuning::{Carrier, Override, Tuning};
    ///
    /// let mut tuning = Tuning::default();
    /// assert!(tuning.tree(&spec, false, Carrier::Udp).is_none());
    /// tuning.set(Override::new(CollectiveKind::Barrier, "combining-tree")?);
    /// assert!(tuning.tree(&spec, false, Carrier::Udp).is_some());
    /// # Ok::<(), unisono::environment::OverrideError>(())
    /// ```
    pub fn tree(&self, plan: &CollectiveSpec, varying: bool, carrier: Carrier) -> Option<(TreeShape, SelectedBy)> {
        let of = |wanted: Override| match wanted.wanted {
            Wanted::Schedule(_) | Wanted::Multicast | Wanted::Rdma(_) => None,
            Wanted::Tree(tree) => tree.shape(plan, varying).ok(),
        };
        let (wanted, reason) = self.wanted(plan, carrier)?;
        let shape = of(wanted)?;
        Some((TreeShape { is_multicast: shape.is_multicast && carrier == Carrier::Udp, ..shape }, reason))
    }

    /// What the user's override, or else the user's table, or else the means of the leaders want for a collective.
    fn wanted(&self, plan: &CollectiveSpec, carrier: Carrier) -> Option<(Override, SelectedBy)> {
        let by_option = self.get(plan.collective).map(|wanted| (wanted, SelectedBy::Override));
        let by_table = || {
            let found = self.selected_table()?.find(carrier, self.sharing(), plan);
            found.map(|wanted| (wanted, SelectedBy::Table))
        };
        let by_net = || match self.hierarchy.net {
            LeaderMeans::Auto | LeaderMeans::Messages => None,
            named => Some((Override::new(plan.collective, &named.to_string()).ok()?, SelectedBy::Override)),
        };
        by_option.or_else(by_table).or_else(by_net)
    }

    /// What selects multicast for a collective over datagrams: the user's override or table, or the model, if the speed of
    /// the hosts' links is known. `None`, equal on all ranks: a schedule executes it. So does it, too, where the
    /// communicator's group is not usable.
    ///
    /// ```
    /// # use unisono_core::collective::{CollectiveKind, CollectiveSpec, Order};
    /// # use unisono_core::ids::Rank;
    /// # let spec = CollectiveSpec {
    /// #     collective: CollectiveKind::Broadcast, rank: Rank(0), size: 4, root: Rank(0), bytes: 4096, grain: 1, order: Order::Any,
    /// #     in_place: false, reduction_id: 0,
    /// # };
    /// use unisono::environment::tuning::{Carrier, MulticastUse, SelectedBy, Tuning};
    ///
    /// let mut tuning = Tuning::default();
    /// let selected = |tuning: &Tuning| tuning.multicast(&spec, false, Carrier::Udp, None, MulticastUse::Automatic);
    /// assert_eq!(selected(&tuning), None);
    /// tuning.set_link_speed("1G".parse()?);
    /// assert_eq!(selected(&tuning), Some(SelectedBy::Model));
    /// # Ok::<(), unisono::environment::LinkSpeedError>(())
    /// ```
    pub fn multicast(
        &self,
        plan: &CollectiveSpec,
        varying: bool,
        carrier: Carrier,
        over: Option<&Subgroups>,
        allowed: MulticastUse,
    ) -> Option<SelectedBy> {
        let is_possible = carrier == Carrier::Udp && multicast::check(plan, varying).is_ok();
        if !is_possible || allowed == MulticastUse::Unavailable {
            return None;
        }
        match self.wanted(plan, carrier) {
            Some((wanted, reason)) => (wanted.wanted == Wanted::Multicast).then_some(reason),
            None if allowed == MulticastUse::OnRequest || self.hierarchy.net == LeaderMeans::Messages => None,
            None if built_in().find(carrier, self.sharing(), plan).is_some() => None,
            None => self.multicast_pays(plan, over).then_some(SelectedBy::Model),
        }
    }

    /// Whether multicast is faster than a schedule by the model. Members that are known to share processors acknowledge too
    /// slowly.
    fn multicast_pays(&self, plan: &CollectiveSpec, over: Option<&Subgroups>) -> bool {
        let members = over.map_or(plan.size, |over| over.hierarchy().leaders(plan).size);
        if plan.collective != CollectiveKind::Broadcast
            || self.link_speed.is_none()
            || self.sharing() > 1
            || members as usize > multicast::MEMBERS_MAX
        {
            return false;
        }
        let [intra, inter] = [Carrier::Rings, Carrier::Udp].map(|carrier| self.cost(carrier.into()));
        match over {
            Some(over) => over.hierarchy().multicast_pays(plan, LOWER_TREES, &intra, &inter),
            None => multicast_pays(plan, &inter),
        }
    }

    /// The number of steps that the adapter executes of a collective over datagrams that the user's override or table
    /// executes by remote writes. `None`, equal on all ranks: a schedule executes it.
    ///
    /// ```
    /// # use unisono_core::collective::{CollectiveKind, CollectiveSpec, Order};
    /// # use unisono_core::ids::Rank;
    /// # let spec = CollectiveSpec {
    /// #     collective: CollectiveKind::Alltoall, rank: Rank(0), size: 4, root: Rank(0), bytes: 4096, grain: 1, order: Order::Any,
    /// #     in_place: false, reduction_id: 0,
    /// # };
    /// use unisono::environment::tuning::{Carrier, Override, Tuning};
    ///
    /// let mut tuning = Tuning::default();
    /// assert!(tuning.rdma(&spec, false, Carrier::Udp).is_none());
    /// tuning.set(Override::new(CollectiveKind::Alltoall, "rdma")?);
    /// assert!(tuning.rdma(&spec, false, Carrier::Udp).is_some());
    /// # Ok::<(), unisono::environment::OverrideError>(())
    /// ```
    pub fn rdma(&self, plan: &CollectiveSpec, varying: bool, carrier: Carrier) -> Option<(u16, SelectedBy)> {
        let (wanted, reason) = self.wanted(plan, carrier)?;
        match wanted.wanted {
            Wanted::Rdma(rdma) if carrier == Carrier::Udp && rdma.check(plan, varying).is_ok() => {
                Some((rdma.native_steps, reason))
            }
            _ => None,
        }
    }

    /// The variables, without prefix, that give another process these settings.
    ///
    /// ```
    /// let mut tuning = unisono::environment::Tuning::default();
    /// tuning.set_sharing(2);
    /// assert!(tuning.variables().any(|variable| variable == ("SHARING", "2".to_owned())));
    /// ```
    pub fn variables(&self) -> impl Iterator<Item = (&'static str, String)> {
        let table = self.table.as_ref().map(|table| ("TUNING", table.path.to_string()));
        let sharing = self.sharing.map(|sharing| ("SHARING", sharing.to_string()));
        let speed = self.link_speed.map(|speed| ("LINK_SPEED", speed.to_string()));
        let said = COLLECTIVES.into_iter().filter_map(|(verb, _, name)| Some((name, self.get(verb)?.to_string())));
        let is_default = self.hierarchy == HierarchyChoice::default();
        let hierarchy = (!is_default).then(|| ("HIERARCHY", self.hierarchy.to_string()));
        said.chain(table).chain(sharing).chain(speed).chain(hierarchy).chain(self.option_variables())
    }
}

/// The built-in table: the calls for which the model's choice was measured to be slower by more than a tenth.
fn built_in() -> &'static TuningTable {
    static TABLE: OnceLock<TuningTable> = OnceLock::new();
    TABLE.get_or_init(|| {
        let table = TableFile::parse(BUILT_IN).ok().and_then(|file| file.table_for_any_job());
        table.map(|table| TuningTable::clone(&table)).unwrap_or_default()
    })
}

/// The collective that a variable tunes.
pub(super) fn collective_of(variable: &str) -> Option<CollectiveKind> {
    COLLECTIVES.iter().find(|(_, _, name)| *name == variable).map(|(verb, ..)| *verb)
}

#[cfg(test)]
mod tests;
