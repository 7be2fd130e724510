//! `unisono run`: merges the command-line options with the environment's settings and launches the job.

use crate::refusal::Refusal;
use crate::tuning::Overrides;
use crate::units::Units;
use clap::Args;
use std::{ffi::OsString, path::PathBuf, process::ExitCode, thread::available_parallelism};
use unisono::environment::{
    AcksChoice, AttachThreshold, DeviceChoice, EagerPool, GroupsChoice, HostList, Integrity, JoinTimeout, KillTimeout,
    Location, Mtu, MulticastChoice, OnDeath, Progress, QueuesChoice, RC_LIMIT_MAX, RailsChoice, RailsMax, Settings,
    SilenceTimeout, StuckTimeout, Switch, UnreachableTimeout, WatchdogTimeout,
};
use unisono_launcher::{
    BareMetalRanks, Job, JobPlacement,
    proxy::{self, ProxyError},
    run as launch,
};
use unisono_udp::fault_injection::{Cut, Probability};

/// Options of `unisono run`. Every option can also be set by a variable of its name: UNISONO_RANKS (-n), UNISONO_NODES,
/// UNISONO_DEVICE, …
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Number of ranks [default with --hosts: as many as the hosts take]
    #[arg(short = 'n', value_name = "N")]
    ranks: Option<u32>,
    /// Run on this host, divided into M nodes of consecutive ranks: ranks of different nodes share no memory
    /// [default: 1]
    #[arg(long, value_name = "M", conflicts_with = "hosts", help_heading = "Placement")]
    nodes: Option<u32>,
    /// Run on these hosts, through a remote shell; the number is that of ranks per host, which are filled in order
    /// [default: this host]
    #[arg(long, value_name = "A:4,B:4", help_heading = "Placement")]
    hosts: Option<HostList>,
    #[command(flatten)]
    units: Units,
    /// Remote shell that starts the ranks of other hosts, with its arguments [default: ssh -T -x]
    #[arg(long, value_name = "COMMAND", help_heading = "Placement")]
    rsh: Option<String>,
    /// Device that transports messages: auto (shared memory within a node, UDP between nodes), shm, udp or verbs (RDMA)
    /// [default: auto]
    #[arg(long, help_heading = "Transport")]
    device: Option<DeviceChoice>,
    /// What makes progress while the program computes: engine (only its calls), thread (one that wakes up periodically)
    /// or hybrid (one that probes of peers and immediate collectives wake up) [default: engine]
    #[arg(long, help_heading = "Transport")]
    progress: Option<Progress>,
    /// Pin each rank to processors of its own [default: off]
    #[arg(long, help_heading = "Placement")]
    pin: bool,
    /// Largest datagram in bytes, 576 to 65507 [default: the MTU of the link]
    #[arg(long, value_name = "BYTES", help_heading = "Transport")]
    mtu: Option<Mtu>,
    /// UDP segmentation offload (GSO, GRO) by the kernel: on or off [default: on if the kernel supports it]
    #[arg(long, value_name = "SWITCH", help_heading = "Transport")]
    gso: Option<Switch>,
    /// Rails, 1 to 4. Of the device udp a number of sockets at one address, or an interface, address or network for each,
    /// such as eth1,eth2 or 10.1.0.0/16,10.2.0.0/16; of the device verbs a number of adapters, or their names, perhaps
    /// with ports, such as mlx5_0:1,mlx5_1:1 [default: 1]
    #[arg(long, value_name = "RAILS", help_heading = "Transport")]
    rails: Option<RailsChoice>,
    /// Rails of the device udp that there is room for, including those that ranks add later, 1 to 4 [default: those of
    /// --rails]
    #[arg(long, value_name = "NUMBER", help_heading = "Transport")]
    rails_max: Option<RailsMax>,
    /// What finds corrupted datagrams of the device udp: crc32c (a checksum in each) or link (its own checks, if any)
    /// [default: link if all ranks use the loopback, else crc32c]
    #[arg(long, value_name = "WHAT", help_heading = "Transport")]
    integrity: Option<Integrity>,
    /// How work queues of RDMA adapters are written: library (through libibverbs), raw (directly) or auto [default:
    /// auto]
    #[arg(long, value_name = "WHO", help_heading = "Transport")]
    queues: Option<QueuesChoice>,
    /// Reliable connections of each rank at a time, over which RDMA adapters access windows of other ranks and read
    /// payloads; 0: none [default: 64]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u16).range(..=i64::from(RC_LIMIT_MAX)), help_heading = "Transport")]
    rc_limit: Option<u16>,
    /// Memory of each rank for unexpected eager messages, such as 64K [default: 1M]
    #[arg(long, value_name = "BYTES", help_heading = "Transport")]
    eager_pool: Option<EagerPool>,
    /// Groups of broadcasts by multicast: off, auto, or the first group's address, ADDRESS[:PORT][%INTERFACE], such as
    /// 239.255.7.0:4711%eth1 [default: auto]
    #[arg(long, value_name = "GROUPS", help_heading = "Transport")]
    multicast: Option<MulticastChoice>,
    /// When multicast groups are made: basic (at the first broadcast of a root, which waits for its group), lazy (the
    /// same, without waiting) or pool[:N] (N groups ahead, of which communicators take one; pool: 2) [default: lazy]
    #[arg(long, value_name = "POLICY", help_heading = "Transport")]
    groups: Option<GroupsChoice>,
    /// Who acknowledges broadcasts by multicast to whom: basic (all to the root), tree:DEGREE or co-root:COUNT
    /// [default: basic]
    #[arg(long, value_name = "MODE", help_heading = "Transport")]
    multicast_acks: Option<AcksChoice>,
    /// Mean wait for its node's leader in broadcasts by multicast from which on a rank joins the group itself, such as
    /// 2ms [default: never]
    #[arg(long, value_name = "TIME", help_heading = "Transport")]
    attach: Option<AttachThreshold>,
    /// Inject faults: probability that a datagram is lost, such as 5% or 0.05 [default: 0]
    #[arg(long, value_name = "P", help_heading = "Fault injection (device udp)")]
    loss: Option<Probability>,
    /// Inject faults: probability that a datagram is delayed until after 1 to 8 later ones [default: 0]
    #[arg(long, value_name = "P", help_heading = "Fault injection (device udp)")]
    reorder: Option<Probability>,
    /// Inject faults: probability that a datagram is sent twice [default: 0]
    #[arg(long, value_name = "P", help_heading = "Fault injection (device udp)")]
    dup: Option<Probability>,
    /// Inject faults: probability that a datagram is corrupted [default: 0]
    #[arg(long, value_name = "P", help_heading = "Fault injection (device udp)")]
    corrupt: Option<Probability>,
    /// Inject faults: cut a rail, or all multicast groups, this many milliseconds after the start, for ever or for this
    /// long, such as 1@300, 1@300+500 or groups@300 [default: never]
    #[arg(long, value_name = "RAIL|groups@MS+MS", help_heading = "Fault injection (device udp)")]
    cut: Option<Cut>,
    /// Inject faults: seed of the random numbers; equal seeds give equal faults [default: 0]
    #[arg(long, value_name = "NUMBER", help_heading = "Fault injection (device udp)")]
    seed: Option<u64>,
    /// When a rank fails: end the job (end), report the failure to the other ranks (tell), or let them detect it
    /// (silent) [default: end]
    #[arg(long, value_name = "POLICY", help_heading = "Failures")]
    on_death: Option<OnDeath>,
    /// Consider a peer failed after this time without an answer, 1ms to 120s [default: only if its process has ended]
    #[arg(long, value_name = "TIME", help_heading = "Failures")]
    silence: Option<SilenceTimeout>,
    /// Time between SIGTERM and SIGKILL when ranks are ended [default: 2s]
    #[arg(long, value_name = "TIME", help_heading = "Failures")]
    grace: Option<KillTimeout>,
    /// Time limit for all ranks to join, from the first one on [default: 60s]
    #[arg(long, value_name = "TIME", help_heading = "Failures")]
    assembly: Option<JoinTimeout>,
    /// Prefix every line of output with [rank] [default: off]
    #[arg(long, help_heading = "Output")]
    tag_output: bool,
    /// Report the missing ranks after waiting this long in a collective [default: never]
    #[arg(long, value_name = "TIME", help_heading = "Failures")]
    watchdog: Option<WatchdogTimeout>,
    /// Report ranks that wait for each other, and can never continue, after this time without progress [default: 10s]
    #[arg(long, value_name = "TIME", help_heading = "Failures")]
    stuck: Option<StuckTimeout>,
    /// Consider a peer failed from which no datagram has arrived for this time although it makes progress [default:
    /// 30s]
    #[arg(long, value_name = "TIME", help_heading = "Failures")]
    unreachable: Option<UnreachableTimeout>,
    /// Report a message that is received as another type than was sent: every rank states types, and compares them
    /// [default: off]
    #[arg(long, help_heading = "Failures")]
    check: bool,
    /// Print what each rank did, at its end [default: off]
    #[arg(long, help_heading = "Output")]
    stats: bool,
    /// Write that to a file, as a JSON object for each rank [default: none]
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    stats_file: Option<PathBuf>,
    /// Run a bare-metal image as the last K ranks, in an emulator on this host; the program's arguments are passed to
    /// the image, too [default: 0]
    #[arg(long, value_name = "K", help_heading = "Ranks without an operating system")]
    bare_metal: Option<u32>,
    /// Image of the bare-metal ranks [default: unisono-x86 beside this program]
    #[arg(long, value_name = "FILE", help_heading = "Ranks without an operating system")]
    image: Option<PathBuf>,
    /// Emulator of the bare-metal ranks, with its arguments [default: qemu-system-x86_64]
    #[arg(long, value_name = "COMMAND", help_heading = "Ranks without an operating system")]
    emulator: Option<String>,
    /// The program was compiled for the standard ABI of MPI: load libmpi_abi.so, which lies beside this program
    /// [default: off]
    #[arg(long)]
    mpi: bool,
    /// Program to run as every rank, and its arguments; `--` may precede it
    #[arg(trailing_var_arg = true, required = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
    #[command(flatten)]
    overrides: Overrides,
}

/// Runs the job to its end.
pub(crate) fn run(options: Options) -> Result<ExitCode, Refusal> {
    let settings = Settings::from_environment().map_err(Refusal::usage)?;
    let job = job(options, settings)?;
    if let Some(path) = &job.settings.stats_file {
        // The ranks append to it.
        let created = std::fs::File::create(path);
        created.map_err(|error| Refusal::usage(format_args!("--stats-file {}: {error}", path.display())))?;
    }
    Ok(ExitCode::from(launch(&job)?))
}

fn job(options: Options, mut settings: Settings) -> Result<Job, Refusal> {
    let Options { ranks, nodes, hosts, rsh, device, progress, pin, mtu, gso, queues, rc_limit, eager_pool, .. } =
        options;
    let Options { loss, reorder, dup, corrupt, seed, on_death, silence, watchdog, grace, assembly, tag_output, .. } =
        options;
    let Options { bare_metal, image, emulator, stuck, unreachable, multicast, check, stats, stats_file, .. } = options;
    let Options { rails, rails_max, integrity, cut, groups, multicast_acks, attach, .. } = options;
    if settings.position.take().is_some() {
        // A rank that runs `unisono run` launches a new job.
        let Settings { transport, mut tuning, launcher: launching, .. } = settings;
        tuning.clear_sharing();
        settings = Settings { transport, tuning, launcher: launching, ..Settings::default() };
    }
    if settings.bootstrap.is_some() {
        return Err(Refusal::usage(
            "UNISONO_BOOTSTRAP is for ranks only: unset it, since the launcher chooses its address itself",
        ));
    }
    if settings.locality.location != Location::default() {
        return Err(Refusal::usage(
            "UNISONO_LOCATION is for ranks only: use --switches, --sockets and --caches, or set it in the command",
        ));
    }
    let launching = &mut settings.launcher;
    // The placement comes from the options or from the environment, not from both.
    let (nodes, hosts) = if nodes.is_some() || hosts.is_some() {
        (nodes, hosts)
    } else {
        (launching.nodes.take(), launching.hosts.take())
    };
    let (ranks, mpi) = (ranks.or(launching.ranks.take()), launching.mpi.take());
    let uses_mpi = options.mpi || mpi.is_some_and(Switch::is_on);
    let layout = match (&hosts, ranks) {
        (Some(hosts), ranks) => JobPlacement::on_hosts(hosts, ranks)?,
        (None, Some(ranks)) => JobPlacement::on_this_host(ranks, nodes.unwrap_or(1))?,
        (None, None) => return Err(Refusal::usage("-n or --hosts is required")),
    };
    let layout = layout.divided(options.units.or(core::mem::take(&mut launching.units)));
    let transport = &mut settings.transport;
    override_setting(&mut transport.device, device);
    override_setting(&mut transport.progress, progress);
    override_setting(&mut transport.on_death, on_death);
    override_setting(&mut transport.multicast, multicast);
    override_setting(&mut transport.groups, groups);
    override_setting(&mut transport.multicast_acks, multicast_acks);
    transport.attach = attach.or(transport.attach);
    override_setting(&mut transport.faults.loss, loss);
    override_setting(&mut transport.faults.reorder, reorder);
    override_setting(&mut transport.faults.duplicate, dup);
    override_setting(&mut transport.faults.corrupt, corrupt);
    override_setting(&mut transport.faults.seed, seed);
    override_setting(&mut transport.rails, rails);
    transport.rails_max = rails_max.or(transport.rails_max);
    transport.faults.cut = cut.or(transport.faults.cut);
    transport.integrity = integrity.or(transport.integrity);
    transport.mtu = mtu.or(transport.mtu);
    transport.gso = gso.or(transport.gso);
    transport.queues = queues.or(transport.queues);
    transport.rc_limit = rc_limit.or(transport.rc_limit);
    transport.eager_pool = eager_pool.or(transport.eager_pool);
    transport.silence = silence.or(transport.silence);
    transport.watchdog = watchdog.or(transport.watchdog);
    transport.stuck = stuck.or(transport.stuck);
    transport.unreachable = unreachable.or(transport.unreachable);
    if check {
        transport.check = Some(Switch::On);
    }
    if transport.queues == Some(QueuesChoice::Raw) && transport.device != DeviceChoice::Verbs {
        return Err(Refusal::usage("--queues raw needs --device verbs"));
    }
    options.overrides.apply_to(&mut settings.tuning)?;
    if layout.hosts().iter().all(Option::is_none) {
        settings.tuning.set_default_sharing(layout.size(), available_parallelism().map_or(1, usize::from));
    }
    settings.join_timeout = assembly.or(settings.join_timeout);
    settings.stats_file = stats_file.or(settings.stats_file.take());
    if stats {
        settings.stats = Some(Switch::On);
    }
    let launching = &mut settings.launcher;
    launching.rsh = rsh.or(launching.rsh.take());
    launching.kill_timeout = grace.or(launching.kill_timeout);
    if pin {
        launching.pin = Some(Switch::On);
    }
    if tag_output {
        launching.tag_output = Some(Switch::On);
    }
    let (given_image, given_emulator) = (launching.image.take(), launching.emulator.take());
    let bare_metal = bare_metal.or(launching.bare_metal.take());
    if bare_metal.is_none() && (image.is_some() || emulator.is_some()) {
        return Err(Refusal::usage("--image and --emulator need --bare-metal"));
    }
    let bare_metal =
        bare_metal.map(|ranks| bare_metal_ranks(ranks, image.or(given_image), emulator.or(given_emulator)));
    if let Some(BareMetalRanks { ranks, .. }) = &bare_metal {
        let transport = &mut settings.transport;
        if *ranks == 0 || *ranks >= layout.size() || layout.nodes() > 1 || hosts.is_some() {
            return Err(Refusal::usage(
                "--bare-metal needs a job on one node of this host, and a number of ranks from 1 to one less than all",
            ));
        }
        if !matches!(transport.device, DeviceChoice::Auto | DeviceChoice::Shm) {
            return Err(Refusal::usage("--bare-metal needs shared memory: --device auto or shm"));
        }
        if transport.checks_types() {
            return Err(Refusal::usage("--check does not apply to bare-metal ranks"));
        }
        transport.device = DeviceChoice::Shm;
    }
    let command = if uses_mpi { with_mpi_library(options.command)? } else { options.command };
    let mut command = command.into_iter();
    let program = command.next().ok_or_else(|| Refusal::usage("a program is required"))?;
    Ok(Job { program, arguments: command.collect(), placement: layout, settings, bare_metal })
}

/// The command, started by `env` with the MPI library of unisono. It is preloaded, too: a path that the program names
/// itself would win over the variable.
fn with_mpi_library(command: Vec<OsString>) -> Result<Vec<OsString>, Refusal> {
    let beside = std::env::current_exe().unwrap_or_default();
    let folders = [beside.parent().map(PathBuf::from), beside.ancestors().nth(2).map(|prefix| prefix.join("lib"))];
    let library = folders.into_iter().flatten().map(|folder| folder.join("libmpi_abi.so")).find(|file| file.exists());
    let library =
        library.ok_or_else(|| Refusal::usage("--mpi needs libmpi_abi.so beside this program: build unisono-mpi"))?;
    let assignment = |name: &str, value: &std::path::Path| {
        let mut text = OsString::from(name);
        text.push("=");
        text.push(value);
        if let Some(former) = std::env::var_os(name).filter(|former| !former.is_empty()) {
            text.push(":");
            text.push(former);
        }
        text
    };
    let folder = library.parent().unwrap_or(&library);
    let by = [OsString::from("env"), assignment("LD_PRELOAD", &library), assignment("LD_LIBRARY_PATH", folder)];
    Ok(by.into_iter().chain(command).collect())
}

fn bare_metal_ranks(ranks: u32, image: Option<PathBuf>, emulator: Option<String>) -> BareMetalRanks {
    let beside = || std::env::current_exe().unwrap_or_default().with_file_name("unisono-x86");
    BareMetalRanks {
        ranks,
        image: image.unwrap_or_else(beside),
        emulator: emulator.unwrap_or_else(|| "qemu-system-x86_64".to_owned()),
    }
}

/// Options of `unisono stand-in`, the proxy of a bare-metal rank, which the launcher starts.
#[derive(Args, Debug)]
pub(crate) struct StandIn {
    #[arg(long)]
    image: PathBuf,
    #[arg(long)]
    emulator: String,
    #[arg(last = true)]
    words: Vec<OsString>,
}

/// Runs a bare-metal image and represents it in the job, to its end.
pub(crate) fn run_proxy(options: &StandIn) -> Result<(), ProxyError> {
    let StandIn { image, emulator, words } = options;
    proxy::run_proxy(&BareMetalRanks { ranks: 1, image: image.clone(), emulator: emulator.clone() }, words)
}

fn override_setting<T>(setting: &mut T, option: Option<T>) {
    if let Some(option) = option {
        *setting = option;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::with_negative_numbers;
    use clap::{CommandFactory, FromArgMatches, Parser};
    use unisono::environment::UnitCounts;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn parse(line: &str, settings: &[(&str, &str)]) -> Result<Job, String> {
        let words = core::iter::once("run").chain(line.split(' '));
        let matches = with_negative_numbers(Line::command()).try_get_matches_from(words);
        let options = matches.and_then(|matches| Line::from_arg_matches(&matches)).map_err(|error| error.to_string());
        let options = options?.options;
        let variables = settings.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let settings = Settings::from_variables(variables).map_err(|error| error.to_string())?;
        job(options, settings).map_err(|refusal| refusal.reason)
    }

    #[test]
    fn the_whole_grammar_is_understood() {
        let line = "-n 4 --device udp --nodes 2 --progress hybrid --pin --mtu 1500 --gso off --loss 5% --reorder 5% \
                    --dup 2% --corrupt 1% --seed 7 --on-death tell --silence 3s --watchdog 5s --tag-output --allgather bruck:k=2 \
                    -- prog --flag -n";
        let job = parse(&line.split_whitespace().collect::<Vec<_>>().join(" "), &[]).expect("good");
        assert_eq!((job.placement.size(), job.placement.ranks()[3].node), (4, 1));
        assert_eq!((job.program, job.arguments), ("prog".into(), vec!["--flag".into(), "-n".into()]));
        let transport = job.settings.transport;
        assert_eq!((transport.device, transport.progress), (DeviceChoice::Udp, Progress::Hybrid));
        assert_eq!((transport.mtu.map(Mtu::bytes), transport.gso), (Some(1500), Some(Switch::Off)));
        let raw = |device| parse(&format!("-n 2 --device {device} --queues raw -- prog"), &[]);
        assert_eq!(raw("verbs").map(|job| job.settings.transport.queues), Ok(Some(QueuesChoice::Raw)));
        let of = |queues: &str| parse(&format!("-n 2 --device verbs{queues} -- prog"), &[]);
        assert_eq!(of("").map(|job| job.settings.transport.queues.unwrap_or_default()), Ok(QueuesChoice::Auto));
        assert_eq!(of(" --queues library").map(|job| job.settings.transport.queues), Ok(Some(QueuesChoice::Library)));
        assert_eq!(raw("udp").err().as_deref(), Some("--queues raw needs --device verbs"));
        assert_eq!((transport.faults.loss.value(), transport.faults.seed), (0.05, 7));
        assert_eq!(transport.on_death, OnDeath::Tell);
        assert_eq!(transport.watchdog.map(|time| time.duration().as_secs()), Some(5));
        assert_eq!(job.settings.launcher.pin, Some(Switch::On));
        let tuning: Vec<_> = job.settings.tuning.variables().filter(|(name, _)| *name != "SHARING").collect();
        assert_eq!(tuning, [("ALLGATHER", "bruck:k=2".to_owned())]);
    }

    #[test]
    fn the_program_needs_no_separator() {
        for line in
            ["-n 2 --device udp prog --device shm -n 3 -- x", "-n 2 --device udp -- prog --device shm -n 3 -- x"]
        {
            let job = parse(line, &[]).expect("good");
            let arguments = ["--device", "shm", "-n", "3", "--", "x"].map(OsString::from);
            assert_eq!((job.program, job.arguments), ("prog".into(), arguments.to_vec()), "{line}");
            assert_eq!((job.placement.size(), job.settings.transport.device), (2, DeviceChoice::Udp), "{line}");
        }
    }

    #[test]
    fn options_override_the_environment() {
        let settings = [("UNISONO_DEVICE", "udp"), ("UNISONO_MTU", "1000"), ("UNISONO_SEED", "3")];
        let job = parse("-n 1 --mtu 2000 -- prog", &settings).expect("good");
        let transport = job.settings.transport;
        assert_eq!(transport.device, DeviceChoice::Udp);
        assert_eq!((transport.mtu.map(Mtu::bytes), transport.faults.seed), (Some(2000), 3));
        let settings = [("UNISONO_SCAN", "ring"), ("UNISONO_BARRIER", "knomial"), ("UNISONO_SHARING", "7")];
        let tuning = parse("-n 1 --scan dissemination -- prog", &settings).expect("good").settings.tuning;
        let kept: Vec<_> = tuning.variables().collect();
        let text = str::to_owned;
        assert_eq!(kept, [("BARRIER", text("knomial")), ("SCAN", text("dissemination")), ("SHARING", text("7"))]);
    }

    #[test]
    fn environment_sets_the_placement() {
        let located = parse("-n 2 -- prog", &[("UNISONO_LOCATION", "group=1")]);
        assert!(located.is_err_and(|reason| reason.starts_with("UNISONO_LOCATION is for ranks only")));
        let parse = |line: &str, settings: &[_]| parse(line, settings).expect("good");
        let nodes = [("UNISONO_NODES", "2")];
        assert_eq!(parse("-n 4 -- prog", &nodes).placement.nodes(), 2);
        assert_eq!(parse("-n 4 --nodes 4 -- prog", &nodes).placement.nodes(), 4);
        assert_eq!(parse("--hosts localhost:3 -- prog", &nodes).placement.size(), 3);
        let ranks = [("UNISONO_RANKS", "6")];
        assert_eq!(["prog", "-n 2 prog"].map(|line| parse(line, &ranks).placement.size()), [6, 2]);
        assert_eq!(parse("-n 2 prog", &ranks).settings.launcher.ranks, None, "a job within the job has its own number");
        let hosts = [("UNISONO_HOSTS", "localhost:3,other:2")];
        assert_eq!((parse("-- prog", &hosts).placement.size(), parse("-n 4 -- prog", &hosts).placement.size()), (5, 4));
        let units = [("UNISONO_SOCKETS", "2"), ("UNISONO_CACHES", "2")];
        let job = parse("-n 8 --nodes 2 --caches 1 --switches 2 -- prog", &units);
        let last = job.placement.ranks().last().map(|placed| placed.location.to_string());
        assert_eq!(last.as_deref(), Some("switch=1,socket=1,cache=1"));
        assert_eq!(job.settings.launcher.units, UnitCounts::default(), "ranks get their places");
        let images = [("UNISONO_BARE_METAL", "1"), ("UNISONO_IMAGE", "one"), ("UNISONO_EMULATOR", "qemu")];
        let job = parse("-n 2 --image other -- prog", &images).bare_metal.expect("bare metal");
        assert_eq!((job.ranks, job.image, job.emulator), (1, PathBuf::from("other"), "qemu".to_owned()));
        assert_eq!(parse("-n 2 -- prog", &images[1..]).bare_metal, None);
    }

    #[test]
    fn ranks_that_are_all_here_share_its_processors() {
        let sharing = |line: &str| parse(line, &[]).expect("good").settings.tuning.sharing();
        assert!(sharing("--hosts localhost:60000 -- prog") > 1);
        assert_eq!(sharing("--hosts localhost:60000 -- prog"), sharing("-n 60000 --device udp -- prog"));
        assert_eq!(sharing("--hosts localhost:60000,other:1 -- prog"), 1, "the processors of another host are unknown");
    }

    #[test]
    fn a_job_within_a_job_is_its_own() {
        let rank = [
            ("UNISONO_RANK", "0"),
            ("UNISONO_SIZE", "2"),
            ("UNISONO_BOOTSTRAP", "h:1"),
            ("UNISONO_SECRET", "0123456789abcdef"),
            ("UNISONO_JOB", "outer"),
            ("UNISONO_SHARING", "65535"),
        ];
        let settings = parse("-n 1 -- prog", &rank).expect("good").settings;
        assert_eq!(settings.tuning.sharing(), 1);
        assert!(settings.secret.is_none() && settings.bootstrap.is_none() && settings.job.as_str().is_empty());
        assert!(parse("-n 1 -- prog", &rank[2..]).is_err_and(|reason| reason.contains("UNISONO_BOOTSTRAP")));
    }

    #[test]
    fn invalid_command_lines_are_explained() {
        for (line, expected) in [
            ("-- prog", "-n or --hosts is required"),
            ("-n 2", "<PROGRAM>"),
            ("-n 0 -- prog", "a job must have 1 to"),
            ("-n -1 -- prog", "invalid value '-1' for '-n <N>'"),
            ("-n 2 --nodes -1 -- prog", "invalid value '-1' for '--nodes <M>'"),
            ("-n 2 --mtu -1 -- prog", "invalid value '-1' for '--mtu <BYTES>'"),
            ("-n 2 --nodes 3 -- prog", "2 ranks can be on 1 to 2 nodes"),
            ("-n 9 --hosts a:4 -- prog", "the hosts take 4 ranks in all, not 9"),
            ("-n 2 --device tcp -- prog", "expected one of auto, shm, udp, verbs"),
            ("-n 2 --loss 200% -- prog", "probability"),
            ("-n 2 --silence 121s -- prog", "a duration from 1ms to 120s"),
            ("-n 2 --mtu 70000 -- prog", "from 576 to 65507"),
            ("-n 2 --on-death never -- prog", "expected one of end, tell, silent"),
            ("-n 2 --alltoall ring -- prog", "expected one of direct, pairwise, bruck, doubling, standard-exchange"),
            ("-n 2 --gather knomial:radix=1 -- prog", "radix= must be a number from 2 to 17"),
            ("-n 2 --watchdog 2h -- prog", "a duration from 1ms to 3600s"),
            ("-n 2 --bare-metal 2 -- prog", "from 1 to one less than all"),
            ("-n 2 --bare-metal 0 -- prog", "from 1 to one less than all"),
            ("-n 4 --bare-metal 1 --nodes 2 -- prog", "a job on one node of this host"),
            ("-n 2 --bare-metal 1 --device udp -- prog", "needs shared memory"),
            ("-n 2 --image x -- prog", "--bare-metal"),
            ("--hosts localhost:2 --bare-metal 1 -- prog", "a job on one node of this host"),
            ("-n 2 --nodes 1 --hosts a -- prog", "cannot be used with"),
        ] {
            match parse(line, &[]) {
                Err(reason) => assert!(reason.contains(expected) && !reason.contains("tip:"), "{line}: {reason}"),
                Ok(_) => panic!("{line} is accepted"),
            }
        }
    }
}
