//! The sandbox's root: the machine's own folders, with a Pod's volumes at their paths.
//!
//! A new tmpfs is the root. The machine's top-level folders are bound into it, and the machine's whole tree at [`HOST`], by which
//! programs are started however their own folder is hidden. Where a volume's path does not exist, the nearest folder that does is
//! covered with a tmpfs that shows what it had, so that the path can be made without a right to write to the machine.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};

use nix::mount::{MsFlags, mount};
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::chroot;

use super::{Mount, Plan, SandboxError};

/// Where the machine's whole tree is seen inside.
const HOST: &str = "/.host";

/// Symbolic links followed for one path before it counts as a loop, as in the kernel.
const LINKS: usize = 40;

/// Top-level folders that stay writable: what the kernel serves, and temporary files.
const WRITABLE: &[&str] = &["dev", "proc", "sys", "tmp"];

/// The path inside the sandbox of a file of the machine.
pub(crate) fn host_path(path: &Path) -> PathBuf {
    Path::new(HOST).join(path.strip_prefix("/").unwrap_or(path))
}

/// Builds the root and makes it this process's own.
pub(super) fn enter(plan: &Plan) -> Result<(), SandboxError> {
    let mut root = Root::new(&plan.root)?;
    let mut mounts: Vec<&Mount> = plan.mounts.iter().collect();
    // A mount inside another comes after it.
    mounts.sort_by_key(|mount| mount.target.components().count());
    for mount in mounts {
        root.mount(mount)?;
    }
    root.folder(&plan.directory)?;
    chroot(&plan.root).map_err(kernel("change the root"))?;
    std::env::set_current_dir(&plan.directory).map_err(file(format!("enter {}", plan.directory.display())))
}

struct Root {
    path: PathBuf,
    /// What stands at each mount: nearest above a path decides whose the path is.
    owners: HashMap<PathBuf, Owner>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// The machine: nothing may be made there.
    Machine,
    /// The sandbox or a volume.
    Sandbox,
}

impl Root {
    fn new(path: &Path) -> Result<Self, SandboxError> {
        mount(
            None::<&str>,
            "/",
            None::<&str>,
            MsFlags::MS_REC | MsFlags::MS_PRIVATE,
            None::<&str>,
        )
        .map_err(kernel("keep mounts to itself"))?;
        let machine = entries(Path::new("/"))?;
        tmpfs(path)?;
        let mut root = Self {
            path: path.to_owned(),
            owners: HashMap::from([(path.to_owned(), Owner::Sandbox)]),
        };
        root.bind_folder(Path::new("/"), &path.join(HOST.trim_start_matches('/')))?;
        for entry in machine {
            let inside = path.join(&entry.name);
            match entry.link {
                Some(to) => link(&to, &inside)?,
                None if entry.folder => {
                    root.bind_folder(&Path::new("/").join(&entry.name), &inside)?;
                    if !WRITABLE.iter().any(|w| entry.name == *w) {
                        // A precaution for the machine's sake; a kernel that refuses it here takes nothing from the program.
                        let _ = read_only(&inside);
                    }
                }
                None => {}
            }
        }
        Ok(root)
    }

    /// Makes `inside` and shows the machine's folder there.
    fn bind_folder(&mut self, machine: &Path, inside: &Path) -> Result<(), SandboxError> {
        make(inside)?;
        bind(machine, inside)?;
        self.owners.insert(inside.to_owned(), Owner::Machine);
        Ok(())
    }

    fn mount(&mut self, wanted: &Mount) -> Result<(), SandboxError> {
        let target = if wanted.source.is_dir() {
            self.folder(&wanted.target)?
        } else {
            let name = wanted.target.file_name().unwrap_or_default();
            let folder = self.folder(wanted.target.parent().unwrap_or(Path::new("/")))?;
            let place = folder.join(name);
            // A link that stands for a file of the machine's gives way: the volume is for this name alone.
            if self.owners.get(&folder) == Some(&Owner::Sandbox) && place.is_symlink() {
                fs::remove_file(&place).map_err(file(format!("replace {}", place.display())))?;
            }
            let target = self.resolve(&place)?;
            if !target.exists() {
                self.own(target.parent().unwrap_or(&folder))?;
                fs::File::create(&target).map_err(file(format!("make {}", target.display())))?;
            }
            target
        };
        bind(&wanted.source, &target)?;
        if wanted.read_only {
            read_only(&target).map_err(kernel("make a volume read-only"))?;
        }
        self.owners.insert(target, Owner::Sandbox);
        Ok(())
    }

    /// The folder at `path` inside, made if it is not there; without links in its name.
    fn folder(&mut self, path: &Path) -> Result<PathBuf, SandboxError> {
        let mut here = self.path.clone();
        for component in path.components() {
            if let Component::Normal(name) = component {
                let next = self.resolve(&here.join(name))?;
                if !next.is_dir() {
                    self.own(next.parent().unwrap_or(&here))?;
                    make(&next)?;
                }
                here = next;
            }
        }
        Ok(here)
    }

    /// Follows links as they will read once this is the root.
    fn resolve(&self, path: &Path) -> Result<PathBuf, SandboxError> {
        let mut path = path.to_owned();
        for _ in 0..LINKS {
            let Some(to) = self.first_link(&path)? else {
                return Ok(path);
            };
            path = to;
        }
        let source = io::Error::from_raw_os_error(nix::libc::ELOOP);
        Err(file(format!("follow {}", path.display()))(source))
    }

    /// `path` with its first link replaced by what it says.
    fn first_link(&self, path: &Path) -> Result<Option<PathBuf>, SandboxError> {
        let inside = path.strip_prefix(&self.path).unwrap_or(path);
        let mut here = self.path.clone();
        let mut components = inside.components();
        while let Some(component) = components.next() {
            match component {
                Component::ParentDir => {
                    if here != self.path {
                        here.pop();
                    }
                    continue;
                }
                Component::Normal(name) => here.push(name),
                _ => continue,
            }
            if here.is_symlink() {
                let to = fs::read_link(&here).map_err(file(format!("read {}", here.display())))?;
                here.pop();
                let base = match to.strip_prefix("/") {
                    Ok(to) => self.path.join(to),
                    Err(_) => here.join(to),
                };
                return Ok(Some(base.join(components.as_path())));
            }
        }
        Ok((here != path).then_some(here))
    }

    /// Makes sure that entries can be made in `folder`.
    fn own(&mut self, folder: &Path) -> Result<(), SandboxError> {
        let owner = folder.ancestors().find_map(|above| self.owners.get(above));
        if owner == Some(&Owner::Sandbox) {
            return Ok(());
        }
        let machine = self
            .path
            .join(HOST.trim_start_matches('/'))
            .join(folder.strip_prefix(&self.path).unwrap_or(folder));
        let before = entries(&machine)?;
        tmpfs(folder)?;
        self.owners.insert(folder.to_owned(), Owner::Sandbox);
        for entry in before {
            let (from, inside) = (machine.join(&entry.name), folder.join(&entry.name));
            match entry.link {
                Some(to) => link(&to, &inside)?,
                None if entry.folder => self.bind_folder(&from, &inside)?,
                // Links cost nothing, and a folder such as /etc has many files.
                None => link(
                    &Path::new("/").join(from.strip_prefix(&self.path).unwrap_or(&from)),
                    &inside,
                )?,
            }
        }
        Ok(())
    }
}

struct Entry {
    name: std::ffi::OsString,
    folder: bool,
    link: Option<PathBuf>,
}

fn entries(folder: &Path) -> Result<Vec<Entry>, SandboxError> {
    let fail = || file(format!("list {}", folder.display()));
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder).map_err(fail())? {
        let entry = entry.map_err(fail())?;
        let kind = entry.file_type().map_err(fail())?;
        let link = if kind.is_symlink() {
            Some(fs::read_link(entry.path()).map_err(fail())?)
        } else {
            None
        };
        entries.push(Entry {
            name: entry.file_name(),
            folder: kind.is_dir(),
            link,
        });
    }
    Ok(entries)
}

fn make(folder: &Path) -> Result<(), SandboxError> {
    fs::create_dir(folder).map_err(file(format!("make {}", folder.display())))
}

fn link(to: &Path, at: &Path) -> Result<(), SandboxError> {
    symlink(to, at).map_err(file(format!("link {}", at.display())))
}

fn tmpfs(at: &Path) -> Result<(), SandboxError> {
    mount(Some("tmpfs"), at, Some("tmpfs"), MsFlags::empty(), Some("mode=755"))
        .map_err(kernel(format!("mount a tmpfs at {}", at.display())))
}

fn bind(source: &Path, target: &Path) -> Result<(), SandboxError> {
    mount(
        Some(source),
        target,
        None::<&str>,
        MsFlags::MS_BIND | MsFlags::MS_REC,
        None::<&str>,
    )
    .map_err(kernel(format!("mount {} at {}", source.display(), target.display())))
}

/// Flags that a mount has from outside a user namespace are locked: a remount must repeat them.
fn read_only(target: &Path) -> nix::Result<()> {
    let has = statvfs(target)?.flags();
    let mut flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
    for (flag, locked) in [
        (FsFlags::ST_NOSUID, MsFlags::MS_NOSUID),
        (FsFlags::ST_NODEV, MsFlags::MS_NODEV),
        (FsFlags::ST_NOEXEC, MsFlags::MS_NOEXEC),
        (FsFlags::ST_NOATIME, MsFlags::MS_NOATIME),
        (FsFlags::ST_NODIRATIME, MsFlags::MS_NODIRATIME),
        (FsFlags::ST_RELATIME, MsFlags::MS_RELATIME),
    ] {
        if has.contains(flag) {
            flags |= locked;
        }
    }
    mount(None::<&str>, target, None::<&str>, flags, None::<&str>)
}

fn kernel(action: impl Into<String>) -> impl FnOnce(nix::Error) -> SandboxError {
    let action = action.into();
    |source| SandboxError::Kernel { action, source }
}

fn file(action: impl Into<String>) -> impl FnOnce(io::Error) -> SandboxError {
    let action = action.into();
    |source| SandboxError::File { action, source }
}
