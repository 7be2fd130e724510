//! The RDMA adapters of this machine, with the address (GID) that is used of each.

use serde::Serialize;
use unisono::environment::QueuesChoice;

/// A usable adapter.
#[derive(Serialize, Debug)]
pub(super) struct Adapter {
    pub(super) name: String,
    pub(super) port: u8,
    pub(super) gid: String,
    pub(super) gid_index: u8,
    pub(super) encapsulation: &'static str,
    /// Largest datagram in bytes.
    pub(super) mtu: u32,
    /// How its work queues are written, as the settings request. `None`: not possible as requested.
    pub(super) queues: Option<String>,
    /// Why they are not written directly, although that is requested, or not at all.
    pub(super) queues_refused: Option<String>,
}

/// The adapters of this machine, or why there are none. Opens a device on each, as a rank would.
#[cfg(feature = "verbs")]
pub(super) fn ask(queues: QueuesChoice) -> Result<Vec<Adapter>, String> {
    use unisono_memory::memory_regions::Address;
    use unisono_verbs::ud::{Domain, Encapsulation, OpenError, Ud, UdOptions, adapters};

    let open = |name: &String| {
        let domain = Domain::open(Some(name))?;
        let chosen = domain.gid();
        let encapsulation = match chosen.encapsulation {
            Encapsulation::RoceV2 => "RoCE v2",
            Encapsulation::RoceV1 => "RoCE v1",
            Encapsulation::Infiniband => "InfiniBand",
        };
        let (name, gid, gid_index) = (name.clone(), chosen.gid.to_string(), chosen.index);
        let options = UdOptions { queues: queues.into(), ..UdOptions::new(1, 0) };
        let (queues, queues_refused) = match Ud::<Address>::new(&domain, &options) {
            Ok(device) => {
                let is_unknown = queues == QueuesChoice::Auto && domain.provider().is_none();
                let unknown = is_unknown.then(|| OpenError::NoProvider(name.clone()).to_string());
                (Some(device.writer().to_string()), device.refused().map(ToString::to_string).or(unknown))
            }
            Err(error) => (None, Some(error.to_string())),
        };
        let (port, mtu) = (domain.port(), domain.mtu());
        Ok(Adapter { name, port, gid, gid_index, encapsulation, mtu, queues, queues_refused })
    };
    let all = adapters().map_err(|error| error.to_string())?;
    let (opened, refused): (Vec<_>, Vec<_>) = all.iter().map(open).partition(Result::is_ok);
    let refused = refused.into_iter().find_map(|one: Result<_, OpenError>| one.err());
    match refused.filter(|_| opened.is_empty()) {
        Some(error) => Err(error.to_string()),
        None => Ok(opened.into_iter().flatten().collect()),
    }
}

/// Returns an error, since this program was built without the feature.
#[cfg(not(feature = "verbs"))]
pub(super) fn ask(_: QueuesChoice) -> Result<Vec<Adapter>, String> {
    Err("built without the feature verbs".to_owned())
}
