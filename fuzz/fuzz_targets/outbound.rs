//! Any body of an answer: no panic, nothing changed but the version's name, and nothing left to change.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use model_deployment_operator::server::objects::translate::outbound;

fuzz_target!(|body: &[u8]| {
    let passed = outbound(Bytes::copy_from_slice(body)).body;
    assert_eq!(outbound(passed.clone()).body, passed);
    // A name that is spelled with escapes is written plainly.
    if !body.contains(&b'\\') {
        assert_eq!(unversioned(&passed), unversioned(body));
    }
});

fn unversioned(body: &[u8]) -> String {
    String::from_utf8_lossy(body).replace("worker.gpustack.ai/v1alpha1", "worker.gpustack.ai/v1")
}
