//! Owns looking for what a person already has: envtest's folder, then kubectl and helm on `PATH`, each only if its version fits.
//! Refuses to build anything.

use std::{env, ffi::OsStr, path::PathBuf};

use tokio::process::Command;

/// The oldest API server that the operator supports: the oldest one in upstream support.
const OLDEST_API_SERVER: (u32, u32) = (1, 33);
/// The oldest helm 3 that the chart is meant for; helm 4 fits as it is.
const OLDEST_HELM: (u32, u32) = (3, 18);

/// What setup-envtest installs.
pub(super) struct Assets {
    pub(super) kube_apiserver: PathBuf,
    pub(super) etcd: PathBuf,
    pub(super) kubectl: PathBuf,
    /// Minor version of the API server.
    pub(super) minor: u32,
}

/// The programs in `KUBEBUILDER_ASSETS`, if it is set and its API server is not too old.
pub(super) async fn assets() -> Option<Assets> {
    let folder = PathBuf::from(env::var_os("KUBEBUILDER_ASSETS")?);
    let [kube_apiserver, etcd, kubectl] = ["kube-apiserver", "etcd", "kubectl"].map(|name| folder.join(name));
    match reported(&kube_apiserver, &["--version"]).await {
        Some(version) if version >= OLDEST_API_SERVER && etcd.exists() && kubectl.exists() => Some(Assets {
            kube_apiserver,
            etcd,
            kubectl,
            minor: version.1,
        }),
        version => {
            let (major, minor) = OLDEST_API_SERVER;
            let found = version.map_or("no API server that runs".to_owned(), |(major, minor)| {
                format!("version {major}.{minor}")
            });
            eprintln!(
                "KUBEBUILDER_ASSETS is not used: it needs kube-apiserver {major}.{minor} or newer, etcd and kubectl, and has {found}"
            );
            None
        }
    }
}

/// The kubectl on `PATH`, if it is within one minor version of the API server, as kubectl's skew policy wants.
pub(super) async fn kubectl(api_server_minor: u32) -> Option<PathBuf> {
    let path = on_path("kubectl")?;
    let (major, minor) = reported(&path, &["version", "--client"]).await?;
    (major == 1 && minor.abs_diff(api_server_minor) <= 1).then_some(path)
}

/// The helm on `PATH`, if it is not too old.
pub(super) async fn helm() -> Option<PathBuf> {
    let path = on_path("helm")?;
    (reported(&path, &["version", "--short"]).await? >= OLDEST_HELM).then_some(path)
}

fn on_path(name: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

async fn reported(program: impl AsRef<OsStr>, arguments: &[&str]) -> Option<(u32, u32)> {
    let output = Command::new(program)
        .args(arguments)
        .kill_on_drop(true)
        .output()
        .await
        .ok()?;
    version(&String::from_utf8_lossy(&output.stdout))
}

/// The first `v<major>.<minor>` of a text.
pub(super) fn version(text: &str) -> Option<(u32, u32)> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '.')
        .find_map(|word| {
            let mut numbers = word.strip_prefix('v')?.split('.');
            Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_what_the_programs_print() {
        for (text, expected) in [
            ("Kubernetes v1.37.2\n", Some((1, 37))),
            (
                "Client Version: v1.32.4-dispatcher\nKustomize Version: v5.5.0\n",
                Some((1, 32)),
            ),
            ("v4.3.1+g0123456\n", Some((4, 3))),
            ("v3.18.0\n", Some((3, 18))),
            ("Server version: unknown\n", None),
            ("", None),
        ] {
            assert_eq!(version(text), expected, "{text}");
        }
    }
}
