//! A Pod's volumes as folders of this machine, and the way from a path in a container to one.
//!
//! Owns Secret, ConfigMap, downward, projected and emptyDir volumes. Any other kind (a claim, a path of the node) is an empty
//! folder: nothing here has data for it.

use std::collections::BTreeMap;
use std::io;
use std::path::{Component, Path, PathBuf};

use k8s_openapi::api::core::v1::{
    ConfigMapProjection, Container, DownwardAPIProjection, DownwardAPIVolumeFile, KeyToPath, Pod, SecretProjection,
    Volume, VolumeProjection,
};

use super::environment::{self, Addresses, EnvironmentError};
use super::objects::{Entries, ObjectError, Objects};
use crate::sandbox::Mount;

/// Why a volume cannot be made.
#[derive(Debug, thiserror::Error)]
pub(super) enum VolumeError {
    #[error("volume {volume:?}: {source}")]
    Content { volume: String, source: EnvironmentError },
    #[error("volume {volume:?} cannot be written")]
    Write { volume: String, source: io::Error },
}

/// The volumes of one Pod, under one folder.
#[derive(Debug)]
pub(super) struct Volumes {
    folder: PathBuf,
}

impl Volumes {
    /// Makes every volume of the Pod.
    pub(super) async fn make(
        folder: PathBuf,
        pod: &Pod,
        addresses: Addresses,
        objects: &Objects,
    ) -> Result<Self, VolumeError> {
        for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
            let files = files(volume, pod, addresses, objects).await;
            let files = files.map_err(|source| VolumeError::Content {
                volume: volume.name.clone(),
                source,
            })?;
            let written = write(&folder.join(&volume.name), &files).await;
            written.map_err(|source| VolumeError::Write {
                volume: volume.name.clone(),
                source,
            })?;
        }
        Ok(Self { folder })
    }

    /// Where `mount` of a container comes from.
    fn source(&self, volume: &str, sub_path: Option<&str>) -> PathBuf {
        let source = self.folder.join(volume);
        match sub_path {
            Some(path) if !path.is_empty() => source.join(path),
            _ => source,
        }
    }

    /// The container's mounts. A `subPath` that does not exist becomes a folder, as in a real kubelet.
    pub(super) async fn mounts(&self, container: &Container) -> io::Result<Vec<Mount>> {
        let mut mounts = Vec::new();
        for mount in container.volume_mounts.iter().flatten() {
            let source = self.source(&mount.name, mount.sub_path.as_deref());
            if !tokio::fs::try_exists(&source).await? {
                tokio::fs::create_dir_all(&source).await?;
            }
            mounts.push(Mount {
                source,
                target: PathBuf::from(&mount.mount_path),
                read_only: mount.read_only.unwrap_or(false),
            });
        }
        Ok(mounts)
    }

    /// The file of this machine that the container knows as `path`; `None` if no volume holds it.
    pub(super) fn find(&self, container: &Container, path: &Path) -> Option<PathBuf> {
        let mounts = container.volume_mounts.iter().flatten();
        let under = mounts.filter_map(|mount| Some((mount, path.strip_prefix(&mount.mount_path).ok()?)));
        let (mount, rest) = under.max_by_key(|(mount, _)| mount.mount_path.len())?;
        let source = self.source(&mount.name, mount.sub_path.as_deref());
        Some(if rest.as_os_str().is_empty() {
            source
        } else {
            source.join(rest)
        })
    }
}

type Files = BTreeMap<String, Vec<u8>>;

async fn files(volume: &Volume, pod: &Pod, addresses: Addresses, objects: &Objects) -> Result<Files, EnvironmentError> {
    let mut files = Files::new();
    for source in sources(volume) {
        if let Some(secret) = &source.secret {
            let optional = secret.optional.unwrap_or(false);
            let entries = objects.secret(&secret.name, optional).await?;
            let items = secret.items.as_deref();
            select(&mut files, "Secret", &secret.name, entries, items, optional)?;
        }
        if let Some(map) = &source.config_map {
            let optional = map.optional.unwrap_or(false);
            let entries = objects.config_map(&map.name, optional).await?;
            select(
                &mut files,
                "ConfigMap",
                &map.name,
                entries,
                map.items.as_deref(),
                optional,
            )?;
        }
        if let Some(downward) = &source.downward_api {
            tell(&mut files, downward.items.as_deref(), pod, addresses)?;
        }
        if let Some(token) = &source.service_account_token {
            let text = objects
                .token(pod, token.audience.as_deref(), token.expiration_seconds)
                .await?;
            files.insert(token.path.clone(), text.into_bytes());
        }
    }
    Ok(files)
}

/// What a volume's files come from. A volume of one source is a projected volume of that one.
fn sources(volume: &Volume) -> impl Iterator<Item = VolumeProjection> {
    let secret = volume.secret.clone().map(|secret| VolumeProjection {
        secret: Some(SecretProjection {
            name: secret.secret_name.unwrap_or_default(),
            items: secret.items,
            optional: secret.optional,
        }),
        ..VolumeProjection::default()
    });
    let config_map = volume.config_map.clone().map(|map| VolumeProjection {
        config_map: Some(ConfigMapProjection {
            name: map.name,
            items: map.items,
            optional: map.optional,
        }),
        ..VolumeProjection::default()
    });
    let downward_api = volume.downward_api.clone().map(|downward| VolumeProjection {
        downward_api: Some(DownwardAPIProjection { items: downward.items }),
        ..VolumeProjection::default()
    });
    let projected = volume.projected.clone().and_then(|projected| projected.sources);
    let alone = [secret, config_map, downward_api].into_iter().flatten();
    alone.chain(projected.into_iter().flatten())
}

fn select(
    files: &mut Files,
    kind: &'static str,
    name: &str,
    entries: Entries,
    items: Option<&[KeyToPath]>,
    optional: bool,
) -> Result<(), ObjectError> {
    let Some(items) = items.filter(|items| !items.is_empty()) else {
        files.extend(entries);
        return Ok(());
    };
    let entries: Files = entries.into_iter().collect();
    for item in items {
        match entries.get(&item.key) {
            Some(value) => {
                files.insert(item.path.clone(), value.clone());
            }
            None if optional => {}
            None => {
                return Err(ObjectError::Key {
                    kind,
                    name: name.to_owned(),
                    key: item.key.clone(),
                });
            }
        }
    }
    Ok(())
}

fn tell(
    files: &mut Files,
    items: Option<&[DownwardAPIVolumeFile]>,
    pod: &Pod,
    addresses: Addresses,
) -> Result<(), EnvironmentError> {
    for item in items.into_iter().flatten() {
        let text = if let Some(field) = &item.field_ref {
            environment::field(pod, &field.field_path, addresses)?
        } else if let Some(selector) = &item.resource_field_ref {
            let name = selector.container_name.clone().unwrap_or_default();
            let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
            let container = containers.into_iter().find(|container| container.name == name);
            environment::resource(container.ok_or(EnvironmentError::Container(name))?, selector)?
        } else {
            continue;
        };
        files.insert(item.path.clone(), text.into_bytes());
    }
    Ok(())
}

async fn write(folder: &Path, files: &Files) -> io::Result<()> {
    tokio::fs::create_dir_all(folder).await?;
    for (name, content) in files {
        let inside = Path::new(name);
        if !inside.components().all(|part| matches!(part, Component::Normal(_))) {
            return Err(io::Error::other(format!("{name:?} leads out of the volume")));
        }
        let path = folder.join(inside);
        if let Some(parent) = path.parent() {
            tokio::fs::create_dir_all(parent).await?;
        }
        tokio::fs::write(&path, content).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_mount_holds_a_path() {
        let container: Container = serde_json::from_value(serde_json::json!({
            "name": "main",
            "volumeMounts": [
                {"name": "all", "mountPath": "/etc"},
                {"name": "tls", "mountPath": "/etc/tls"},
                {"name": "map", "mountPath": "/etc/one.yaml", "subPath": "one.yaml"},
            ],
        }))
        .unwrap();
        let volumes = Volumes { folder: "/v".into() };
        for (path, expected) in [
            ("/etc/tls/tls.crt", Some("/v/tls/tls.crt")),
            ("/etc/other", Some("/v/all/other")),
            ("/etc/one.yaml", Some("/v/map/one.yaml")),
            ("/usr/x", None),
        ] {
            assert_eq!(
                volumes.find(&container, Path::new(path)),
                expected.map(PathBuf::from),
                "{path}"
            );
        }
    }
}
