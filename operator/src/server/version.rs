//! What this program says of its own version.

use k8s_openapi::apimachinery::pkg::version::Info;

/// The answer to `/version`. The Go members are there because clients read them, and are empty because there is no Go here.
pub fn info() -> Info {
    Info {
        major: env!("CARGO_PKG_VERSION_MAJOR").to_owned(),
        minor: env!("CARGO_PKG_VERSION_MINOR").to_owned(),
        git_version: concat!("v", env!("CARGO_PKG_VERSION")).to_owned(),
        compiler: "rustc".to_owned(),
        platform: format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
        ..Default::default()
    }
}
