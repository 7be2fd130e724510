//! The options that choose the algorithm of each collective, such as `--allgather bruck:k=2`.

use crate::refusal::Refusal;
use clap::Args;
use unisono::environment::{HierarchyChoice, LinkSpeed, Override, OverrideError, Tuning};
use unisono_core::collective::CollectiveKind;

/// The algorithm of each collective over messages. ALGORITHM, or ALGORITHM:k=PORTS,radix=R,segments=S with some of
/// these options; the others are selected automatically. After host+, host:slots+ or host:messages+ it is the algorithm of
/// the hosts' leaders, and the ranks of a host exchange their parts by these means.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Algorithms of collectives between nodes")]
pub(crate) struct Overrides {
    /// One of dissemination, knomial, doubling, standard-exchange, token-tree or combining-tree [default: automatic]
    #[arg(long, value_name = ALGORITHM, value_parser = of(CollectiveKind::Barrier))]
    barrier: Option<Override>,
    /// One of knomial, bruck, ring or multicast [default: automatic]
    #[arg(long, value_name = ALGORITHM, value_parser = of(CollectiveKind::Broadcast))]
    broadcast: Option<Override>,
    /// One of knomial, halving or ring [default: automatic]
    #[arg(long, value_name = ALGORITHM, value_parser = of(CollectiveKind::Reduce))]
    reduce: Option<Override>,
    /// One of doubling, standard-exchange, knomial, halving or ring [default: automatic]
    #[arg(long, value_name = ALGORITHM, value_parser = of(CollectiveKind::Allreduce), aliases = ["all-reduce", "all_reduce"])]
    allreduce: Option<Override>,
    /// One of direct or knomial [default: automatic]
    #[arg(long, value_name = ALGORITHM, value_parser = of(CollectiveKind::Gather))]
    gather: Option<Override>,
    /// One of direct or knomial [default: automatic]
    #[arg(long, value_name = ALGORITHM, value_parser = of(CollectiveKind::Scatter))]
    scatter: Option<Override>,
    /// One of direct, doubling, standard-exchange, bruck or ring [default: automatic]
    #[arg(long, value_name = ALGORITHM, value_parser = of(CollectiveKind::Allgather), aliases = ["all-gather", "all_gather"])]
    allgather: Option<Override>,
    /// One of direct, pairwise, bruck, doubling, standard-exchange, rdma or hybrid [default: automatic]
    #[arg(long, value_name = ALGORITHM, value_parser = of(CollectiveKind::Alltoall), aliases = ["all-to-all", "all_to_all"])]
    alltoall: Option<Override>,
    /// One of knomial, halving or ring [default: automatic]
    #[arg(long, value_name = ALGORITHM, value_parser = of(CollectiveKind::ReduceScatter), aliases = ["reduce_scatter", "reducescatter"])]
    reduce_scatter: Option<Override>,
    /// One of dissemination or ring [default: automatic]
    #[arg(long, value_name = ALGORITHM, value_parser = of(CollectiveKind::Scan))]
    scan: Option<Override>,
    /// One of dissemination or ring [default: automatic]
    #[arg(long, value_name = ALGORITHM, value_parser = of(CollectiveKind::Exscan))]
    exscan: Option<Override>,
    /// File with a table of measurements, as `unisono tune` writes it; it selects where no option does [default:
    /// the built-in table]
    #[arg(long, value_name = "FILE")]
    tuning: Option<String>,
    /// The speed of the link that the ranks of a host share, such as 1G [default: that of the slowest host's interfaces,
    /// if the system knows it]
    #[arg(long, value_name = "BITS_PER_SECOND")]
    link_speed: Option<LinkSpeed>,
    /// Subgroups over which collectives are composed: off, auto, the ranks of each switch, host, socket, numa, cache, rail
    /// or group, up to five within each other, such as host or host,socket, or N,M,… (groups of N consecutive ranks, in
    /// inner groups of M). After each but off :slots, :messages or :auto, and last net:messages, net:token-tree,
    /// net:combining-tree, net:multicast or net:rdma, the means by which their members exchange their parts
    /// [default: auto]
    #[arg(long, value_name = "SPEC")]
    hierarchy: Option<HierarchyChoice>,
}

const ALGORITHM: &str = "[host+]ALGORITHM[:k=K,…]";

fn of(verb: CollectiveKind) -> impl Fn(&str) -> Result<Override, OverrideError> + Clone + Send + Sync + 'static {
    move |text| Override::new(verb, text)
}

impl Overrides {
    /// Applies the options over the environment's settings.
    pub(crate) fn apply_to(&self, tuning: &mut Tuning) -> Result<(), Refusal> {
        if let Some(path) = &self.tuning {
            tuning.load_table(path).map_err(|reason| Refusal::usage(format_args!("--tuning {path}: {reason}")))?;
        }
        if let Some(speed) = self.link_speed {
            tuning.set_link_speed(speed);
        }
        if let Some(choice) = self.hierarchy {
            tuning.set_hierarchy(choice);
        }
        let Self { barrier, broadcast, reduce, allreduce, gather, scatter, .. } = self.clone();
        let Self { allgather, alltoall, reduce_scatter, scan, exscan, .. } = self.clone();
        let rooted = [barrier, broadcast, reduce, allreduce, gather, scatter];
        rooted
            .into_iter()
            .chain([allgather, alltoall, reduce_scatter, scan, exscan])
            .flatten()
            .for_each(|wanted| tuning.set(wanted));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, Parser};
    use unisono::environment::tuning::COLLECTIVES;
    use unisono_core::schedule::algorithms;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        overrides: Overrides,
    }

    /// The options have the names of the environment, and their help lists all algorithms.
    #[test]
    fn every_verb_has_an_option_that_names_its_algorithms() {
        for (verb, option, _) in COLLECTIVES {
            for algorithm in algorithms(verb) {
                let words = ["run", &format!("--{option}"), &format!("{}:k=2", algorithm.name())];
                let mut tuning = Tuning::default();
                Line::try_parse_from(words).expect("good").overrides.apply_to(&mut tuning).expect("no table");
                assert_eq!(tuning.get(verb).map(|wanted| wanted.to_string()).as_deref(), Some(words[2]));
                let command = Line::command();
                let argument = command.get_arguments().find(|argument| argument.get_long() == Some(option));
                let help = argument.and_then(|argument| argument.get_help()).expect("a help").to_string();
                assert!(help.contains(algorithm.name()), "{option}: {help}");
            }
        }
    }
}
