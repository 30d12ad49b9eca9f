//! The certificates' keeper against a played API server.
