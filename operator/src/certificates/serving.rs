//! The certificate that new connections are shown, swapped without a restart.
//!
//! Knows nothing of where it comes from.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use jiff::Timestamp;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::pair;

/// A handle to the certificate in force, empty until one was loaded. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct ServingCertificate(Arc<ArcSwapOption<CertifiedKey>>);

impl ServingCertificate {
    /// Whether connections can be served.
    pub fn is_loaded(&self) -> bool {
        self.0.load().is_some()
    }

    /// What new connections are shown.
    pub fn current(&self) -> Option<Arc<CertifiedKey>> {
        self.0.load_full()
    }

    /// When it stops to hold.
    pub fn expires(&self) -> Option<Timestamp> {
        pair::end(self.current()?.cert.first()?)
    }

    /// Shows `key` on every connection from now on.
    pub fn swap(&self, key: Arc<CertifiedKey>) {
        self.0.store(Some(key));
    }
}

impl ResolvesServerCert for ServingCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.load_full()
    }
}
