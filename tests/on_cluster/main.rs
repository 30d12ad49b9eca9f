//! Tests on a real control plane: etcd, kube-apiserver and kube-controller-manager run, helm installs the chart, kubectl applies,
//! and the operator runs as the Pods of its own Deployment. One cluster serves the whole run; each test has a namespace of its own.
//!
//! An executable without the ordinary harness, since a cluster needs a process of one thread to begin with.

mod answer;
mod bodies;
mod crowd;
mod deployment;
mod draining;
mod edits;
mod ending;
mod front_proxy;
mod generated;
#[path = "../generator/mod.rs"]
mod generator;
mod idle;
mod installation;
mod objects;
mod obstacles;
mod offline;
mod plugin;
mod polling;
mod prometheus;
mod quantiles;
mod replicas;
mod request;
mod resource;
mod rollout;
mod rotation;
mod routers;
mod scenario;
mod serving;
mod straight;
mod subresource;
mod telemetry;
mod windows;

use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Conclusion, Failed, Trial};
use test_cluster::{Cluster, Setup};

use scenario::{Scenario, Test};

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    if arguments.list {
        return libtest_mimic::run(&arguments, trials(&tests(), None)).exit_code();
    }
    test_cluster::run(Setup { prometheus: true }, async move |cluster| {
        run(cluster, arguments).await
    })
}

/// Every test that may run beside others.
fn tests() -> Vec<Test> {
    [
        resource::tests(),
        deployment::tests(),
        subresource::tests(),
        objects::tests(),
        offline::tests(),
        plugin::tests(),
        routers::tests(),
        rollout::tests(),
        windows::tests(),
        replicas::tests(),
        idle::tests(),
        bodies::tests(),
        polling::tests(),
        crowd::tests(),
        quantiles::tests(),
        obstacles::tests(),
        generated::tests(),
    ]
    .concat()
}

/// Runs the tests, then those that change the installation, one after the other.
async fn run(cluster: Cluster, arguments: Arguments) -> ExitCode {
    let scenario = match Scenario::install(cluster).await {
        Ok(scenario) => Arc::new(scenario),
        Err(failure) => {
            eprintln!("the chart could not be installed: {failure}");
            return ExitCode::FAILURE;
        }
    };
    // Prometheus scrapes every Pod of the cluster, which other tests count.
    let alone = [
        edits::tests(),
        replicas::alone(),
        prometheus::tests(),
        telemetry::tests(),
        draining::tests(),
        serving::tests(),
        rotation::tests(),
        ending::tests(),
        obstacles::alone(),
        installation::tests(),
    ]
    .concat();
    // Beside each other they mostly wait for the cluster: two a core.
    let beside = 2 * std::thread::available_parallelism().map_or(1, usize::from);
    let phases = [(tests(), arguments.test_threads.unwrap_or(beside)), (alone, 1)];
    let mut passed = true;
    for (tests, threads) in phases {
        let mut arguments = arguments.clone();
        arguments.test_threads = Some(threads);
        let trials = trials(&tests, Some(&scenario));
        let conclusion = tokio::task::spawn_blocking(move || libtest_mimic::run(&arguments, trials)).await;
        passed &= conclusion.is_ok_and(|conclusion: Conclusion| !conclusion.has_failed());
    }
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn trials(tests: &[Test], scenario: Option<&Arc<Scenario>>) -> Vec<Trial> {
    let runtime = tokio::runtime::Handle::try_current().ok();
    tests
        .iter()
        .map(|test| {
            let (body, scenario, runtime) = (test.body, scenario.cloned(), runtime.clone());
            Trial::test(test.name, move || {
                let (scenario, runtime) = scenario.zip(runtime).ok_or("no cluster")?;
                runtime
                    .block_on(body(scenario))
                    .map_err(|failure| Failed::from(failure.to_string()))
            })
        })
        .collect()
}
