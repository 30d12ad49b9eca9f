//! What runs in a container: decided by its image.
//!
//! Owns the table of images. Refuses to know how a program is started.

use std::path::{Path, PathBuf};

/// What an image stands for here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Image {
    /// The operator: the binary just built.
    Operator,
    /// vllm-router, from its wheel.
    VllmRouter,
    /// The SGLang gateway 0.3, from the `sglang-router` wheel.
    SglangGateway,
    /// The SGLang gateway 1.x, from the `smg` wheel.
    Smg,
    /// Prometheus.
    Prometheus,
    /// Something that cannot run here and only has to listen on its declared ports.
    Stub,
    /// An engine, which a fake plays.
    Engine,
}

/// Repositories whose programs cannot run here: the routing side of llm-d.
const STUBS: &[&str] = &[
    "llm-router",
    "llm-d",
    "envoy",
    "routing-sidecar",
    "routing-proxy",
    "coordinator",
];

impl Image {
    /// Reads an image reference; registry, tag and digest decide nothing.
    pub(super) fn of(reference: &str) -> Self {
        let reference = reference.split('@').next().unwrap_or_default();
        let (path, last) = reference.rsplit_once('/').unwrap_or(("", reference));
        let name = last.split(':').next().unwrap_or_default();
        match name {
            "model-deployment-operator" => Self::Operator,
            "vllm-router" => Self::VllmRouter,
            "sgl-model-gateway" | "sglang-router" => Self::SglangGateway,
            "smg" => Self::Smg,
            "prometheus" if path.ends_with("prom") || path.ends_with("prometheus") => Self::Prometheus,
            _ if STUBS.iter().any(|stub| name.contains(stub)) => Self::Stub,
            _ => Self::Engine,
        }
    }

    /// Where the image's process starts when the Pod names no working directory.
    pub(super) fn directory(self) -> &'static str {
        match self {
            Self::Prometheus => "/prometheus",
            _ => "/",
        }
    }
}

/// Where the real programs are.
#[derive(Debug, Clone)]
pub(super) struct Programs {
    pub(super) operator: PathBuf,
    pub(super) routers: PathBuf,
    pub(super) prometheus: Option<PathBuf>,
}

/// A program of this machine and its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Invocation {
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
}

impl Programs {
    /// How this machine runs `image` with a Pod's `command` and `args`; `None` for what is played in this process.
    ///
    /// # Errors
    /// One sentence, if the program is not here.
    pub(super) fn invocation(
        &self,
        image: Image,
        command: &[String],
        args: &[String],
    ) -> Result<Option<Invocation>, String> {
        // The image's own entry point stands in the place of a command.
        let argv: Vec<String> = command.iter().skip(1).chain(args).cloned().collect();
        let python = self.routers.join("bin/python");
        let script = |name: &str| self.routers.join("bin").join(name).display().to_string();
        let started_by_python = command.first().is_some_and(|c| {
            let name = Path::new(c).file_name().unwrap_or_default();
            name.to_string_lossy().starts_with("python")
        });
        // Without a command, some write the program's name as the first argument all the same.
        let named = |names: &[&str]| {
            let words = argv.iter().skip_while(|word| names.contains(&word.as_str()));
            words.cloned().collect::<Vec<_>>()
        };
        let through_python = |before: Vec<String>, words: Vec<String>| Invocation {
            program: python.clone(),
            arguments: before.into_iter().chain(words).collect(),
        };
        let invocation = match image {
            Image::Engine | Image::Stub => return Ok(None),
            Image::Operator => Invocation {
                program: self.operator.clone(),
                arguments: argv,
            },
            Image::Prometheus => {
                let program = self.prometheus.clone();
                let program = program.ok_or("Prometheus was not built for this cluster")?;
                Invocation {
                    program,
                    arguments: argv,
                }
            }
            _ if started_by_python => through_python(Vec::new(), argv),
            Image::VllmRouter => through_python(vec![inside(&script("vllm-router"))], named(&["vllm-router"])),
            Image::SglangGateway => {
                let module = ["-m", "sglang_router.launch_router"].map(str::to_owned);
                through_python(
                    module.to_vec(),
                    named(&["sgl-model-gateway", "sglang-router", "launch"]),
                )
            }
            Image::Smg => through_python(
                vec![inside(&script("smg")), "launch".to_owned()],
                named(&["smg", "launch"]),
            ),
        };
        Ok(Some(invocation))
    }
}

/// Scripts are named as the sandbox sees them.
fn inside(path: &str) -> String {
    crate::sandbox::host_path(Path::new(path)).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_of_this_project() {
        for (reference, image) in [
            ("gpustack/model-deployment-operator:0.1.0", Image::Operator),
            (
                "registry.example:5000/gpustack/model-deployment-operator@sha256:00",
                Image::Operator,
            ),
            ("vllm/vllm-router:v0.1.17", Image::VllmRouter),
            ("lmsysorg/sgl-model-gateway:v0.3.2", Image::SglangGateway),
            ("example/smg:1.13.0", Image::Smg),
            ("prom/prometheus:v3.16.0", Image::Prometheus),
            ("quay.io/prometheus/prometheus:v3.16.0", Image::Prometheus),
            ("gpustack/llm-router:v0.3.1", Image::Stub),
            ("envoyproxy/envoy:v1", Image::Stub),
            ("vllm/vllm-openai:v0.32.0", Image::Engine),
            ("lmsysorg/sglang:v0.5.23", Image::Engine),
        ] {
            assert_eq!(Image::of(reference), image, "{reference}");
        }
    }

    #[test]
    fn the_rendered_arguments_reach_the_wheel_unchanged() {
        let programs = Programs {
            operator: "/op".into(),
            routers: "/venv".into(),
            prometheus: None,
        };
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let run = |image, command: &str, args: &str| {
            let invocation = programs
                .invocation(image, &words(command), &words(args))
                .unwrap()
                .unwrap();
            format!("{} {}", invocation.program.display(), invocation.arguments.join(" "))
        };
        let selector = "--selector a=b c=d --port 8081";
        assert_eq!(
            run(Image::VllmRouter, "vllm-router", selector),
            format!("/venv/bin/python /.host/venv/bin/vllm-router {selector}")
        );
        assert_eq!(
            run(Image::SglangGateway, "sgl-model-gateway --host=0.0.0.0", ""),
            "/venv/bin/python -m sglang_router.launch_router --host=0.0.0.0"
        );
        assert_eq!(
            run(Image::Smg, "", "launch --port 1"),
            "/venv/bin/python /.host/venv/bin/smg launch --port 1"
        );
        assert_eq!(
            run(Image::Operator, "/model-deployment-operator run", "--lease-name=x"),
            "/op run --lease-name=x"
        );
        assert_eq!(run(Image::Operator, "", "run"), "/op run");
        assert!(
            programs
                .invocation(Image::Prometheus, &[], &[])
                .unwrap_err()
                .contains("not built")
        );
    }
}
