//! Everything that is rendered for one ModelDeployment. Pods, and the Services of replicas of several Pods, are made on demand: a role
//! may have a thousand replicas.

use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use model_deployment_crds::role::{Role, RoleKind};

use super::engine::Engine;
use super::object::Object;
use super::router::RouterPlan;
use super::setting::Setting;
use super::{Refusal, pod, ports, revision, router, service};
use crate::pod::labels::{self, Position};
use crate::pod::{Facts, Member, Producer};

/// Everything that is rendered for one ModelDeployment.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The Service named after the deployment, then one a role.
    pub services: Vec<Service>,
    /// The router.
    pub router: Option<RouterPlan>,
    /// The coordinator.
    pub coordinator: Option<RouterPlan>,
    /// The roles, in the order of the spec.
    pub roles: Vec<RolePlan>,
    /// URL inside the cluster at which requests are taken: the router's where there is one.
    pub endpoint: String,
}

/// One role: its Pods are made on demand.
#[derive(Clone, Debug)]
pub struct RolePlan {
    /// The role's name.
    pub name: String,
    /// The role's kind.
    pub kind: RoleKind,
    /// The program whose metrics its Pods serve.
    pub producer: Producer,
    /// Replicas wanted.
    pub replicas: u32,
    /// Pods a replica.
    pub size: u32,
    /// Whether a user's `command` took the role over.
    pub take_over: bool,
    /// Hash of what is rendered into the Pods of a replica.
    pub revision: String,
    instance: String,
    metadata: ObjectMeta,
    leader: (Pod, Facts),
    follower: (Pod, Facts),
}

impl RolePlan {
    /// The name of one Pod: `<md>-<role>-<ordinal>`, and `-<member>` in a replica of several Pods.
    pub fn pod_name(&self, position: Position) -> String {
        let replica = self.replica_name(position.ordinal);
        if self.size > 1 {
            format!("{replica}-{}", position.member)
        } else {
            replica
        }
    }

    /// One Pod.
    pub fn pod(&self, position: Position) -> Pod {
        let (template, _) = self.template(position.member);
        pod::place(template, &self.instance, &self.name, self.size, position)
    }

    /// What the Pods of a member are created with.
    pub fn facts(&self, member: u32) -> &Facts {
        &self.template(member).1
    }

    /// The headless Service of one replica, if replicas are of several Pods.
    pub fn replica_service(&self, ordinal: u32) -> Option<Service> {
        (self.size > 1).then(|| service::of_replica(&self.metadata, &self.instance, &self.name, ordinal))
    }

    /// The name of a replica, and of its [`Self::replica_service`].
    fn replica_name(&self, ordinal: u32) -> String {
        format!("{}-{}-{ordinal}", self.instance, self.name)
    }

    /// Every position of the role, replica by replica.
    pub fn positions(&self) -> impl Iterator<Item = Position> + use<> {
        let size = self.size;
        (0..self.replicas).flat_map(move |ordinal| (0..size).map(move |member| Position { ordinal, member }))
    }

    fn template(&self, member: u32) -> &(Pod, Facts) {
        if member == 0 { &self.leader } else { &self.follower }
    }
}

impl Plan {
    /// Every object in the order of creation: [`Self::objects_but_pods`], then the Pods of every role.
    pub fn objects(&self) -> impl Iterator<Item = Object> + '_ {
        let pods = self
            .roles
            .iter()
            .flat_map(|role| role.positions().map(|position| role.pod(position)));
        self.objects_but_pods().chain(pods.map(Object::from))
    }

    /// Services, then the router and the coordinator, in the order of creation.
    pub fn objects_but_pods(&self) -> impl Iterator<Item = Object> + '_ {
        let services = self.services.iter().cloned().map(Object::from);
        let replicas = self
            .roles
            .iter()
            .flat_map(|role| (0..role.replicas).filter_map(|ordinal| role.replica_service(ordinal)));
        let routers = [&self.router, &self.coordinator]
            .into_iter()
            .flatten()
            .flat_map(RouterPlan::objects);
        services.chain(replicas.map(Object::from)).chain(routers)
    }
}

impl RouterPlan {
    /// Its objects in the order of creation.
    pub fn objects(&self) -> Vec<Object> {
        let mut objects = Vec::new();
        if let Some(identity) = &self.identity {
            objects.push(identity.service_account.clone().into());
            objects.push(identity.role.clone().into());
            objects.push(identity.role_binding.clone().into());
        }
        objects.extend(self.config_map.clone().map(Object::from));
        objects.push(self.deployment.clone().into());
        objects.push(self.service.clone().into());
        objects
    }
}

pub(super) fn plan(setting: &Setting<'_>) -> Result<Plan, Refusal> {
    let workers = setting
        .spec
        .roles
        .iter()
        .map(|role| Engine::of(setting, role).map(|engine| (role, engine)))
        .collect::<Result<Vec<_>, _>>()?;
    let router = setting
        .router()
        .map(|router| router::plan(setting, router, &workers))
        .transpose()?;
    let coordinator = router::coordinator(setting)?;
    let roles = workers
        .iter()
        .map(|(role, engine)| role_plan(setting, role, engine))
        .collect::<Result<_, _>>()?;

    let front = workers.iter().find(|(role, _)| setting.front() == Some(*role));
    let mut services: Vec<_> = front
        .iter()
        .map(|(role, engine)| service::front(setting, role, ports::in_pod(setting, role, engine)))
        .collect();
    services.extend(
        workers
            .iter()
            .map(|(role, engine)| service::of_role(setting, role, ports::in_pod(setting, role, engine))),
    );
    let endpoint = match (&router, front) {
        (Some(_), _) => format!(
            "http://{}-router.{}.svc:{}",
            setting.name,
            setting.namespace,
            ports::ROUTER
        ),
        (None, Some((role, engine))) => {
            let scheme = if engine.tls { "https" } else { "http" };
            format!(
                "{scheme}://{}.{}.svc:{}",
                setting.name,
                setting.namespace,
                ports::serving(role)
            )
        }
        (None, None) => String::new(),
    };
    Ok(Plan {
        services,
        router,
        coordinator,
        roles,
        endpoint,
    })
}

fn role_plan(setting: &Setting<'_>, role: &Role, engine: &Engine) -> Result<RolePlan, Refusal> {
    let template = |member| {
        let mut pod = pod::template(setting, role, engine, member)?;
        // Scraping is part of what is rendered; the revision itself cannot be.
        pod::seal(&mut pod, &engine.facts(setting, role, member, ""));
        Ok::<_, Refusal>(pod)
    };
    let (mut leader, mut follower) = (template(Member::Leader)?, template(Member::Follower)?);
    let revision = if role.size > 1 {
        revision::of(&[&leader, &follower], &[])
    } else {
        revision::of(&[&leader], &[])
    };
    let facts = |member, pod: &mut Pod| {
        let facts = engine.facts(setting, role, member, &revision);
        pod::seal(pod, &facts);
        facts
    };
    let (leads, follows) = (
        facts(Member::Leader, &mut leader),
        facts(Member::Follower, &mut follower),
    );
    let metadata = setting.metadata(String::new(), labels::Map::new());
    Ok(RolePlan {
        name: role.name.clone(),
        kind: role.kind,
        producer: setting.engine().into(),
        replicas: u32::try_from(role.replicas).unwrap_or_default(),
        size: u32::try_from(role.size).unwrap_or(1),
        take_over: !role.command.is_empty(),
        revision,
        instance: setting.name.clone(),
        metadata,
        leader: (leader, leads),
        follower: (follower, follows),
    })
}
