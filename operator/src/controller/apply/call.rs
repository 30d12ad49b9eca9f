//! The calls themselves. Knows no plan.

use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, Preconditions};
use kube::core::ApiResource;
use serde_json::{Value, json};

use super::{Applier, Holder};
use crate::controller::FIELD_MANAGER;
use crate::controller::memory::{Key, UNSEEN};
use crate::controller::refused::Blocked;

impl Applier<'_> {
    pub(super) fn api(&self, resource: &ApiResource) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, resource)
    }

    /// Server-side apply of an object that is ours, or is not there. It adds a Service's ports to what others made of them, and is
    /// refused where theirs have the names of ours: our list then takes the place of the whole.
    pub(super) async fn write(
        &self,
        api: &Api<DynamicObject>,
        name: &str,
        rendered: &Value,
    ) -> kube::Result<DynamicObject> {
        let parameters = PatchParams::apply(FIELD_MANAGER).force();
        let applied = api.patch(name, &parameters, &Patch::Apply(rendered)).await;
        match (&applied, rendered.pointer("/spec/ports")) {
            (Err(kube::Error::Api(status)), Some(ports)) if status.code == 422 => {
                let whole = json!({"spec": {"ports": ports}});
                api.patch(name, &PatchParams::default(), &Patch::Merge(&whole)).await?;
                api.patch(name, &parameters, &Patch::Apply(rendered)).await
            }
            _ => applied,
        }
    }

    /// A trial of a server-side apply, of which nothing stays.
    pub(super) async fn attempt(
        &self,
        api: &Api<DynamicObject>,
        name: &str,
        rendered: &Value,
    ) -> kube::Result<DynamicObject> {
        let parameters = PatchParams {
            dry_run: true,
            ..PatchParams::apply(FIELD_MANAGER)
        };
        api.patch(name, &parameters, &Patch::Apply(rendered)).await
    }

    /// Server-side apply of an object that no watch shows. Not forced: where somebody else's has the name, it collides instead of
    /// changing that one, and only then is one call more spent on looking. None where the name will soon be free.
    pub(super) async fn create(
        &self,
        api: &Api<DynamicObject>,
        key: &Key,
        rendered: &Value,
    ) -> Result<Option<DynamicObject>, Blocked> {
        let name = &key.1;
        let parameters = PatchParams::apply(FIELD_MANAGER);
        let refusal = match api.patch(name, &parameters, &Patch::Apply(rendered)).await {
            Ok(applied) => return Ok(Some(applied)),
            Err(refusal) => refusal,
        };
        if !matches!(&refusal, kube::Error::Api(status) if matches!(status.code, 409 | 422)) {
            return Err(Blocked::call("apply", key, refusal));
        }
        let found = api.get_metadata_opt(name).await;
        match found.map_err(|source| Blocked::call("read", key, source))? {
            None => Err(Blocked::call("apply", key, refusal)),
            Some(found) => match self.holder(&found.metadata) {
                // Somebody took our label off, or changed what is ours.
                Holder::Own => {
                    let written = self.write(api, name, rendered).await;
                    written.map(Some).map_err(|source| Blocked::call("apply", key, source))
                }
                Holder::Predecessor => {
                    self.look_again(UNSEEN);
                    Ok(None)
                }
                Holder::Foreign => Err(Blocked::taken(key)),
            },
        }
    }

    /// Deletes one object if it still is the one that was seen. False where it was not deleted by us.
    pub(super) async fn delete(&self, api: &Api<DynamicObject>, key: &Key, uid: &str) -> bool {
        if self.is_stopped() {
            return false;
        }
        let seen = Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: None,
        };
        let parameters = DeleteParams::background().preconditions(seen);
        match api.delete(&key.1, &parameters).await {
            Ok(_) => {
                self.memory.lock().deleted(uid);
                true
            }
            // Gone, or replaced by a namesake: the watch will show which.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => false,
            Err(source) => {
                self.block(Blocked::call("delete", key, source));
                false
            }
        }
    }
}
