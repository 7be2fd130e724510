//! An opened adapter: context, protection domain, port and GID.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ffi::{CStr, c_int};
use core::fmt;
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use core::slice;
use std::io;
use std::os::fd::RawFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rdma_core_sys as sys;
use unisono_core::rma::Rights;

use super::gid::{Candidate, Encapsulation, Gid, choose};
use super::queue::Provider;
use crate::rc::{CompletionObject, EndObject, ReceiveObject};

/// GIDs of a port that are looked at.
const GIDS_MAX: usize = 256;
/// `ibv_port_attr::link_layer` of Ethernet.
const ETHERNET: u8 = 2;
/// Why an adapter cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// rdma-core is not installed.
    #[error("libibverbs.so.1 cannot be loaded: rdma-core is not installed here")]
    NoLibrary,
    /// There is no adapter.
    #[error("this host has no RDMA adapter")]
    NoAdapter,
    /// No adapter has this name.
    #[error("there is no RDMA adapter {0}; `unisono info` lists the adapters")]
    NoSuchAdapter(String),
    /// No port can be used.
    #[error("{0} has no active port with a GID")]
    NoPort(String),
    /// The driver cannot write its queues directly.
    #[error(
        "the work queues of {0} cannot be written directly, only those of Soft-RoCE (rxe); use --queues library or auto"
    )]
    NoProvider(String),
    /// The adapter executes no atomic operations.
    #[error("{0} executes no atomic operations")]
    NoAtomics(String),
    /// The adapter has no shared receive queue of the wanted length.
    #[error("{0} has no shared receive queue of {1} entries")]
    NoSharedReceives(String, u32),
    /// A system or verbs call failed.
    #[error("{what}: {error}")]
    Refused {
        /// The call.
        what: &'static str,
        /// Its error.
        error: io::Error,
    },
}

impl OpenError {
    pub(crate) fn last(what: &'static str) -> Self {
        Self::Refused { what, error: io::Error::last_os_error() }
    }

    pub(crate) fn code(what: &'static str, code: c_int) -> Self {
        Self::Refused { what, error: io::Error::from_raw_os_error(code.abs()) }
    }
}

/// The opened adapter, shared by the device and every registration. Its parts live until it is closed.
#[derive(Debug)]
pub struct Domain {
    name: String,
    port: u8,
    candidate: Candidate,
    mtu: u32,
    ethernet: bool,
    open: Mutex<OpenDomain>,
}

#[derive(Debug)]
pub(crate) struct OpenDomain {
    pub(crate) context: Option<NonNull<sys::ibv_context>>,
    pub(crate) pd: Option<NonNull<sys::ibv_pd>>,
    regions: Objects<NonNull<sys::ibv_mr>>,
    /// Queue pairs, completion queues and shared receive queues of reliable connections.
    pub(crate) pairs: Objects<EndObject>,
    pub(crate) queues: Objects<CompletionObject>,
    pub(crate) receives: Objects<ReceiveObject>,
}

impl OpenDomain {
    /// The adapter's file, to which commands are written, and the handle of the protection domain, while they are open.
    pub(crate) fn file_and_pd(&self) -> Option<(RawFd, u32)> {
        let (context, pd) = self.context.zip(self.pd)?;
        // SAFETY: an open context; its file does not change.
        let file = unsafe { context.as_ref() }.cmd_fd;
        // SAFETY: a live protection domain.
        Some((file, unsafe { pd.as_ref() }.handle))
    }
}

/// Objects of an opened adapter by number. Closing the adapter destroys all of them.
pub(crate) struct Objects<T> {
    entries: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> fmt::Debug for Objects<T> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} objects", self.entries.iter().flatten().count())
    }
}

impl<T> Objects<T> {
    const EMPTY: Self = Self { entries: Vec::new(), free: Vec::new() };

    pub(crate) fn insert(&mut self, object: T) -> usize {
        let number = self.free.pop().unwrap_or(self.entries.len());
        match self.entries.get_mut(number) {
            Some(place) => *place = Some(object),
            None => self.entries.push(Some(object)),
        }
        number
    }

    pub(crate) fn get(&self, number: usize) -> Option<&T> {
        self.entries.get(number)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, number: usize) -> Option<&mut T> {
        self.entries.get_mut(number)?.as_mut()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.entries.iter_mut().flatten()
    }

    /// Removes an object, which its caller destroys.
    pub(crate) fn take(&mut self, number: usize) -> Option<T> {
        let object = self.entries.get_mut(number)?.take()?;
        self.free.push(number);
        Some(object)
    }

    /// Removes all objects; their numbers are not used again.
    fn drain(&mut self) -> impl Iterator<Item = T> {
        self.entries.iter_mut().filter_map(Option::take)
    }
}

// SAFETY: rdma-core's control calls may come from any thread; the pointers are used under the lock, or by the one
// device that keeps the domain open.
unsafe impl Send for OpenDomain {}

/// Registered memory, until it is dropped or the domain closed.
#[derive(Debug)]
pub struct Registration {
    domain: Arc<Domain>,
    number: usize,
    key: u32,
    remote: u32,
    origin: u64,
}

impl Registration {
    /// The lkey.
    pub const fn key(&self) -> u32 {
        self.key
    }

    /// The rkey, of memory that was [registered for peers](Domain::register_for_peers), or to be
    /// [read](Domain::register_to_be_read).
    pub const fn remote_key(&self) -> u32 {
        self.remote
    }

    /// What the address of a byte exceeds the adapter's address of it by.
    pub const fn origin(&self) -> u64 {
        self.origin
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut open = self.domain.lock();
        if let Some(region) = open.regions.take(self.number) {
            // SAFETY: registered by `register`, taken once.
            unsafe { sys::ibv_dereg_mr(region.as_ptr()) };
        }
    }
}

/// The adapters' names.
///
/// # Errors
/// [`OpenError::NoLibrary`], or a system error.
pub fn adapters() -> Result<Vec<String>, OpenError> {
    with_list(|list| Ok(list.iter().map(|device| name_of(*device)).collect()))
}

/// Calls `use_it` with the list of adapters.
fn with_list<T>(use_it: impl FnOnce(&[*mut sys::ibv_device]) -> Result<T, OpenError>) -> Result<T, OpenError> {
    let mut count = 0;
    // SAFETY: a place for the count.
    let list = unsafe { sys::ibv_get_device_list(&mut count) };
    if list.is_null() {
        let error = io::Error::last_os_error();
        return Err(match error.raw_os_error() {
            // The loader's error for every function of a missing library.
            Some(libc::EOPNOTSUPP) => OpenError::NoLibrary,
            Some(libc::ENOSYS | libc::ENOENT) => OpenError::NoAdapter,
            _ => OpenError::Refused { what: "ibv_get_device_list", error },
        });
    }
    // SAFETY: the list has `count` entries, and is freed below.
    let devices = unsafe { slice::from_raw_parts(list, usize::try_from(count).unwrap_or(0)) };
    let used = use_it(devices);
    // SAFETY: made above.
    unsafe { sys::ibv_free_device_list(list) };
    used
}

fn name_of(device: *mut sys::ibv_device) -> String {
    // SAFETY: an entry of a list that is not freed yet.
    let name = unsafe { sys::ibv_get_device_name(device) };
    if name.is_null() {
        return String::new();
    }
    // SAFETY: a text that ends in a zero byte and lives as long as the list.
    unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
}

impl Domain {
    /// The adapter's addresses of memory that peers [read](Self::register_to_be_read) count from a multiple of this.
    pub const ORIGIN: u64 = 1 << 30;

    /// Opens the adapter of this name, or the first that has an active port with a GID.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(name: Option<&str>) -> Result<Arc<Self>, OpenError> {
        Self::open_port(name, None)
    }

    /// As [`open`](Self::open), on this port of the adapter, counted from 1.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open_port(name: Option<&str>, port: Option<u8>) -> Result<Arc<Self>, OpenError> {
        with_list(|list| {
            let mut found = Err(name.map_or(OpenError::NoAdapter, |name| OpenError::NoSuchAdapter(name.to_owned())));
            for device in list {
                let called = name_of(*device);
                if name.is_none_or(|name| name == called) {
                    found = Self::open_device(*device, called, port).map(Arc::new);
                    if found.is_ok() {
                        break;
                    }
                }
            }
            found
        })
    }

    fn open_device(device: *mut sys::ibv_device, name: String, port: Option<u8>) -> Result<Self, OpenError> {
        // SAFETY: an entry of a list that is not freed yet.
        let context = NonNull::new(unsafe { sys::ibv_open_device(device) });
        let context = context.ok_or_else(|| OpenError::last("ibv_open_device"))?;
        // From here on, dropping the domain closes what is open.
        let (regions, pairs) = (Objects::EMPTY, Objects::EMPTY);
        let (queues, receives) = (Objects::EMPTY, Objects::EMPTY);
        let open = OpenDomain { context: Some(context), pd: None, regions, pairs, queues, receives };
        let none = Candidate { index: 0, gid: Gid::NONE, encapsulation: Encapsulation::Infiniband, interface: 0 };
        let mut domain = Self { name, port: 0, candidate: none, mtu: 0, ethernet: false, open: Mutex::new(open) };
        let wanted = |tried: &u8| port.is_none_or(|port| port == *tried);
        let port = (1..=ports(context)).filter(wanted).find_map(|port| Some((port, active(context, port)?)));
        let (port, attributes, candidate) = port
            .and_then(|(port, attributes)| Some((port, attributes, choose(&gids(context, port))?)))
            .ok_or_else(|| OpenError::NoPort(domain.name.clone()))?;
        (domain.port, domain.candidate) = (port, candidate);
        domain.mtu = 128 << attributes.active_mtu.min(5);
        domain.ethernet = attributes.link_layer == ETHERNET;
        // SAFETY: an open context.
        let pd = NonNull::new(unsafe { sys::ibv_alloc_pd(context.as_ptr()) });
        domain.lock().pd = Some(pd.ok_or_else(|| OpenError::last("ibv_alloc_pd"))?);
        Ok(domain)
    }

    /// The adapter's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whose its queues are, if they can be written without libibverbs.
    pub fn provider(&self) -> Option<Provider> {
        Provider::of(&self.name)
    }

    /// The port, from 1.
    pub const fn port(&self) -> u8 {
        self.port
    }

    /// The GID that was chosen.
    pub const fn gid(&self) -> Candidate {
        self.candidate
    }

    /// Bytes of the largest datagram on the link.
    pub const fn mtu(&self) -> u32 {
        self.mtu
    }

    /// Whether the link is Ethernet (RoCE).
    pub const fn is_ethernet(&self) -> bool {
        self.ethernet
    }

    /// Whether the adapter executes atomic operations of peers.
    pub(crate) fn has_atomics(&self) -> bool {
        let attributes = self.lock().context.and_then(device_attributes);
        attributes.is_some_and(|attributes| attributes.atomic_cap != sys::ibv_atomic_cap::IBV_ATOMIC_NONE)
    }

    /// Lets the adapter read and write these bytes.
    ///
    /// # Errors
    /// The system refuses, or the domain is closed.
    ///
    /// # Safety
    /// The bytes stay mapped until the registration is dropped.
    pub unsafe fn register(self: &Arc<Self>, start: NonNull<u8>, bytes: usize) -> io::Result<Registration> {
        let access = sys::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE;
        // SAFETY: the caller promises that the bytes stay mapped until the registration is dropped.
        unsafe { self.register_with(start, bytes, 0, access) }
    }

    /// As [`register`](Self::register), and lets peers with a reliable connection read these bytes. The adapter's addresses
    /// of them, here and for peers, count from a multiple of 1 GiB, so that each has 32 bits.
    ///
    /// # Errors
    /// As there; there are too many bytes, or the library is too old.
    ///
    /// # Safety
    /// The bytes stay mapped until the registration is dropped.
    pub unsafe fn register_to_be_read(self: &Arc<Self>, start: NonNull<u8>, bytes: usize) -> io::Result<Registration> {
        use sys::ibv_access_flags as access;
        let (first, bits) = (start.expose_provenance().get() as u64, u32::BITS);
        // The adapter may use pages as large as that.
        let origin = first & !(Self::ORIGIN - 1);
        if (first - origin).saturating_add(bytes as u64) > 1 << bits {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let given = access::IBV_ACCESS_LOCAL_WRITE | access::IBV_ACCESS_REMOTE_READ;
        // SAFETY: the caller promises that the bytes stay mapped until the registration is dropped.
        unsafe { self.register_with(start, bytes, origin, given) }
    }

    /// Lets peers with a reliable connection access these bytes, under the registration's
    /// [`remote_key`](Registration::remote_key), by operations that `rights` has: reads, writes, atomics.
    ///
    /// # Errors
    /// The system refuses, or the domain is closed.
    ///
    /// # Safety
    /// The bytes stay mapped, and nobody has a reference to them, until the registration is dropped.
    pub unsafe fn register_for_peers(
        self: &Arc<Self>,
        start: NonNull<u8>,
        bytes: usize,
        rights: Rights,
    ) -> io::Result<Registration> {
        use sys::ibv_access_flags as access;
        let flags = [
            (Rights::READ, access::IBV_ACCESS_REMOTE_READ),
            (Rights::WRITE, access::IBV_ACCESS_REMOTE_WRITE),
            (Rights::ATOMIC, access::IBV_ACCESS_REMOTE_ATOMIC),
        ];
        let given = flags.into_iter().filter(|(right, _)| rights.contains(*right)).map(|(_, flag)| flag);
        let all = given.fold(access::IBV_ACCESS_LOCAL_WRITE, |all, flag| all | flag);
        // SAFETY: the caller promises that the bytes stay mapped until the registration is dropped.
        unsafe { self.register_with(start, bytes, 0, all) }
    }

    /// # Safety
    /// The bytes stay mapped until the registration is dropped.
    unsafe fn register_with(
        self: &Arc<Self>,
        start: NonNull<u8>,
        bytes: usize,
        origin: u64,
        access: sys::ibv_access_flags,
    ) -> io::Result<Registration> {
        let mut open = self.lock();
        let pd = open.pd.ok_or(io::ErrorKind::NotConnected)?.as_ptr();
        let (first, access) = (start.as_ptr().cast(), access.0 as c_int);
        let region = if origin == 0 {
            // SAFETY: an open protection domain; the caller promises that the bytes stay mapped until the registration
            // is dropped.
            unsafe { sys::ibv_reg_mr(pd, first, bytes, access) }
        } else {
            let address = (start.expose_provenance().get() as u64).wrapping_sub(origin);
            // SAFETY: an open protection domain; the caller promises that the bytes stay mapped until the registration
            // is dropped. The adapter's addresses are numbers.
            unsafe { sys::ibv_reg_mr_iova(pd, first, bytes, address, access) }
        };
        let region = NonNull::new(region).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: just made.
        let sys::ibv_mr { lkey: key, rkey: remote, .. } = *unsafe { region.as_ref() };
        let number = open.regions.insert(region);
        drop(open);
        Ok(Registration { domain: Arc::clone(self), number, key, remote, origin })
    }

    /// Whether the network interface of the GID is still there. Without one there is nothing to miss.
    pub fn has_interface(&self) -> bool {
        let mut name = [0; libc::IF_NAMESIZE];
        // SAFETY: room for a name.
        self.candidate.interface == 0
            || !unsafe { libc::if_indextoname(self.candidate.interface, name.as_mut_ptr()) }.is_null()
    }

    /// Whether the port is active.
    pub(super) fn is_active(&self) -> bool {
        self.lock().context.is_some_and(|context| active(context, self.port).is_some())
    }

    /// Closes the adapter. Queues and address handles must be gone before.
    pub(super) fn close(&self) {
        let mut open = self.lock();
        // The kernel destroys no object in use.
        open.pairs.drain().for_each(drop);
        open.queues.drain().for_each(drop);
        open.receives.drain().for_each(drop);
        for region in open.regions.drain() {
            // SAFETY: registered by `register`, taken once.
            unsafe { sys::ibv_dereg_mr(region.as_ptr()) };
        }
        if let Some(pd) = open.pd.take() {
            // SAFETY: made by `open`, taken once; nothing of it is left.
            unsafe { sys::ibv_dealloc_pd(pd.as_ptr()) };
        }
        if let Some(context) = open.context.take() {
            // SAFETY: made by `open_device`, taken once; nothing of it is left.
            unsafe { sys::ibv_close_device(context.as_ptr()) };
        }
    }

    /// The context and the protection domain while they are open.
    pub(crate) fn parts(&self) -> Option<(NonNull<sys::ibv_context>, NonNull<sys::ibv_pd>)> {
        let open = self.lock();
        Some((open.context?, open.pd?))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, OpenDomain> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        self.close();
    }
}

/// What an adapter can do; `None`: it does not answer.
pub(crate) fn device_attributes(context: NonNull<sys::ibv_context>) -> Option<sys::ibv_device_attr> {
    let mut attributes = MaybeUninit::<sys::ibv_device_attr>::zeroed();
    // SAFETY: an open context and a place for the answer.
    let refused = unsafe { sys::ibv_query_device(context.as_ptr(), attributes.as_mut_ptr()) };
    // SAFETY: numbers; all zeros are some.
    let attributes = unsafe { attributes.assume_init() };
    (refused == 0).then_some(attributes)
}

fn ports(context: NonNull<sys::ibv_context>) -> u8 {
    device_attributes(context).map_or(0, |attributes| attributes.phys_port_cnt)
}

/// Attributes of a queue pair, none of which is set.
pub(crate) fn no_attributes() -> sys::ibv_qp_attr {
    // SAFETY: numbers and addresses; all zeros are some.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

/// The port's attributes when it is active.
fn active(context: NonNull<sys::ibv_context>, port: u8) -> Option<sys::ibv_port_attr> {
    let mut attributes = MaybeUninit::<sys::ibv_port_attr>::zeroed();
    // SAFETY: an open context and a place for the answer.
    let refused = unsafe { sys::ibv_query_port(context.as_ptr(), port, attributes.as_mut_ptr()) };
    // SAFETY: numbers; all zeros are some.
    let attributes = unsafe { attributes.assume_init() };
    (refused == 0 && attributes.state == sys::ibv_port_state::IBV_PORT_ACTIVE).then_some(attributes)
}

fn gids(context: NonNull<sys::ibv_context>, port: u8) -> Vec<Candidate> {
    let none = sys::ibv_gid_entry {
        gid: sys::ibv_gid { raw: [0; 16] },
        gid_index: 0,
        port_num: 0,
        gid_type: 0,
        ndev_ifindex: 0,
    };
    let mut entries = alloc::vec![none; GIDS_MAX];
    // SAFETY: an open context and room for all entries.
    let count = unsafe { sys::ibv_query_gid_table(context.as_ptr(), entries.as_mut_ptr(), GIDS_MAX, 0) };
    entries.truncate(usize::try_from(count).unwrap_or(0));
    let candidate = |entry: &sys::ibv_gid_entry| {
        // SAFETY: sixteen bytes, whichever way they are looked at.
        let gid = Gid(unsafe { entry.gid.raw });
        let (index, encapsulation) = (u8::try_from(entry.gid_index).ok()?, Encapsulation::of(entry.gid_type)?);
        Some(Candidate { index, gid, encapsulation, interface: entry.ndev_ifindex })
    };
    entries.iter().filter(|entry| entry.port_num == u32::from(port)).filter_map(candidate).collect()
}
