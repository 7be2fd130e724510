//! The RDMA adapters, and the address that is taken of each.

use serde::Serialize;

/// An adapter that can be used.
#[derive(Serialize, Debug)]
pub(super) struct Adapter {
    pub(super) name: String,
    pub(super) port: u8,
    pub(super) gid: String,
    pub(super) gid_index: u8,
    pub(super) encapsulation: &'static str,
    /// Bytes of the largest datagram.
    pub(super) mtu: u32,
    /// Whose queues its own are, if they can be posted directly.
    pub(super) raw_queues: Option<String>,
}

/// Those of this machine, or why there are none.
#[cfg(feature = "verbs")]
pub(super) fn ask() -> Result<Vec<Adapter>, String> {
    use unisono_verbs::ud::{Domain, Encapsulation, adapters};

    let open = |name: &String| {
        let domain = Domain::open(Some(name))?;
        let chosen = domain.gid();
        let encapsulation = match chosen.encapsulation {
            Encapsulation::RoceV2 => "RoCE v2",
            Encapsulation::RoceV1 => "RoCE v1",
            Encapsulation::Infiniband => "InfiniBand",
        };
        let (name, gid, gid_index) = (name.clone(), chosen.gid.to_string(), chosen.index);
        let raw_queues = domain.provider().map(|provider| provider.to_string());
        Ok(Adapter { name, port: domain.port(), gid, gid_index, encapsulation, mtu: domain.mtu(), raw_queues })
    };
    let all = adapters().map_err(|error| error.to_string())?;
    let (opened, refused): (Vec<_>, Vec<_>) = all.iter().map(open).partition(Result::is_ok);
    let refused = refused.into_iter().find_map(|one: Result<_, unisono_verbs::ud::OpenError>| one.err());
    match refused.filter(|_| opened.is_empty()) {
        Some(error) => Err(error.to_string()),
        None => Ok(opened.into_iter().flatten().collect()),
    }
}

/// None: this program was built without them.
#[cfg(not(feature = "verbs"))]
pub(super) fn ask() -> Result<Vec<Adapter>, String> {
    Err("built without the feature verbs".to_owned())
}
