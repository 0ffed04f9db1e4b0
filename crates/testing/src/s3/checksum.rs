//! Checksums as stores send them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use md5::Md5;
use sha2::{Digest as _, Sha256};

/// Returns the MD5 of some bytes in base64.
pub(super) fn md5(bytes: &[u8]) -> String {
    base64(&Md5::digest(bytes))
}

pub(super) fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}
