//! Tests on a real control plane: etcd, kube-apiserver and kube-controller-manager run, helm installs the chart, kubectl applies,
//! and the operator runs as the Pods of its own Deployment. Two clusters serve the whole run, side by side: one the tests that have a
//! namespace of their own each, the other those that change what all stand on.
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
mod second;
mod serving;
mod straight;
mod subresource;
mod telemetry;
mod windows;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Conclusion, Failed, Trial};
use test_cluster::{Cluster, Setup};

use scenario::{Scenario, Test};
use second::Second;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    if arguments.list {
        let all = [tests(), alone(), installation::last()].concat();
        return libtest_mimic::run(&arguments, trials(&all, None)).exit_code();
    }
    test_cluster::run(
        Setup { prometheus: true },
        async move |cluster| match second::audit_copy() {
            Some(copy) => run_alone(cluster, arguments, &copy).await,
            None => run(cluster, arguments).await,
        },
    )
}

/// Every test that may run beside others.
fn tests() -> Vec<Test> {
    [
        // The longest first: an authority is trusted for two minutes before it issues.
        rotation::tests(),
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

/// Those that change the installation, in this order.
fn alone() -> Vec<Test> {
    [
        edits::tests(),
        replicas::alone(),
        // Prometheus scrapes every Pod of the cluster, which other tests count.
        prometheus::tests(),
        telemetry::tests(),
        draining::tests(),
        serving::tests(),
        rotation::alone(),
        ending::tests(),
        obstacles::alone(),
        installation::tests(),
    ]
    .concat()
}

/// The first cluster: the tests beside each other, and what is to be said of both clusters once the second has ended.
async fn run(cluster: Cluster, arguments: Arguments) -> ExitCode {
    let started = match trials(&alone(), None)
        .iter()
        .all(|trial| arguments.is_filtered_out(trial))
    {
        true => Ok(None),
        false => Second::start(&cluster).map(Some),
    };
    let second = match started {
        Ok(second) => second,
        Err(error) => {
            eprintln!("the second cluster could not be started: {error}");
            return ExitCode::FAILURE;
        }
    };
    let Some(scenario) = install(cluster).await else {
        return ExitCode::FAILURE;
    };
    // Beside each other they mostly wait for the cluster: two a core.
    let beside = 2 * std::thread::available_parallelism().map_or(1, usize::from);
    let threads = arguments.test_threads.unwrap_or(beside);
    let mut passed = phase(&arguments, threads, &tests(), &scenario).await;
    if let Some(second) = second {
        passed &= second.ended().await;
    }
    passed &= phase(&arguments, 1, &installation::last(), &scenario).await;
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The second cluster, whose audit log outlives it.
async fn run_alone(cluster: Cluster, arguments: Arguments, audit_copy: &Path) -> ExitCode {
    let Some(scenario) = install(cluster).await else {
        return ExitCode::FAILURE;
    };
    let passed = phase(&arguments, 1, &alone(), &scenario).await;
    match std::fs::copy(scenario.cluster.audit_log(), audit_copy) {
        Ok(_) if passed => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("the audit log could not be kept: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn install(cluster: Cluster) -> Option<Arc<Scenario>> {
    match Scenario::install(cluster).await {
        Ok(scenario) => Some(Arc::new(scenario)),
        Err(failure) => {
            eprintln!("the chart could not be installed: {failure}");
            None
        }
    }
}

/// Runs these tests, so many at a time. Whether all passed.
async fn phase(arguments: &Arguments, threads: usize, tests: &[Test], scenario: &Arc<Scenario>) -> bool {
    let mut arguments = arguments.clone();
    arguments.test_threads = Some(threads);
    let trials = trials(tests, Some(scenario));
    let conclusion = tokio::task::spawn_blocking(move || libtest_mimic::run(&arguments, trials)).await;
    conclusion.is_ok_and(|conclusion: Conclusion| !conclusion.has_failed())
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
