//! Builds and runs rdma-core's mlx5 provider, from the source that the crate `ibverbs-sys` carries, as a reference for
//! our work queues.
//!
//! Cargo fetches it (`tests/rdma-core/Cargo.toml`), the system's C compiler compiles the mlx5 provider's `qp.c`, `cq.c`
//! and `verbs.c` with `tests/rdma-core/mlx5.c`, and the program runs as a child that answers requests: nothing of it is
//! linked to anything of ours. Needs `cc`, `python3` (rdma-core derives headers from the kernel's with it) and, the
//! first time, a registry.

use std::env;
use std::fs;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use unisono_verbs::mlx5::Immediate;
use unisono_verbs::raw::{Data, RemoteMemory};

/// Bytes of the registers that a posting may write.
pub const REGISTERS: usize = 1024;

const HERE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/rdma-core");
/// Configuration that rdma-core's build would generate.
const CONFIG: &str = "
#define HAVE_STATEMENT_EXPR 1
#define HAVE_BUILTIN_TYPES_COMPATIBLE_P 1
#define HAVE_TYPEOF 1
#define HAVE_FUNC_ATTRIBUTE_ALWAYS_INLINE 1
#define HAVE_BUILTIN_CLZ 1
#define HAVE_BUILTIN_CLZL 1
#define STREAM_CLOEXEC \"e\"
#define SIZEOF_LONG 8
#define VERBS_IOCTL_ONLY 0
#define VERBS_WRITE_ONLY 0
";

/// Path of rdma-core's source. Fetches it if needed.
///
/// # Errors
/// Cargo cannot be run or does not print the path.
pub fn source() -> io::Result<PathBuf> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let manifest = format!("{HERE}/Cargo.toml");
    let arguments = ["metadata", "--format-version", "1", "--locked", "--manifest-path", &manifest];
    let said = run(Command::new(cargo).args(arguments))?;
    let manifests = said.split("\"manifest_path\":\"").filter_map(|rest| rest.split('"').next());
    let found = manifests.map(Path::new).find(|path| path.to_string_lossy().contains("/ibverbs-sys-"));
    let folder = found.and_then(Path::parent).map(|folder| folder.join("vendor/rdma-core"));
    folder.filter(|folder| folder.is_dir()).ok_or_else(|| io::Error::other("cargo does not name ibverbs-sys's source"))
}

/// Compiles the mlx5 provider's posting and polling code. Returns the program.
///
/// # Errors
/// A compiler is missing, or fails.
pub fn build() -> io::Result<PathBuf> {
    let source = source()?;
    let beside = env::current_exe()?;
    let folder = beside.parent().unwrap_or(Path::new(".")).join("rdma-core");
    let _ = fs::remove_dir_all(&folder);
    let include = folder.join("include");
    headers(&source, &include)?;
    let (program, provider) = (folder.join("mlx5"), source.join("providers/mlx5"));
    run(Command::new("cc")
        .args(["-O1", "-w", "-D_GNU_SOURCE", "-ffunction-sections", "-fdata-sections", "-no-pie"])
        // Of the rest of libibverbs nothing is reached.
        .args(["-Wl,--gc-sections,--unresolved-symbols=ignore-all"])
        .arg("-I")
        .arg(&include)
        .arg("-I")
        .arg(&provider)
        .arg(format!("{HERE}/mlx5.c"))
        .args(["qp.c", "cq.c", "verbs.c"].map(|file| provider.join(file)))
        .arg("-o")
        .arg(&program))?;
    Ok(program)
}

/// Headers where rdma-core's build would put them.
fn headers(source: &Path, to: &Path) -> io::Result<()> {
    let folders = [("libibverbs", "infiniband"), ("kernel-headers/rdma", "rdma"), ("kernel-headers/linux", "linux")];
    for (from, name) in folders.into_iter().chain([("util", "util"), ("ccan", "ccan")]) {
        fs::create_dir_all(to.join(name))?;
        for file in fs::read_dir(source.join(from))? {
            let file = file?.path();
            if let (Some(name_of_file), true) = (file.file_name(), file.extension().is_some_and(|end| end == "h")) {
                symlink(&file, to.join(name).join(name_of_file))?;
            }
        }
    }
    let alone = [
        ("kernel-headers/rdma/ib_user_ioctl_verbs.h", "infiniband/ib_user_ioctl_verbs.h"),
        ("kernel-headers/rdma/mlx5_user_ioctl_verbs.h", "infiniband/mlx5_user_ioctl_verbs.h"),
        ("providers/mlx5/mlx5_api.h", "infiniband/mlx5_api.h"),
        ("buildlib/fixup-include/valgrind-memcheck.h", "valgrind/memcheck.h"),
    ];
    fs::create_dir_all(to.join("valgrind"))?;
    for (from, name) in alone {
        symlink(source.join(from), to.join(name))?;
    }
    fs::create_dir_all(to.join("kernel-abi"))?;
    for name in ["ib_user_verbs.h", "mlx5-abi.h"] {
        run(Command::new("python3")
            .arg(source.join("buildlib/make_abi_structs.py"))
            .arg(source.join("kernel-headers/rdma").join(name))
            .arg(to.join("kernel-abi").join(name)))?;
    }
    fs::write(to.join("config.h"), CONFIG)
}

fn run(command: &mut Command) -> io::Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| io::Error::other(format!("{name}: {error}")))?;
    if !output.status.success() {
        return Err(io::Error::other(format!("{name}: {}", String::from_utf8_lossy(&output.stderr))));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A queue pair.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Of the send queue.
    pub blocks: u32,
    /// Its number.
    pub qpn: u32,
    /// Whether it is a reliable connection; otherwise it sends datagrams.
    pub connected: bool,
    /// Of a half of BlueFlame.
    pub flame_bytes: u32,
    /// Whether entries may go by BlueFlame.
    pub takes_entries: bool,
    /// Also those that are not inline.
    pub prefers: bool,
    /// Of the receive queue.
    pub receive_entries: u32,
    /// Of each of them.
    pub receive_units: u32,
}

/// Destination, in the terms of `ibv_ah_attr`.
#[derive(Clone, Copy, Default, Debug)]
pub struct Destination {
    /// RoCE of this version; 0: InfiniBand.
    pub roce: u32,
    /// Local identifier.
    pub lid: u32,
    /// Low bits of our own.
    pub path_bits: u32,
    /// Service level.
    pub level: u32,
    /// `ibv_rate`.
    pub rate: u32,
    /// Whether what follows counts.
    pub global: bool,
    /// Index of our own GID.
    pub gid_index: u32,
    /// Flow label.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u32,
    /// Traffic class.
    pub traffic_class: u32,
    /// Queue pair.
    pub qpn: u32,
    /// Its key.
    pub qkey: u32,
    /// GID.
    pub gid: [u8; 16],
    /// Hardware address of the next hop.
    pub mac: [u8; 6],
}

/// What a connected queue pair does.
#[derive(Clone, Copy, Debug)]
pub enum Operation {
    /// `IBV_WR_RDMA_WRITE`, or with immediate data.
    Write,
    /// `IBV_WR_RDMA_READ`.
    Read,
    /// `IBV_WR_ATOMIC_FETCH_AND_ADD` of this number.
    FetchAdd(u64),
    /// `IBV_WR_ATOMIC_CMP_AND_SWP`: the value that is compared, and the new one.
    CompareSwap(u64, u64),
}

impl Operation {
    /// Its number for the program, and its operands.
    const fn words(self) -> (u32, [u64; 2]) {
        match self {
            Self::Write => (0, [0; 2]),
            Self::Read => (1, [0; 2]),
            Self::FetchAdd(add) => (2, [add, 0]),
            Self::CompareSwap(compare, swap) => (3, [compare, swap]),
        }
    }
}

/// Payload of a send request.
#[derive(Clone, Debug)]
pub enum Pieces {
    /// From these ranges.
    Gather(Vec<Data>),
    /// Inline bytes.
    Inline(Vec<Vec<u8>>),
}

/// A send request.
#[derive(Clone, Debug)]
pub struct Post {
    /// Destination of a datagram.
    pub to: Destination,
    /// What a connected queue pair does.
    pub operation: Operation,
    /// The memory of its peer.
    pub remote: RemoteMemory,
    /// Payload.
    pub pieces: Pieces,
    /// `IBV_SEND_SIGNALED`.
    pub signalled: bool,
    /// `IBV_SEND_SOLICITED`.
    pub solicited: bool,
    /// `IBV_WR_SEND_WITH_IMM`.
    pub immediate: Option<Immediate>,
}

/// Memory stored by a posting.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Stored {
    /// All entries.
    pub entries: Vec<u8>,
    /// The doorbell record, as it lies in memory.
    pub record: u32,
    /// The registers, or nothing.
    pub registers: Vec<u8>,
}

/// A completion in the terms of `ibv_wc`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Polled {
    /// `wr_id`: the place of the entry in its queue.
    pub number: u64,
    /// `ibv_wc_status`.
    pub status: u32,
    /// `IBV_WC_RECV`.
    pub is_receive: bool,
    /// Vendor-specific syndrome of a failure.
    pub vendor: u32,
    /// Bytes received, the route header included.
    pub bytes: u32,
    /// The sender's queue pair.
    pub source: u32,
    /// The queue pair.
    pub qpn: u32,
    /// The sender's local identifier.
    pub lid: u32,
    /// Service level.
    pub level: u32,
    /// `IBV_WC_GRH`.
    pub global: bool,
    /// Bytes beside the payload, with `IBV_WC_WITH_IMM`.
    pub immediate: Option<Immediate>,
}

/// The running program.
#[derive(Debug)]
pub struct Provider {
    child: Child,
    to: BufWriter<ChildStdin>,
    from: BufReader<ChildStdout>,
    setup: Setup,
}

impl Provider {
    /// Starts it.
    ///
    /// # Errors
    /// The system's.
    pub fn start(program: &Path, setup: Setup) -> io::Result<Self> {
        let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let missing = || io::Error::other("no pipe");
        let (to, from) = (child.stdin.take().ok_or_else(missing)?, child.stdout.take().ok_or_else(missing)?);
        let mut provider = Self { child, to: BufWriter::new(to), from: BufReader::new(from), setup };
        provider.make(setup)?;
        Ok(provider)
    }

    /// Makes a fresh queue pair.
    ///
    /// # Errors
    /// The provider has exited.
    pub fn make(&mut self, setup: Setup) -> io::Result<()> {
        self.setup = setup;
        let flags = [u32::from(setup.takes_entries), u32::from(setup.prefers)];
        let receive = [setup.receive_entries, setup.receive_units];
        self.put(&[0, setup.blocks, setup.qpn, setup.connected.into(), setup.flame_bytes])?;
        self.put(&[flags[0], flags[1], receive[0], receive[1]])
    }

    /// Posts all of these in one call. Everything that is not stored is 0.
    ///
    /// # Errors
    /// The provider rejected one of them and exited.
    pub fn send(&mut self, posts: &[Post]) -> io::Result<Stored> {
        self.put(&[1, posts.len() as u32])?;
        for post in posts {
            self.put_destination(&post.to)?;
            let count = match &post.pieces {
                Pieces::Gather(pieces) => pieces.len(),
                Pieces::Inline(pieces) => pieces.len(),
            };
            let inline = matches!(post.pieces, Pieces::Inline(_));
            let flags = [inline, post.signalled, post.solicited, post.immediate.is_some()].map(u32::from);
            self.put(&flags)?;
            self.put(&[count as u32])?;
            self.to.write_all(&post.immediate.unwrap_or_default())?;
            let (operation, operands) = post.operation.words();
            self.put(&[operation, post.remote.key, 0])?;
            for word in [post.remote.address, operands[0], operands[1]] {
                self.to.write_all(&word.to_ne_bytes())?;
            }
            match &post.pieces {
                Pieces::Gather(pieces) => pieces.iter().try_for_each(|piece| self.put_piece(*piece))?,
                Pieces::Inline(pieces) => {
                    for bytes in pieces {
                        self.put_piece(Data { bytes: bytes.len() as u32, ..Data::default() })?;
                        self.to.write_all(bytes)?;
                    }
                }
            }
        }
        self.stored(self.setup.blocks as usize * 64, REGISTERS)
    }

    /// Posts a receive request.
    ///
    /// # Errors
    /// As above.
    pub fn receive(&mut self, data: Data) -> io::Result<Stored> {
        self.put(&[2, 1])?;
        self.put_piece(data)?;
        self.stored((self.setup.receive_entries * self.setup.receive_units) as usize * 16, 0)
    }

    /// Polls completion queue entries that the adapter might have written.
    ///
    /// # Errors
    /// The provider rejected one of them and exited.
    pub fn complete(&mut self, entries: &[[u8; 64]]) -> io::Result<Vec<Polled>> {
        self.put(&[4, entries.len() as u32])?;
        entries.iter().try_for_each(|entry| self.to.write_all(entry))?;
        self.put(&[3])?;
        self.to.flush()?;
        entries.iter().map(|_| self.polled()).collect()
    }

    fn polled(&mut self) -> io::Result<Polled> {
        let (mut number, mut words, mut immediate) = ([0; 8], [0_u32; 10], [[0; 4]; 2]);
        self.from.read_exact(&mut number)?;
        for word in &mut words {
            let mut bytes = [0; 4];
            self.from.read_exact(&mut bytes)?;
            *word = u32::from_ne_bytes(bytes);
        }
        immediate.iter_mut().try_for_each(|half| self.from.read_exact(half))?;
        let [status, is_receive, vendor, bytes, source, qpn, lid, level, global, has_immediate] = words;
        Ok(Polled {
            number: u64::from_ne_bytes(number),
            status,
            is_receive: is_receive != 0,
            vendor,
            bytes,
            source,
            qpn,
            lid,
            level,
            global: global != 0,
            immediate: (has_immediate != 0).then_some(immediate[0]),
        })
    }

    fn stored(&mut self, entries: usize, registers: usize) -> io::Result<Stored> {
        self.put(&[3])?;
        self.to.flush()?;
        let mut stored = Stored { entries: vec![0; entries], record: 0, registers: vec![0; registers] };
        let mut record = [0; 4];
        self.from.read_exact(&mut stored.entries)?;
        self.from.read_exact(&mut record)?;
        self.from.read_exact(&mut stored.registers)?;
        stored.record = u32::from_ne_bytes(record);
        Ok(stored)
    }

    fn put_destination(&mut self, to: &Destination) -> io::Result<()> {
        self.put(&[(to.roce > 0).into(), to.roce, to.lid, to.path_bits, to.level, to.rate, to.global.into()])?;
        self.put(&[to.gid_index, to.flow_label, to.hop_limit, to.traffic_class, to.qpn, to.qkey])?;
        self.to.write_all(&to.gid)?;
        self.to.write_all(&to.mac)?;
        self.to.write_all(&[0; 2])
    }

    fn put_piece(&mut self, piece: Data) -> io::Result<()> {
        self.to.write_all(&piece.address.to_ne_bytes())?;
        self.put(&[piece.bytes, piece.key])
    }

    fn put(&mut self, words: &[u32]) -> io::Result<()> {
        words.iter().try_for_each(|word| self.to.write_all(&word.to_ne_bytes()))
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
