//! The job's secret, the mutual proof that both ends know it, and the MAC of every frame.
//!
//! HMAC-SHA-256 throughout (RFC 2104). Frames are authenticated, not encrypted: an attacker who can read the link can
//! read the incarnations, as the threat model states.

use core::fmt;
use hmac::{Hmac, Mac};
use sha2::Sha256;
use std::{fs, io::Read, os::unix::fs::MetadataExt, path::Path};

/// Length of the MAC after every frame in bytes: HMAC-SHA-256 truncated to 128 bits.
pub(crate) const MAC_BYTES: usize = 16;
/// Length of a nonce and of a proof in bytes.
pub(crate) const PROOF_BYTES: usize = 32;

/// The secret of a job: 16 to 1024 bytes of text. Never printed.
#[derive(Clone)]
pub struct Secret(Box<str>);

impl Secret {
    /// Smallest length in bytes.
    pub const MIN: usize = 16;
    /// Largest length in bytes.
    pub const MAX: usize = 1024;

    /// 256 fresh random bits, in hexadecimal.
    pub fn random() -> Result<Self, getrandom::Error> {
        use fmt::Write as _;
        let mut bits = [0; 32];
        getrandom::fill(&mut bits)?;
        let mut text = String::with_capacity(2 * bits.len());
        for byte in bits {
            let _ = write!(text, "{byte:02x}");
        }
        Ok(Self(text.into()))
    }

    /// A secret from a text, without the white space around it.
    pub fn new(text: &str) -> Result<Self, SecretError> {
        let text = text.trim();
        if (Self::MIN..=Self::MAX).contains(&text.len()) { Ok(Self(text.into())) } else { Err(SecretError::Length) }
    }

    /// Reads a secret from a file that only its owner may read.
    pub fn read(path: &Path) -> Result<Self, SecretError> {
        let file = fs::File::open(path).map_err(|error| SecretError::File(error.kind()))?;
        let about = file.metadata().map_err(|error| SecretError::File(error.kind()))?;
        if about.mode() & 0o077 != 0 {
            return Err(SecretError::Exposed);
        }
        let mut text = String::new();
        let limit = Self::MAX as u64 + 2;
        file.take(limit).read_to_string(&mut text).map_err(|error| SecretError::File(error.kind()))?;
        Self::new(&text)
    }

    /// The text itself, to pass it to a process of the job.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Bytes that only who knows the secret can compute, bound to a job, a purpose and a context.
    pub fn prove(&self, job: &str, purpose: &[u8], context: &[&[u8]]) -> [u8; 32] {
        self.for_job(job).prove(purpose, context)
    }

    /// The key of one job: jobs of different names may share a secret.
    pub(crate) fn for_job(&self, job: &str) -> JobKey {
        JobKey(JobKey::from_bytes(self.0.as_bytes()).digest(&[b"unisono job", job.as_bytes()]))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("Secret(hidden)")
    }
}

/// Why a text or file cannot be used as a secret.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SecretError {
    /// Too short or too long.
    #[error("a secret must have {} to {} bytes", Secret::MIN, Secret::MAX)]
    Length,
    /// Its file cannot be read.
    #[error("the secret's file cannot be read: {0}")]
    File(std::io::ErrorKind),
    /// Its file can be read by others.
    #[error("the secret's file is accessible to group or others: run chmod 600 on it")]
    Exposed,
}

/// A key of 256 bits.
#[derive(Clone)]
pub(crate) struct JobKey([u8; PROOF_BYTES]);

impl JobKey {
    fn from_bytes(bytes: &[u8]) -> HmacState {
        // An HMAC key may have any length, so this never fails; the empty key makes the function total.
        HmacState(Hmac::new_from_slice(bytes).unwrap_or_else(|_| Hmac::new(&Default::default())))
    }

    fn hmac(&self) -> HmacState {
        Self::from_bytes(&self.0)
    }

    /// A proof of knowledge of this key, bound to its purpose and to the bytes of the handshake before it.
    pub(crate) fn prove(&self, purpose: &[u8], said: &[&[u8]]) -> [u8; PROOF_BYTES] {
        self.hmac().absorb(purpose, said).finalize().into_bytes().into()
    }

    /// Whether the proof is valid, in constant time.
    pub(crate) fn verify(&self, purpose: &[u8], said: &[&[u8]], proof: &[u8; PROOF_BYTES]) -> bool {
        self.hmac().absorb(purpose, said).verify_slice(proof).is_ok()
    }

    /// The MAC key of one direction of one session.
    pub(crate) fn derive(&self, purpose: &[u8], said: &[&[u8]]) -> MacKey {
        MacKey { hmac: Self(self.prove(purpose, said)).hmac(), sequence: 0 }
    }
}

#[derive(Clone)]
struct HmacState(Hmac<Sha256>);

impl HmacState {
    /// Hashes the lengths, too, so that bytes cannot move from one part to another.
    fn absorb(self, purpose: &[u8], said: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac = self.0;
        for part in core::iter::once(&purpose).chain(said) {
            mac.update(&(part.len() as u64).to_le_bytes());
            mac.update(part);
        }
        mac
    }

    fn digest(self, parts: &[&[u8]]) -> [u8; PROOF_BYTES] {
        self.absorb(b"", parts).finalize().into_bytes().into()
    }
}

/// Computes or verifies the MACs of the frames of one direction. Both ends number the frames, so a frame cannot be
/// changed, repeated, dropped or reordered.
#[derive(Clone)]
pub(crate) struct MacKey {
    hmac: HmacState,
    sequence: u64,
}

impl MacKey {
    fn next(&mut self, parts: &[&[u8]]) -> Hmac<Sha256> {
        let sequence = self.sequence.to_le_bytes();
        // A session never has 2⁶⁴ frames.
        self.sequence = self.sequence.wrapping_add(1);
        self.hmac.clone().absorb(&sequence, parts)
    }

    /// The MAC of the next frame.
    pub(crate) fn sign(&mut self, parts: &[&[u8]]) -> [u8; MAC_BYTES] {
        let full = self.next(parts).finalize().into_bytes();
        let mut seal = [0; MAC_BYTES];
        for (to, from) in seal.iter_mut().zip(full) {
            *to = from;
        }
        seal
    }

    /// Whether this is the MAC of the other end's next frame, in constant time.
    pub(crate) fn verify(&mut self, parts: &[&[u8]], seal: &[u8; MAC_BYTES]) -> bool {
        self.next(parts).verify_truncated_left(seal).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{io::Write, os::unix::fs::PermissionsExt};

    fn key(text: &str) -> JobKey {
        Secret::new(text).expect("long enough").for_job("job")
    }

    #[test]
    fn secrets_have_bounds_and_stay_hidden() {
        assert_eq!(Secret::new("short").err(), Some(SecretError::Length));
        assert_eq!(Secret::new(&"x".repeat(1025)).err(), Some(SecretError::Length));
        let secret = Secret::new(" 0123456789abcdef\n").expect("white space is trimmed");
        assert_eq!(secret.expose(), "0123456789abcdef");
        assert!(!format!("{secret:?}").contains("0123"));
        let (one, other) = (Secret::random().expect("random"), Secret::random().expect("random"));
        assert_eq!(one.expose().len(), 64);
        assert_ne!(one.expose(), other.expose());
    }

    #[test]
    fn a_secret_file_must_be_private() {
        let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
        file.write_all(b"0123456789abcdef0123\n").expect("written");
        let set = |mode| fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).expect("own file");
        set(0o640);
        assert_eq!(Secret::read(file.path()).err(), Some(SecretError::Exposed));
        set(0o600);
        assert_eq!(Secret::read(file.path()).expect("private").expose(), "0123456789abcdef0123");
        assert_eq!(
            Secret::read(Path::new("/nonexistent")).err(),
            Some(SecretError::File(std::io::ErrorKind::NotFound))
        );
    }

    #[test]
    fn proofs_depend_on_key_purpose_and_transcript() {
        let proof = key("0123456789abcdef").prove(b"server", &[b"ab", b"c"]);
        assert!(key("0123456789abcdef").verify(b"server", &[b"ab", b"c"], &proof));
        assert!(!key("0123456789abcdeF").verify(b"server", &[b"ab", b"c"], &proof));
        assert!(!key("0123456789abcdef").verify(b"client", &[b"ab", b"c"], &proof));
        assert!(!key("0123456789abcdef").verify(b"server", &[b"a", b"bc"], &proof));
        let other_job = Secret::new("0123456789abcdef").expect("long enough").for_job("other");
        assert!(!other_job.verify(b"server", &[b"ab", b"c"], &proof));
    }

    #[test]
    fn a_repeated_or_changed_frame_is_rejected() {
        let mut sender = key("0123456789abcdef").derive(b"up", &[]);
        let mut receiver = sender.clone();
        let (first, second) = (sender.sign(&[b"one"]), sender.sign(&[b"two"]));
        assert!(receiver.clone().verify(&[b"one"], &first));
        assert!(!receiver.clone().verify(&[b"onE"], &first));
        assert!(!receiver.clone().verify(&[b"two"], &second), "the second frame cannot come first");
        assert!(receiver.verify(&[b"one"], &first));
        assert!(!receiver.clone().verify(&[b"one"], &first), "the first frame cannot be repeated");
        assert!(receiver.verify(&[b"two"], &second));
    }
}
