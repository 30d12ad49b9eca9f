//! The kubectl plug-in against a played API server.

mod played;

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;

use played::Played;

const PATH: &str = "/apis/worker.gpustack.ai/v1/namespaces/team/modeldeployments/chat/metrics";

/// One gauge and one member that this program does not know.
fn answer(running: u32) -> String {
    json!({
        "apiVersion": "worker.gpustack.ai/v1", "kind": "ModelDeploymentMetrics",
        "metadata": {"name": "chat", "namespace": "team"}, "timestamp": "2026-01-02T03:04:05.000006Z",
        "processing": [{"name": "running", "source": "vllm:num_requests_running", "scope": "engine", "role": "server",
            "roleKind": "Server", "unit": "requests", "value": running, "podCount": 1, "expectedPods": 1,
            "observedAt": "2026-01-02T03:04:04.000006Z"}],
        "partial": false, "newer": [],
    })
    .to_string()
}

fn table(running: u32) -> String {
    format!(
        "chat in team, 2026-01-02T03:04:05.000006Z\n\nROLE    POD  PODS  RUNNING\nserver        1/1  {running:>7}\n\nNothing is missing.\n"
    )
}

fn status(code: u16, message: &str) -> (u16, String) {
    let status = json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure", "code": code, "message": message});
    (code, status.to_string())
}

/// A kubeconfig whose current context is of namespace `team`.
struct Home {
    folder: TempDir,
}

impl Home {
    fn new(server: &Played) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let context = |name: &str, namespace: &str| json!({"name": name, "context": {"cluster": "c", "user": "u", "namespace": namespace}});
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "one",
            "clusters": [{"name": "c", "cluster": {"server": format!("http://{}", server.address)}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [context("one", "team"), context("two", "other")],
        });
        std::fs::write(folder.path().join("config"), config.to_string()).unwrap();
        Self { folder }
    }

    fn config(&self) -> PathBuf {
        self.folder.path().join("config")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-modeldeployment"));
        command.env("KUBECONFIG", self.config()).arg("metrics").args(arguments);
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn the_table_is_shown_and_json_and_yaml_hold_all_that_was_answered() {
    let home = Home::new(&Played::start(|_| (200, answer(3))));
    let output = home.run(&["chat"]);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
    assert_eq!(text(&output.stdout), table(3));
    assert_eq!(text(&home.run(&["chat", "-o", "json"]).stdout), answer(3));
    let shown: Value = serde_yaml::from_slice(&home.run(&["chat", "-o", "yaml"]).stdout).unwrap();
    assert_eq!(shown, serde_yaml::from_str::<Value>(&answer(3)).unwrap());
}

#[test]
fn the_query_the_namespace_and_the_context_are_the_callers() {
    let server = Played::start(|_| (200, answer(3)));
    let home = Home::new(&server);
    let config = home.config();
    let config = config.to_str().unwrap();
    for (arguments, asked) in [
        (&["chat"][..], PATH.to_owned()),
        (
            &["chat", "--window", "2s", "--view", "full"],
            format!("{PATH}?window=2s&view=full"),
        ),
        (&["chat", "--window", "2 s&x"], format!("{PATH}?window=2%20s%26x")),
        (&["chat", "-o", "json"], format!("{PATH}?pretty=true")),
        (&["chat", "-n", "mine"], PATH.replace("team", "mine")),
        (&["chat", "--context", "two"], PATH.replace("team", "other")),
    ] {
        assert_eq!(home.run(arguments).status.code(), Some(0));
        assert_eq!(server.asked().last(), Some(&asked));
    }
    let output = home
        .command(&["chat", "--kubeconfig", config])
        .env("KUBECONFIG", "/nowhere")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn a_refusal_is_the_servers_sentence() {
    for (code, message, exit) in [
        (404, "modeldeployments.worker.gpustack.ai \"chat\" not found", 1),
        (503, "ModelDeployment chat has no Pods with metrics yet", 1),
        (400, "window must be a duration from 1s to 3s, not \"9s\"", 2),
    ] {
        let server = Played::start(move |_| status(code, message));
        let output = Home::new(&server).run(&["chat"]);
        assert_eq!(text(&output.stderr), format!("error: {message}\n"));
        assert_eq!(output.status.code(), Some(exit));
        assert_eq!(server.asked().len(), 1, "a refusal is not asked for again");
    }
}

#[test]
fn wrong_arguments_and_kubeconfigs_are_one_sentence_and_exit_status_2() {
    let home = Home::new(&Played::start(|_| (200, answer(3))));
    for (arguments, begins) in [
        (
            &["a/b"][..],
            "error: invalid value 'a/b' for '<NAME>': not a name of an object",
        ),
        (&[], "error: the following required arguments were not provided: <NAME>"),
        (&["chat", "--context", "three"], "error: cannot use the kubeconfig: "),
        (
            &["chat", "--kubeconfig", "/nowhere"],
            "error: cannot use the kubeconfig: ",
        ),
    ] {
        let output = home.run(arguments);
        let said = text(&output.stderr);
        assert!(said.starts_with(begins) && said.lines().count() == 1, "{said}");
        assert_eq!(output.status.code(), Some(2), "{said}");
    }
    let gone = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let config = std::fs::read_to_string(home.config()).unwrap();
    let mut config: Value = serde_json::from_str(&config).unwrap();
    config["clusters"][0]["cluster"]["server"] = json!(format!("http://{gone}"));
    std::fs::write(home.config(), config.to_string()).unwrap();
    let output = home.run(&["chat"]);
    let said = text(&output.stderr);
    assert!(
        said.starts_with("error: cannot reach the API server: ") && said.lines().count() == 1,
        "{said}"
    );
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn watching_goes_on_through_what_may_pass_and_ends_where_there_can_be_no_answer() {
    let server = Played::start(|number| match number {
        0 => (200, answer(3)),
        1 => status(503, "not now"),
        2 => (200, answer(4)),
        _ => status(404, "gone"),
    });
    let output = Home::new(&server).run(&["chat", "-w"]);
    // No terminal: one table after the other, and nothing that redraws.
    assert_eq!(text(&output.stdout), format!("{}\n{}", table(3), table(4)));
    assert_eq!(text(&output.stderr), "error: not now\nerror: gone\n");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn watching_ends_well_on_ctrl_c() {
    let home = Home::new(&Played::start(|_| (200, answer(3))));
    let mut child = home
        .command(&["chat", "--watch"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let last = lines.find(|line| line.as_ref().is_ok_and(|line| line == "Nothing is missing."));
    assert!(last.is_some());
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
