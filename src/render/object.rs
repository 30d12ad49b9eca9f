//! One rendered object of any kind.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;

/// One rendered object. Serializes as the object alone, `apiVersion` and `kind` included.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
#[expect(missing_docs, reason = "each is the kind that it names")]
pub enum Object {
    Service(Box<Service>),
    ServiceAccount(Box<ServiceAccount>),
    Role(Box<Role>),
    RoleBinding(Box<RoleBinding>),
    ConfigMap(Box<ConfigMap>),
    Deployment(Box<Deployment>),
    Pod(Box<Pod>),
}

macro_rules! objects {
    ($($kind:ident($of:ty)),+ $(,)?) => {
        $(impl From<$of> for Object {
            fn from(object: $of) -> Self {
                Self::$kind(Box::new(object))
            }
        })+

        impl Object {
            /// The object's kind.
            pub fn kind(&self) -> &'static str {
                match self {
                    $(Self::$kind(_) => stringify!($kind),)+
                }
            }

            /// The object's metadata.
            pub fn metadata(&self) -> &ObjectMeta {
                match self {
                    $(Self::$kind(object) => &object.metadata,)+
                }
            }
        }
    };
}

objects!(
    Service(Service),
    ServiceAccount(ServiceAccount),
    Role(Role),
    RoleBinding(RoleBinding),
    ConfigMap(ConfigMap),
    Deployment(Deployment),
    Pod(Pod),
);
