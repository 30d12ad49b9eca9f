//! Any stream, split anywhere: no panic, and the same events as in one piece, each as it would be answered alone.

#![no_main]

use libfuzzer_sys::fuzz_target;
use model_deployment_operator::server::objects::translate::Frames;

fuzz_target!(|input: (u8, &[u8])| {
    let (size, stream) = input;
    let whole = pass([stream]);
    assert_eq!(pass(stream.chunks(usize::from(size).max(1))), whole);
    assert_eq!(pass(stream.split_inclusive(|byte| *byte == b'\n')), whole);
});

fn pass<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut frames = Frames::default();
    let mut passed = Vec::new();
    for chunk in chunks {
        let Ok(events) = frames.push(chunk) else { return passed };
        passed.extend_from_slice(&events.body);
    }
    passed.extend_from_slice(&frames.finish().body);
    passed
}
