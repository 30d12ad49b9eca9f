//! Owns entering the namespaces of a cluster, as root and as an ordinary user, and the sentence for a machine that refuses.

use std::{fs, io};

use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
    unistd::{getegid, geteuid},
};

/// The machine refuses namespaces.
#[derive(Debug, thiserror::Error)]
#[error(
    "the cluster needs network namespaces, and {cause}: run as root, or install charts/model-deployment-operator into `kind`"
)]
pub struct Error {
    cause: String,
}

/// Moves this process, which must have one thread only, into network, mount and user namespaces of its own, and its children
/// into a PID namespace of their own.
///
/// Root needs no user namespace unless it runs without the right to make the others (a container). In a user namespace the
/// caller becomes root, so that programs started in it keep their rights over its network; its files stay the caller's.
pub(crate) fn enter() -> Result<(), Error> {
    let namespaces = CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWPID;
    let (user, group) = (geteuid(), getegid());
    unshare(namespaces)
        .map_err(io::Error::from)
        .or_else(|_| {
            unshare(namespaces | CloneFlags::CLONE_NEWUSER)?;
            fs::write("/proc/self/setgroups", "deny")?;
            fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
            fs::write("/proc/self/gid_map", format!("0 {group} 1"))
        })
        // What a Pod mounts must not show up on the host.
        .and_then(|()| {
            Ok(mount(
                None::<&str>,
                "/",
                None::<&str>,
                MsFlags::MS_REC | MsFlags::MS_PRIVATE,
                None::<&str>,
            )?)
        })
        .map_err(|refusal| Error { cause: cause(&refusal) })
}

/// The settings that are known to refuse an ordinary user, in the order of how often they are met.
fn cause(refusal: &io::Error) -> String {
    let is = |file: &str, value: &str| fs::read_to_string(file).is_ok_and(|text| text.trim() == value);
    if is("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1") {
        "AppArmor restricts unprivileged user namespaces (kernel.apparmor_restrict_unprivileged_userns=1)".to_owned()
    } else if is("/proc/sys/kernel/unprivileged_userns_clone", "0") {
        "this kernel forbids unprivileged user namespaces (kernel.unprivileged_userns_clone=0)".to_owned()
    } else if is("/proc/sys/user/max_user_namespaces", "0") {
        "this machine allows no user namespaces (user.max_user_namespaces=0)".to_owned()
    } else {
        format!("this machine refuses them to this user, as a container's seccomp profile does ({refusal})")
    }
}
