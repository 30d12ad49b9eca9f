//! The cluster itself: it answers, inside and on the host, and it leaves nothing behind, however it ends.
//!
//! Started without [`CASE`], this executable is the test run, and starts itself once for each case; started with it, it is the
//! host part of that case's cluster.

use std::{
    env, fs,
    io::{BufRead, BufReader, Read},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, ExitStatus, Stdio},
};

use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::{
    Api, Client, Config,
    api::ListParams,
    config::{KubeConfigOptions, Kubeconfig},
};
use libtest_mimic::{Arguments, Failed, Trial};
use nix::{
    sys::signal::{Signal, kill},
    unistd::{Pid, geteuid},
};
use test_cluster::{Cluster, Program, Setup};

/// Names the case to the host part and everything it starts.
const CASE: &str = "CONTROL_PLANE_CASE";
/// An exit code that nothing but the case itself returns.
const RETURNED: u8 = 42;

fn main() -> ExitCode {
    if let Ok(case) = env::var(CASE) {
        return test_cluster::run(Setup::default(), async |cluster| inside(&case, cluster).await);
    }
    let trials = vec![
        Trial::test("cluster_answers_inside_and_returns_the_closures_exit_code", answers),
        Trial::test("nothing_is_left_after_a_panic", panics),
        Trial::test(
            "cluster_answers_on_the_host_and_nothing_is_left_after_ctrl_c",
            interrupted,
        ),
        Trial::test("nothing_is_left_after_the_host_part_is_killed", killed),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

async fn inside(case: &str, cluster: Cluster) -> ExitCode {
    println!("{}", cluster.state_dir().display());
    println!("{}", fs::read_to_string("/proc/self/uid_map").unwrap().trim());
    match case {
        "answer" => answer(&cluster).await,
        "panic" => panic!("the panic that the case is about"),
        _ => std::future::pending().await,
    }
}

async fn answer(cluster: &Cluster) -> ExitCode {
    let ready = cluster.kubectl(&["get", "--raw", "/readyz"]).await.unwrap();
    assert_eq!(
        (ready.stdout.as_str(), ready.status.success()),
        ("ok", true),
        "{ready:?}"
    );
    let nodes = cluster.kubectl(&["get", "nodes", "--output=name"]).await.unwrap();
    assert_eq!(nodes.stdout, "node/n1\n", "{nodes:?}");
    let releases = cluster.helm(&["list", "--all-namespaces", "--short"]).await.unwrap();
    assert_eq!(
        (releases.stdout.as_str(), releases.status.success()),
        ("", true),
        "{releases:?}"
    );

    let namespace = cluster.namespace("fresh").await.unwrap();
    let pod = format!(
        r#"{{"apiVersion": "v1", "kind": "Pod", "metadata": {{"name": "p", "namespace": "{namespace}"}},
            "spec": {{"nodeName": "elsewhere", "containers": [{{"name": "c", "image": "i"}}]}}}}"#
    );
    let applied = cluster
        .kubectl_with_input(&["apply", "--filename=-"], &pod)
        .await
        .unwrap();
    assert_eq!(applied.stdout, "pod/p created\n", "{applied:?}");

    let stranger = cluster.client_as("stranger", &["visitors"]).unwrap();
    let refused = Api::<Node>::all(stranger)
        .list(&ListParams::default())
        .await
        .unwrap_err();
    assert!(
        matches!(&refused, kube::Error::Api(status) if status.code == 403),
        "{refused:?}"
    );
    let audit = fs::read_to_string(cluster.audit_log()).unwrap();
    assert!(
        audit
            .lines()
            .any(|line| line.contains(r#""username":"stranger""#) && line.contains(r#""code":403"#))
    );

    let config_maps = Api::<ConfigMap>::namespaced(cluster.client(), &namespace);
    cluster.kill_program(Program::ApiServer).await.unwrap();
    assert!(config_maps.list(&ListParams::default()).await.is_err());
    cluster.start_program(Program::ApiServer).await.unwrap();
    config_maps.list(&ListParams::default()).await.unwrap();
    ExitCode::from(RETURNED)
}

fn answers() -> Result<(), Failed> {
    let run = Run::start("answer", Rights::AsStarted)?;
    run.ends_with(|status| status.code() == Some(RETURNED.into()))
}

fn panics() -> Result<(), Failed> {
    let run = Run::start("panic", Rights::AsStarted)?;
    run.ends_with(|status| status.code() == Some(101))
}

fn interrupted() -> Result<(), Failed> {
    let run = Run::start("wait", Rights::OrdinaryUser)?;
    let nodes = tokio::runtime::Runtime::new()?.block_on(async {
        let kubeconfig = Kubeconfig::read_from(run.state.join("kubeconfig"))?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        let nodes = Api::<Node>::all(Client::try_from(config)?)
            .list(&ListParams::default())
            .await?;
        Ok::<_, Box<dyn std::error::Error>>(nodes.items.len())
    });
    assert_eq!(nodes.map_err(|error| error.to_string())?, 1);
    run.signal(Signal::SIGINT)?;
    run.ends_with(|status| status.code() == Some(130))
}

fn killed() -> Result<(), Failed> {
    let run = Run::start("wait", Rights::OrdinaryUser)?;
    run.signal(Signal::SIGKILL)?;
    run.ends_with(|status| status.signal() == Some(Signal::SIGKILL as i32))
}

/// With which rights a case's host part runs.
enum Rights {
    AsStarted,
    /// Without the right to make namespaces other than through a user namespace.
    OrdinaryUser,
}

/// A case's cluster that is up.
struct Run {
    host: Child,
    output: BufReader<std::process::ChildStdout>,
    state: PathBuf,
}

impl Run {
    fn start(case: &str, rights: Rights) -> Result<Self, Failed> {
        let executable = env::current_exe()?;
        let restricted = matches!(rights, Rights::OrdinaryUser);
        let mut command = if restricted && geteuid().is_root() {
            let mut command = Command::new("setpriv");
            command.args(["--bounding-set", "-sys_admin"]).arg(executable);
            command
        } else {
            Command::new(executable)
        };
        let mut host = command
            .env(CASE, case)
            // The panic of a case is no news.
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut output = BufReader::new(host.stdout.take().ok_or("no standard output")?);
        let [state, users] = [line(&mut output)?, line(&mut output)?];
        if restricted {
            assert!(users.ends_with(" 1"), "one user is known in a user namespace: {users}");
        }
        let state = PathBuf::from(state);
        assert!(state.is_dir(), "{} holds the cluster's state", state.display());
        assert!(!processes_of(&state).is_empty());
        Ok(Self { host, output, state })
    }

    fn signal(&self, signal: Signal) -> Result<(), Failed> {
        Ok(kill(Pid::from_raw(i32::try_from(self.host.id())?), signal)?)
    }

    /// Every part of the cluster holds standard output, so its end is the end of all of them.
    fn ends_with(mut self, expected: impl FnOnce(&ExitStatus) -> bool) -> Result<(), Failed> {
        self.output.read_to_end(&mut Vec::new())?;
        let status = self.host.wait()?;
        assert!(expected(&status), "{status}");
        assert!(!self.state.exists(), "{} is left", self.state.display());
        assert_eq!(processes_of(&self.state), Vec::<String>::new());
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        assert!(!mounts.contains(&*self.state.to_string_lossy()));
        Ok(())
    }
}

fn line(output: &mut impl BufRead) -> Result<String, Failed> {
    let mut line = String::new();
    match output.read_line(&mut line)? {
        0 => Err("the cluster ended before it was up".into()),
        _ => Ok(line.trim_end().to_owned()),
    }
}

/// The command lines of all processes that know the state folder by an argument or the environment.
fn processes_of(state: &Path) -> Vec<String> {
    let state = state.to_string_lossy();
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            // A process may end between being listed and being read.
            let read = |file| fs::read(entry.path().join(file)).map(|text| String::from_utf8_lossy(&text).into_owned());
            let (arguments, environment) = (read("cmdline").ok()?, read("environ").unwrap_or_default());
            (arguments.contains(&*state) || environment.contains(&*state)).then_some(arguments)
        })
        .collect()
}
