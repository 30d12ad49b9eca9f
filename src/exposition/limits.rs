//! The caps on what is kept of one body (exposition contract, "Select, then parse"). Knows no text.

/// Bytes of one line, without its line end. The parser is quadratic in the labels of a line: 1 MiB in one line costs it ten seconds.
pub(super) const LINE_BYTES: usize = 4 * 1024;

/// Labels of one sample. The widest real family (a gateway's) has under ten.
pub(super) const LABELS: usize = 64;

/// Bytes of kept lines of one body: five times what the widest real body gives, and 40 ms of the parser at its worst.
pub(super) const KEPT_BYTES: usize = 256 * 1024;

/// Series kept of one body: an engine with forty data-parallel ranks and all its buckets.
pub(super) const KEPT_SERIES: usize = 4096;
