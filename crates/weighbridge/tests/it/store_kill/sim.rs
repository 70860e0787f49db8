//! A disk in memory that can stop at every step, and that simulates the state after a power loss.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::{Error as IoError, ErrorKind};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use weighbridge::engine::{Disk, DiskItem, DiskLock, ItemKind, StagedFile};
use weighbridge::source::{FileRange, MemorySource, SourceRef};
use weighbridge::{Error, Result};

/// What happens at the step at which the disk stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// The step does not happen.
    Before,
    /// A write is half done; other steps do not happen.
    Amid,
    /// The step happens, but the caller gets an error.
    After,
}

pub(crate) const MOMENTS: [Moment; 3] = [Moment::Before, Moment::Amid, Moment::After];

/// What becomes of the writer at that step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// The caller gets an error and continues.
    Fails,
    /// It dies: nothing that it does afterwards happens.
    Dies,
}

/// What a loss of power leaves of that which was not synced.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Power {
    /// Nothing of it.
    Nothing,
    /// All names, and none of the data: files are empty.
    NamesOnly,
    /// Each name or not, each file old, new, empty, zeros or cut, by chance.
    Chance(u64),
}

#[derive(Debug, Clone)]
enum Node {
    File { now: Vec<u8>, synced: Vec<u8>, dirty: bool },
    Folder { now: Names, synced: Names, since: Vec<Change> },
    Link(PathBuf),
}

type Names = BTreeMap<OsString, usize>;

/// A change of names in one folder that was not synced.
#[derive(Debug, Clone)]
enum Change {
    Set(OsString, usize),
    Unset(OsString),
    Move(OsString, OsString, usize),
}

#[derive(Debug)]
struct World {
    nodes: Vec<Node>,
    locks: BTreeSet<PathBuf>,
    steps: usize,
    stop: Option<(usize, Moment, Then)>,
    dead: bool,
}

/// The disk. Its root is `/`, which is a folder.
#[derive(Debug, Clone)]
pub(crate) struct SimDisk(Arc<Mutex<World>>);

fn io(kind: ErrorKind, path: &Path) -> Error {
    Error::io("simulated", IoError::new(kind, "simulated")).in_file(path.display())
}

fn empty_folder() -> Node {
    Node::Folder { now: Names::new(), synced: Names::new(), since: Vec::new() }
}

impl World {
    fn names(&mut self, folder: usize) -> Option<(&mut Names, &mut Vec<Change>)> {
        match self.nodes.get_mut(folder)? {
            Node::Folder { now, since, .. } => Some((now, since)),
            _ => None,
        }
    }

    /// The folder around `path` and the name in it, without following a link at the end.
    fn place(&mut self, path: &Path) -> Result<(usize, OsString)> {
        let mut walked: Vec<usize> = vec![0];
        let mut parts: Vec<_> = path.components().filter(|c| !matches!(c, Component::RootDir)).collect();
        let Some(Component::Normal(name)) = parts.pop() else {
            return Err(io(ErrorKind::InvalidInput, path));
        };
        for part in parts {
            match part {
                Component::ParentDir => {
                    walked.pop();
                }
                Component::Normal(part) => {
                    let at = *walked.last().unwrap();
                    let next = self.names(at).and_then(|(now, _)| now.get(part).copied());
                    walked.push(next.ok_or_else(|| io(ErrorKind::NotFound, path))?);
                }
                _ => {}
            }
        }
        let folder = *walked.last().unwrap();
        if self.names(folder).is_none() {
            return Err(io(ErrorKind::NotADirectory, path));
        }
        Ok((folder, name.to_owned()))
    }

    fn find(&mut self, path: &Path) -> Result<Option<usize>> {
        if path == Path::new("/") {
            return Ok(Some(0));
        }
        let (folder, name) = self.place(path)?;
        Ok(self.names(folder).and_then(|(now, _)| now.get(&name).copied()))
    }

    /// The same, where a link at the end is followed.
    fn follow(&mut self, path: &Path) -> Result<Option<usize>> {
        let Some(found) = self.find(path)? else { return Ok(None) };
        let Node::Link(target) = &self.nodes[found] else { return Ok(Some(found)) };
        let target = path.parent().unwrap().join(target);
        self.find(&target)
    }

    fn add(&mut self, path: &Path, node: Node) -> Result<usize> {
        let (folder, name) = self.place(path)?;
        let id = self.nodes.len();
        let (now, since) = self.names(folder).unwrap();
        if now.contains_key(&name) {
            return Err(io(ErrorKind::AlreadyExists, path));
        }
        now.insert(name.clone(), id);
        since.push(Change::Set(name, id));
        self.nodes.push(node);
        Ok(id)
    }

    fn file(&mut self, path: &Path) -> Result<usize> {
        match self.follow(path)? {
            Some(id) if matches!(self.nodes[id], Node::File { .. }) => Ok(id),
            Some(_) => Err(io(ErrorKind::IsADirectory, path)),
            None => Err(io(ErrorKind::NotFound, path)),
        }
    }

    fn write(&mut self, id: usize, at: usize, bytes: &[u8]) {
        if let Node::File { now, dirty, .. } = &mut self.nodes[id] {
            if now.len() < at + bytes.len() {
                now.resize(at + bytes.len(), 0);
            }
            now[at..at + bytes.len()].copy_from_slice(bytes);
            *dirty = true;
        }
    }
}

impl SimDisk {
    pub(crate) fn new() -> Self {
        Self::of(vec![empty_folder()])
    }

    fn of(nodes: Vec<Node>) -> Self {
        let world = World { nodes, locks: BTreeSet::new(), steps: 0, stop: None, dead: false };
        Self(Arc::new(Mutex::new(world)))
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap()
    }

    /// Stops at the step of that number, counted from 1.
    pub(crate) fn stop_at(&self, step: usize, moment: Moment, then: Then) {
        self.world().stop = Some((step, moment, then));
    }

    /// Steps so far.
    pub(crate) fn steps(&self) -> usize {
        self.world().steps
    }

    /// What the next process finds: all that was done, synced or not.
    pub(crate) fn after_death(&self) -> Self {
        Self::of(self.world().nodes.clone())
    }

    /// What is found when the power is back.
    pub(crate) fn after_power_loss(&self, power: Power) -> Self {
        let mut chance = Chance(match power {
            Power::Chance(seed) => seed,
            _ => 0,
        });
        let mut nodes = self.world().nodes.clone();
        for node in &mut nodes {
            match node {
                Node::File { now, synced, dirty } => {
                    if *dirty {
                        *now = match power {
                            Power::Nothing => synced.clone(),
                            Power::NamesOnly => Vec::new(),
                            Power::Chance(_) => chance.of_file(now, synced),
                        };
                    }
                    (*synced, *dirty) = (now.clone(), false);
                }
                Node::Folder { now, synced, since } => {
                    for change in std::mem::take(since) {
                        let kept = match power {
                            Power::Nothing => false,
                            Power::NamesOnly => true,
                            Power::Chance(_) => chance.below(2) == 0,
                        };
                        match change {
                            _ if !kept => {}
                            Change::Set(name, id) => {
                                synced.insert(name, id);
                            }
                            Change::Unset(name) => {
                                synced.remove(&name);
                            }
                            Change::Move(from, to, id) => {
                                synced.remove(&from);
                                synced.insert(to, id);
                            }
                        }
                    }
                    *now = synced.clone();
                }
                Node::Link(_) => {}
            }
        }
        Self::of(nodes)
    }

    /// Makes one step: `all` of it, or `half` where it is stopped amid.
    fn step<T>(
        &self,
        path: &Path,
        half: impl FnOnce(&mut World),
        all: impl FnOnce(&mut World) -> Result<T>,
    ) -> Result<T> {
        let mut world = self.world();
        if world.dead {
            return Err(io(ErrorKind::Other, path));
        }
        world.steps += 1;
        let Some((_, moment, then)) = world.stop.filter(|(at, ..)| *at == world.steps) else {
            return all(&mut world);
        };
        match moment {
            Moment::Before => {}
            Moment::Amid => half(&mut world),
            Moment::After => drop(all(&mut world)),
        }
        world.dead = then == Then::Dies;
        Err(io(ErrorKind::Other, path))
    }

    fn whole<T>(&self, path: &Path, all: impl FnOnce(&mut World) -> Result<T>) -> Result<T> {
        self.step(path, |_| {}, all)
    }

    pub(crate) fn read(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        let mut world = self.world();
        let id = world.file(path.as_ref()).ok()?;
        match &world.nodes[id] {
            Node::File { now, .. } => Some(now.clone()),
            _ => None,
        }
    }
}

impl Disk for SimDisk {
    fn list(&self, folder: &Path) -> Result<Vec<DiskItem>> {
        let mut world = self.world();
        let id = world.find(folder)?.ok_or_else(|| io(ErrorKind::NotFound, folder))?;
        let names: Vec<_> = world.names(id).unwrap().0.clone().into_iter().collect();
        let mut items = Vec::new();
        for (name, id) in names {
            let kind = match &world.nodes[id] {
                Node::File { now, .. } => ItemKind::File(now.len() as u64),
                Node::Folder { .. } => ItemKind::Folder,
                Node::Link(target) => {
                    let target = target.clone();
                    let led = world.follow(&folder.join(&name))?;
                    let len = led.and_then(|id| match &world.nodes[id] {
                        Node::File { now, .. } => Some(now.len() as u64),
                        _ => None,
                    });
                    ItemKind::Link { target, len }
                }
            };
            items.push(DiskItem { name, kind });
        }
        Ok(items)
    }

    fn open(&self, path: &Path) -> Result<Option<SourceRef>> {
        let bytes = self.read(path);
        Ok(bytes.map(|bytes| Arc::new(MemorySource::new(path.display().to_string(), bytes)) as SourceRef))
    }

    fn create(&self, path: &Path, len: u64, _: &Path) -> Result<Box<dyn StagedFile>> {
        let now = vec![0; usize::try_from(len).unwrap()];
        let file = Node::File { now, synced: Vec::new(), dirty: true };
        let id = self.whole(path, |world| world.add(path, file))?;
        Ok(Box::new(SimFile { disk: self.clone(), path: path.to_owned(), id }))
    }

    fn truncate(&self, path: &Path) -> Result<()> {
        self.whole(path, |world| {
            let Some(id) = world.follow(path)? else {
                let file = Node::File { now: Vec::new(), synced: Vec::new(), dirty: true };
                return world.add(path, file).map(|_| ());
            };
            if let Node::File { now, dirty, .. } = &mut world.nodes[id] {
                now.clear();
                *dirty = true;
            }
            Ok(())
        })
    }

    fn append(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        let append = |world: &mut World, bytes: &[u8]| {
            if world.follow(path)?.is_none() {
                world.add(path, Node::File { now: Vec::new(), synced: Vec::new(), dirty: true })?;
            }
            let id = world.file(path)?;
            let Node::File { now, .. } = &world.nodes[id] else { return Ok(()) };
            let at = now.len();
            world.write(id, at, bytes);
            Ok(())
        };
        self.step(path, |w| drop(append(w, &bytes[..bytes.len() / 2])), |w| append(w, bytes))
    }

    fn sync_file(&self, path: &Path) -> Result<()> {
        self.whole(path, |world| {
            let id = world.file(path)?;
            if let Node::File { now, synced, dirty } = &mut world.nodes[id] {
                (*synced, *dirty) = (now.clone(), false);
            }
            Ok(())
        })
    }

    fn sync_folder(&self, path: &Path) -> Result<()> {
        self.whole(path, |world| {
            let id = world.find(path)?.ok_or_else(|| io(ErrorKind::NotFound, path))?;
            if let Node::Folder { now, synced, since } = &mut world.nodes[id] {
                *synced = now.clone();
                since.clear();
            }
            Ok(())
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.whole(from, |world| {
            let ((folder, old), (other, new)) = (world.place(from)?, world.place(to)?);
            assert_eq!(folder, other, "the store renames within a folder only");
            let (now, since) = world.names(folder).unwrap();
            let id = now.remove(&old).ok_or_else(|| io(ErrorKind::NotFound, from))?;
            now.insert(new.clone(), id);
            since.push(Change::Move(old, new, id));
            Ok(())
        })
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.whole(path, |world| {
            let (folder, name) = world.place(path)?;
            let (now, since) = world.names(folder).unwrap();
            now.remove(&name).ok_or_else(|| io(ErrorKind::NotFound, path))?;
            since.push(Change::Unset(name));
            Ok(())
        })
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        self.whole(from, |world| {
            let id = world.file(from)?;
            let (folder, name) = world.place(to)?;
            let (now, since) = world.names(folder).unwrap();
            now.insert(name.clone(), id);
            since.push(Change::Set(name, id));
            Ok(())
        })
    }

    fn symlink(&self, target: &Path, path: &Path) -> Result<()> {
        self.whole(path, |world| world.add(path, Node::Link(target.to_owned())).map(|_| ()))
    }

    fn make_folder(&self, path: &Path) -> Result<()> {
        self.whole(path, |world| world.add(path, empty_folder()).map(|_| ()))
    }

    fn remove_folder(&self, path: &Path) -> Result<()> {
        self.remove(path)
    }

    fn lock(&self, path: &Path) -> Result<DiskLock> {
        if !self.world().locks.insert(path.to_owned()) {
            return Err(DiskLock::taken(path));
        }
        Ok(DiskLock::new(Held { disk: self.clone(), path: path.to_owned() }))
    }
}

struct Held {
    disk: SimDisk,
    path: PathBuf,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.disk.world().locks.remove(&self.path);
    }
}

#[derive(Debug)]
struct SimFile {
    disk: SimDisk,
    path: PathBuf,
    id: usize,
}

impl StagedFile for SimFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let at = usize::try_from(offset).unwrap();
        let all = |world: &mut World| {
            world.write(self.id, at, bytes);
            Ok(())
        };
        self.disk.step(&self.path, |w| w.write(self.id, at, &bytes[..bytes.len() / 2]), all)
    }

    fn copy_from(&self, _: FileRange<'_>, _: u64, _: u64, _: u64) -> Result<u64> {
        Ok(0)
    }
}

/// Numbers by chance, the same for the same seed.
pub(crate) struct Chance(pub u64);

impl Chance {
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    fn of_file(&mut self, now: &[u8], synced: &[u8]) -> Vec<u8> {
        match self.below(5) {
            0 => synced.to_vec(),
            1 => now.to_vec(),
            2 => Vec::new(),
            3 => vec![0; now.len()],
            _ => now[..now.len() / 2].to_vec(),
        }
    }
}
