//! Any body of a request, read in each way: no panic, and nothing changed but the version's name.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use model_deployment_operator::server::objects::translate::{Inbound, inbound};

fuzz_target!(|body: &[u8]| {
    use Inbound::*;
    for kind in [Object, YamlObject, MergePatch, JsonPatch, ApplyPatch, Untouched] {
        let Ok(passed) = inbound(kind, Bytes::copy_from_slice(body)) else {
            continue;
        };
        // A name that is spelled with escapes is written plainly.
        if !body.contains(&b'\\') {
            assert_eq!(unversioned(&passed), unversioned(body), "{kind:?}");
        }
    }
});

fn unversioned(body: &[u8]) -> String {
    String::from_utf8_lossy(body).replace("worker.gpustack.ai/v1alpha1", "worker.gpustack.ai/v1")
}
