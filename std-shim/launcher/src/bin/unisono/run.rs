//! `unisono run`: options over the environment's settings.

use crate::refusal::Refusal;
use crate::tuning::Overrides;
use clap::Args;
use std::{ffi::OsString, path::PathBuf, process::ExitCode, thread::available_parallelism};
use unisono::environment::{
    Assembly, DeviceChoice, EagerPool, Grace, HostList, Mtu, OnDeath, Progress, QueuesChoice, Settings, Silence,
    Switch, Watchdog,
};
use unisono_launcher::{
    BareMetal, Job, Layout,
    bare_metal::{self, StandInError},
    run as launch,
};
use unisono_udp::fault::Probability;

/// Options of `unisono run`. Each but -n has a variable of the same name: UNISONO_NODES, UNISONO_DEVICE, UNISONO_MTU, …
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Number of ranks; with --hosts, all their places unless said otherwise
    #[arg(short = 'n', value_name = "N")]
    ranks: Option<u32>,
    /// Run on this host, as if it were so many nodes
    #[arg(long, value_name = "M", conflicts_with = "hosts")]
    nodes: Option<u32>,
    /// Run on these hosts, reached by a remote shell; each takes so many ranks
    #[arg(long, value_name = "A:4,B:4")]
    hosts: Option<HostList>,
    /// The remote shell, with its arguments [default: ssh -T -x]
    #[arg(long, value_name = "COMMAND")]
    rsh: Option<String>,
    /// How datagrams move: auto, shm, udp or verbs
    #[arg(long)]
    device: Option<DeviceChoice>,
    /// Who makes progress while the program computes: engine, thread or hybrid
    #[arg(long)]
    progress: Option<Progress>,
    /// Give each rank processors of its own
    #[arg(long)]
    pin: bool,
    /// Bytes of the largest datagram
    #[arg(long, value_name = "BYTES")]
    mtu: Option<Mtu>,
    /// Whether the kernel segments datagrams: on or off
    #[arg(long, value_name = "SWITCH")]
    gso: Option<Switch>,
    /// Who writes the work queues of RDMA adapters: auto, library or raw [default: auto]
    #[arg(long, value_name = "WHO")]
    queues: Option<QueuesChoice>,
    /// Memory of each rank for messages that came before their receives, such as 64K [default: 1M]
    #[arg(long, value_name = "BYTES")]
    eager_pool: Option<EagerPool>,
    /// Inject: probability that a datagram is lost, such as 5%
    #[arg(long, value_name = "P")]
    loss: Option<Probability>,
    /// Inject: probability that 1 to 8 later datagrams overtake one
    #[arg(long, value_name = "P")]
    reorder: Option<Probability>,
    /// Inject: probability that a datagram arrives twice
    #[arg(long, value_name = "P")]
    dup: Option<Probability>,
    /// Inject: probability that a datagram is changed
    #[arg(long, value_name = "P")]
    corrupt: Option<Probability>,
    /// Inject: equal seeds give equal faults
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// When a rank dies: end the others, tell them, or stay silent
    #[arg(long, value_name = "POLICY")]
    on_death: Option<OnDeath>,
    /// Silence that proves death, up to 120s
    #[arg(long, value_name = "TIME")]
    silence: Option<Silence>,
    /// Time between SIGTERM and SIGKILL [default: 2s]
    #[arg(long, value_name = "TIME")]
    grace: Option<Grace>,
    /// Time that the ranks have to come together [default: 60s]
    #[arg(long, value_name = "TIME")]
    assembly: Option<Assembly>,
    /// Begin every line of output with [rank]
    #[arg(long)]
    tag_output: bool,
    /// Waiting in one collective after which it is said who is missing
    #[arg(long, value_name = "TIME")]
    watchdog: Option<Watchdog>,
    /// The last K ranks run an image without an operating system, in an emulator on this host; its command line gets the
    /// program's arguments
    #[arg(long, value_name = "K")]
    bare_metal: Option<u32>,
    /// That image [default: unisono-x86 beside this program]
    #[arg(long, value_name = "FILE")]
    image: Option<PathBuf>,
    /// The emulator, with its arguments [default: qemu-system-x86_64]
    #[arg(long, value_name = "COMMAND")]
    emulator: Option<String>,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
    #[command(flatten)]
    overrides: Overrides,
}

/// Runs the job to its end.
pub(crate) fn run(options: Options) -> Result<ExitCode, Refusal> {
    let settings = Settings::from_environment().map_err(Refusal::usage)?;
    let job = job(options, settings)?;
    Ok(ExitCode::from(launch(&job)?))
}

fn job(options: Options, mut settings: Settings) -> Result<Job, Refusal> {
    let Options { ranks, nodes, hosts, rsh, device, progress, pin, mtu, gso, queues, eager_pool, .. } = options;
    let Options { loss, reorder, dup, corrupt, seed, on_death, silence, watchdog, grace, assembly, tag_output, .. } =
        options;
    let Options { bare_metal, image, emulator, .. } = options;
    if settings.seat.take().is_some() {
        // A rank launches a job of its own.
        let Settings { transport, mut tuning, launching, .. } = settings;
        tuning.forget_sharing();
        settings = Settings { transport, tuning, launching, ..Settings::default() };
    }
    if settings.bootstrap.is_some() {
        return Err(Refusal::usage("UNISONO_BOOTSTRAP is for ranks: the launcher chooses where it listens"));
    }
    let launching = &mut settings.launching;
    // Where the ranks run is said here or there, not half here.
    let (nodes, hosts) = if nodes.is_some() || hosts.is_some() {
        (nodes, hosts)
    } else {
        (launching.nodes.take(), launching.hosts.take())
    };
    let layout = match (&hosts, ranks) {
        (Some(hosts), ranks) => Layout::over(hosts, ranks)?,
        (None, Some(ranks)) => Layout::here(ranks, nodes.unwrap_or(1))?,
        (None, None) => return Err(Refusal::usage("-n or --hosts is needed")),
    };
    let transport = &mut settings.transport;
    lay_over(&mut transport.device, device);
    lay_over(&mut transport.progress, progress);
    lay_over(&mut transport.on_death, on_death);
    lay_over(&mut transport.faults.loss, loss);
    lay_over(&mut transport.faults.reorder, reorder);
    lay_over(&mut transport.faults.duplicate, dup);
    lay_over(&mut transport.faults.corrupt, corrupt);
    lay_over(&mut transport.faults.seed, seed);
    transport.mtu = mtu.or(transport.mtu);
    transport.gso = gso.or(transport.gso);
    transport.queues = queues.or(transport.queues);
    transport.eager_pool = eager_pool.or(transport.eager_pool);
    transport.silence = silence.or(transport.silence);
    transport.watchdog = watchdog.or(transport.watchdog);
    if transport.queues == Some(QueuesChoice::Raw) && transport.device != DeviceChoice::Verbs {
        return Err(Refusal::usage("--queues raw: only --device verbs has work queues"));
    }
    options.overrides.lay_over(&mut settings.tuning)?;
    if layout.hosts().iter().all(Option::is_none) {
        settings.tuning.share(layout.size(), available_parallelism().map_or(1, usize::from));
    }
    settings.assembly = assembly.or(settings.assembly);
    let launching = &mut settings.launching;
    launching.rsh = rsh.or(launching.rsh.take());
    launching.grace = grace.or(launching.grace);
    if pin {
        launching.pin = Some(Switch::On);
    }
    if tag_output {
        launching.tag_output = Some(Switch::On);
    }
    let (given_image, given_emulator) = (launching.image.take(), launching.emulator.take());
    let bare_metal = bare_metal.or(launching.bare_metal.take());
    if bare_metal.is_none() && (image.is_some() || emulator.is_some()) {
        return Err(Refusal::usage("--image and --emulator are for --bare-metal"));
    }
    let bare_metal = bare_metal.map(|ranks| of_images(ranks, image.or(given_image), emulator.or(given_emulator)));
    if let Some(BareMetal { ranks, .. }) = &bare_metal {
        let transport = &mut settings.transport;
        if *ranks == 0 || *ranks >= layout.size() || layout.nodes() > 1 || hosts.is_some() {
            return Err(Refusal::usage("--bare-metal: some ranks of one node, not all of them"));
        }
        if !matches!(transport.device, DeviceChoice::Auto | DeviceChoice::Shm) {
            return Err(Refusal::usage("--bare-metal: ranks without an operating system share memory"));
        }
        transport.device = DeviceChoice::Shm;
    }
    let mut command = options.command.into_iter();
    let program = command.next().ok_or_else(|| Refusal::usage("a program is needed"))?;
    Ok(Job { program, arguments: command.collect(), layout, settings, bare_metal })
}

fn of_images(ranks: u32, image: Option<PathBuf>, emulator: Option<String>) -> BareMetal {
    let beside = || std::env::current_exe().unwrap_or_default().with_file_name("unisono-x86");
    BareMetal {
        ranks,
        image: image.unwrap_or_else(beside),
        emulator: emulator.unwrap_or_else(|| "qemu-system-x86_64".to_owned()),
    }
}

/// Options of `unisono stand-in`, which the launcher starts.
#[derive(Args, Debug)]
pub(crate) struct StandIn {
    #[arg(long)]
    image: PathBuf,
    #[arg(long)]
    emulator: String,
    #[arg(last = true)]
    words: Vec<OsString>,
}

/// Stands in for an image, to its end.
pub(crate) fn stand_in(options: &StandIn) -> Result<(), StandInError> {
    let StandIn { image, emulator, words } = options;
    bare_metal::stand_in(&BareMetal { ranks: 1, image: image.clone(), emulator: emulator.clone() }, words)
}

fn lay_over<T>(setting: &mut T, option: Option<T>) {
    if let Some(option) = option {
        *setting = option;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn parse(line: &str, settings: &[(&str, &str)]) -> Result<Job, String> {
        let words = core::iter::once("run").chain(line.split(' '));
        let options = Line::try_parse_from(words).map_err(|error| error.to_string())?.options;
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
        assert_eq!((job.layout.size(), job.layout.berths()[3].node), (4, 1));
        assert_eq!((job.program, job.arguments), ("prog".into(), vec!["--flag".into(), "-n".into()]));
        let transport = job.settings.transport;
        assert_eq!((transport.device, transport.progress), (DeviceChoice::Udp, Progress::Hybrid));
        assert_eq!((transport.mtu.map(Mtu::bytes), transport.gso), (Some(1500), Some(Switch::Off)));
        let raw = |device| parse(&format!("-n 2 --device {device} --queues raw -- prog"), &[]);
        assert_eq!(raw("verbs").map(|job| job.settings.transport.queues), Ok(Some(QueuesChoice::Raw)));
        let of = |queues: &str| parse(&format!("-n 2 --device verbs{queues} -- prog"), &[]);
        assert_eq!(of("").map(|job| job.settings.transport.queues.unwrap_or_default()), Ok(QueuesChoice::Auto));
        assert_eq!(of(" --queues library").map(|job| job.settings.transport.queues), Ok(Some(QueuesChoice::Library)));
        assert_eq!(raw("udp").err().as_deref(), Some("--queues raw: only --device verbs has work queues"));
        assert_eq!((transport.faults.loss.value(), transport.faults.seed), (0.05, 7));
        assert_eq!(transport.on_death, OnDeath::Tell);
        assert_eq!(transport.watchdog.map(|time| time.duration().as_secs()), Some(5));
        assert_eq!(job.settings.launching.pin, Some(Switch::On));
        let tuning: Vec<_> = job.settings.tuning.variables().filter(|(name, _)| *name != "SHARING").collect();
        assert_eq!(tuning, [("ALLGATHER", "bruck:k=2".to_owned())]);
    }

    #[test]
    fn options_lie_over_the_environment() {
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
    fn environment_says_where_ranks_run() {
        let parse = |line: &str, settings: &[_]| parse(line, settings).expect("good");
        let nodes = [("UNISONO_NODES", "2")];
        assert_eq!(parse("-n 4 -- prog", &nodes).layout.nodes(), 2);
        assert_eq!(parse("-n 4 --nodes 4 -- prog", &nodes).layout.nodes(), 4);
        assert_eq!(parse("--hosts localhost:3 -- prog", &nodes).layout.size(), 3);
        let hosts = [("UNISONO_HOSTS", "localhost:3,other:2")];
        assert_eq!((parse("-- prog", &hosts).layout.size(), parse("-n 4 -- prog", &hosts).layout.size()), (5, 4));
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
        assert_eq!(sharing("--hosts localhost:60000,other:1 -- prog"), 1, "how many processors it has is not known");
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
    fn what_is_wrong_is_said() {
        for (line, expected) in [
            ("-- prog", "-n or --hosts is needed"),
            ("-n 2", "<PROGRAM>"),
            ("-n 0 -- prog", "a job has 1 to"),
            ("-n 2 --nodes 3 -- prog", "1 to 2 nodes can share 2 ranks"),
            ("-n 9 --hosts a:4 -- prog", "the hosts take 4 ranks, not 9"),
            ("-n 2 --device tcp -- prog", "one of auto, shm, udp, verbs"),
            ("-n 2 --loss 200% -- prog", "probability"),
            ("-n 2 --silence 121s -- prog", "a time from 1ms to 120s"),
            ("-n 2 --mtu 70000 -- prog", "from 576 to 65507"),
            ("-n 2 --on-death never -- prog", "one of end, tell, silent"),
            ("-n 2 --alltoall ring -- prog", "one of direct, pairwise, bruck, doubling, standard-exchange is expected"),
            ("-n 2 --gather knomial:radix=1 -- prog", "radix= is a number from 2 to 17"),
            ("-n 2 --watchdog 2h -- prog", "a time from 1ms to 3600s"),
            ("-n 2 --bare-metal 2 -- prog", "not all of them"),
            ("-n 2 --bare-metal 0 -- prog", "not all of them"),
            ("-n 4 --bare-metal 1 --nodes 2 -- prog", "ranks of one node"),
            ("-n 2 --bare-metal 1 --device udp -- prog", "share memory"),
            ("-n 2 --image x -- prog", "--bare-metal"),
            ("--hosts localhost:2 --bare-metal 1 -- prog", "ranks of one node"),
            ("-n 2 --nodes 1 --hosts a -- prog", "cannot be used with"),
        ] {
            match parse(line, &[]) {
                Err(reason) => assert!(reason.contains(expected), "{line}: {reason}"),
                Ok(_) => panic!("{line} is accepted"),
            }
        }
    }
}
