//! Owns the tool modules under `tools/`: which package of which module each program is, how it is built, and the version it is
//! told to report (test-cluster contract, section 1). Refuses to know what the programs do.

use std::{
    fs,
    path::{Path, PathBuf},
};

use tokio::process::Command;

use super::{Error, build, cache::Cache};

const REMEDY: &str = "install Go 1.26 or newer, or set KUBEBUILDER_ASSETS and put helm on PATH";

/// What does not follow from a module's files.
pub(super) struct Description {
    /// Folder under `tools/`.
    name: &'static str,
    /// The module whose version is the programs' version.
    requires: &'static str,
    /// Program -> package.
    packages: &'static [(&'static str, &'static str)],
    tags: &'static str,
    /// Linker flags that make the programs report this version.
    stamp: fn(&str) -> String,
}

pub(super) const KUBERNETES: Description = Description {
    name: "kubernetes",
    requires: "k8s.io/kubernetes",
    packages: &[
        ("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
        (
            "kube-controller-manager",
            "k8s.io/kubernetes/cmd/kube-controller-manager",
        ),
        ("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
    ],
    tags: "",
    stamp: |version| {
        let (major, minor) = super::found::version(version).unwrap_or_default();
        [
            ("gitVersion", version),
            ("gitMajor", &major.to_string()),
            ("gitMinor", &minor.to_string()),
            ("gitTreeState", "clean"),
        ]
        .map(|(name, value)| format!(" -X k8s.io/component-base/version.{name}={value}"))
        .concat()
    },
};

pub(super) const ETCD: Description = Description {
    name: "etcd",
    requires: "go.etcd.io/etcd/server/v3",
    packages: &[("etcd", "go.etcd.io/etcd/server/v3")],
    tags: "",
    stamp: |_| String::new(),
};

pub(super) const HELM: Description = Description {
    name: "helm",
    requires: "helm.sh/helm/v4",
    packages: &[("helm", "helm.sh/helm/v4/cmd/helm")],
    tags: "",
    stamp: |version| format!(" -X helm.sh/helm/v4/internal/version.version={version}"),
};

pub(super) const PROMETHEUS: Description = Description {
    name: "prometheus",
    requires: "github.com/prometheus/prometheus",
    packages: &[
        ("prometheus", "github.com/prometheus/prometheus/cmd/prometheus"),
        ("promtool", "github.com/prometheus/prometheus/cmd/promtool"),
    ],
    // Only the discovery of Kubernetes is used; the others are most of the build.
    tags: "remove_all_sd,enable_kubernetes_sd",
    stamp: |_| String::new(),
};

/// A tool module with its files read.
pub(super) struct Module {
    description: &'static Description,
    folder: PathBuf,
    version: String,
    files: [Vec<u8>; 2],
}

impl Module {
    pub(super) fn read(description: &'static Description) -> Result<Self, Error> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tools")
            .join(description.name);
        let read = |file| {
            let path = folder.join(file);
            fs::read(&path).map_err(|source| Error::File {
                what: "read",
                path,
                source,
            })
        };
        let files = [read("go.mod")?, read("go.sum")?];
        let version =
            required(&String::from_utf8_lossy(&files[0]), description.requires).ok_or_else(|| Error::NoVersion {
                path: folder.join("go.mod"),
                module: description.requires,
            })?;
        Ok(Self {
            description,
            folder,
            version,
            files,
        })
    }

    /// The minor version of what the module builds.
    pub(super) fn minor(&self) -> u32 {
        super::found::version(&self.version).unwrap_or_default().1
    }

    /// A program of this module: out of the cache, or built into it.
    pub(super) async fn program(&self, cache: &Cache, name: &str) -> Result<PathBuf, Error> {
        let flags = format!("-s -w{}", (self.description.stamp)(&self.version));
        let sources = [
            &self.files[0][..],
            &self.files[1],
            flags.as_bytes(),
            self.description.tags.as_bytes(),
        ];
        let entry = cache.entry(self.description.name, &sources)?;
        let program = entry.path().join(name);
        if program.exists() {
            return Ok(program);
        }
        let what = format!("building {name} {}", self.version);
        let _lock = entry.lock(&what).await?;
        if program.exists() {
            return Ok(program);
        }
        let package = self
            .description
            .packages
            .iter()
            .find(|(program, _)| *program == name)
            .map_or(name, |(_, package)| package);
        let unfinished = entry.path().join(format!("{name}.unfinished"));
        let mut go = Command::new("go");
        go.current_dir(&self.folder)
            .env("CGO_ENABLED", "0")
            .env("GOWORK", "off")
            .args([
                "build",
                "-mod=readonly",
                "-trimpath",
                "-ldflags",
                &flags,
                "-tags",
                self.description.tags,
                "-o",
            ])
            .args([unfinished.as_os_str(), package.as_ref()]);
        build(&what, go, REMEDY).await?;
        fs::rename(&unfinished, &program).map_err(|source| Error::File {
            what: "name",
            path: program.clone(),
            source,
        })?;
        Ok(program)
    }
}

/// The version of `module` that the text of a go.mod file requires.
fn required(text: &str, module: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let mut words = line.trim().trim_start_matches("require ").split_whitespace();
        let version = (words.next()? == module).then(|| words.next())??;
        version.starts_with('v').then(|| version.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_the_required_one_in_either_form_of_a_go_mod_file() {
        let text =
            "module tools/x\n\ntool a.b/c/cmd\n\nrequire a.b/c v1.2.3\n\nrequire (\n\ta.b/d/v4 v4.5.6 // indirect\n)\n";
        assert_eq!(required(text, "a.b/c").as_deref(), Some("v1.2.3"));
        assert_eq!(required(text, "a.b/d/v4").as_deref(), Some("v4.5.6"));
        assert_eq!(required(text, "a.b/d"), None);
    }

    #[test]
    fn every_tool_module_names_its_version_and_its_packages() {
        for description in [&KUBERNETES, &ETCD, &HELM, &PROMETHEUS] {
            let module = Module::read(description).unwrap();
            let text = String::from_utf8(module.files[0].clone()).unwrap();
            for (_, package) in description.packages {
                assert!(
                    text.lines()
                        .any(|line| line.trim().trim_start_matches("tool ") == *package),
                    "{package}"
                );
            }
        }
    }
}
