"""A file system that forgets at a power cut what was never synced: data, sizes and directory entries.

Runs as a process of its own and speaks the kernel's FUSE protocol itself, by node and not by path, so that
hard links and open files without a name are what they are elsewhere. Everything is in memory twice, as
programs see it and as a power cut would leave it; `fsync` carries over a file, `fsync` of a folder its names.
It is stricter than any real file system. Controlled by attributes of the mount point, see `power_loss`.
"""

from __future__ import annotations

import errno
import json
import os
import random
import socket
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

BLOCK = 512
"""Bytes that a disk writes whole or not at all."""
CONTROL = b"user.power"
COUNTS = b"user.counts"
MAX_WRITE = 128 << 10

_IN = struct.Struct("<IIQQIIIHH")
_OUT = struct.Struct("<IiQ")
_ATTR = struct.Struct("<6Q10I")
_ENTRY = struct.Struct("<4Q2I")
_ATTR_OUT = struct.Struct("<QII")
_SETATTR = struct.Struct("<IIQQQQQQIIIIIIII")
_READ = struct.Struct("<QQIIQII")
_DIRENT = struct.Struct("<QQII")


@dataclass(eq=False)
class Node:
    """A file, folder or symbolic link, as it is and as it would be after a power cut."""

    number: int
    mode: int
    uid: int
    gid: int
    data: bytearray = field(default_factory=bytearray)
    names: dict[str, Node] = field(default_factory=dict)
    links: int = 0
    mtime: float = 0.0
    ctime: float = 0.0
    safe_data: bytearray = field(default_factory=bytearray)
    safe_names: dict[str, Node] = field(default_factory=dict)
    safe_mode: tuple[int, int, int] = (0, 0, 0)
    dirty: list[tuple[int, int]] = field(default_factory=list)
    """Ranges written since the last sync."""
    cut: int | None = None
    """Smallest size since the last sync, where that is less than the safe one."""

    @property
    def is_folder(self) -> bool:
        """Whether this is a folder."""
        return stat.S_ISDIR(self.mode)

    def sync(self) -> None:
        """Carry what is seen over to what is safe."""
        self.safe_mode = (self.mode, self.uid, self.gid)
        if self.is_folder:
            self.safe_names = dict(self.names)
            return
        if self.cut is not None:
            del self.safe_data[self.cut :]
        if len(self.safe_data) < len(self.data):
            self.safe_data.extend(bytes(len(self.data) - len(self.safe_data)))
        for first, last in self.dirty:
            stop = min(last, len(self.data))
            self.safe_data[first:stop] = self.data[first:stop]
        del self.safe_data[len(self.data) :]
        self.dirty, self.cut = [], None

    def lose(self, chance: random.Random | None, *, scattered: bool = False) -> int:
        """Fall back to what is safe, or to that and some of the rest; return how many bytes were unsynced."""
        lost = sum(max(0, min(last, len(self.data)) - first) for first, last in self.dirty)
        if chance is not None:
            self._keep_some(chance, scattered=scattered)
        self.data = bytearray(self.safe_data)
        self.names = dict(self.safe_names)
        self.mode, self.uid, self.gid = self.safe_mode
        self.dirty, self.cut = [], None
        return lost

    def _keep_some(self, chance: random.Random, *, scattered: bool) -> None:
        """Let a part of what was not synced be safe nevertheless, as a disk that was busy with it leaves it.

        A file grows in order, as the size of a file follows its data on the file systems in use; what is
        overwritten reaches the disk block by block in any order. `scattered` lets a file grow in any order.
        """
        if self.is_folder:
            for name in sorted({*self.names, *self.safe_names}):
                if self.names.get(name) is not self.safe_names.get(name) and chance.random() < 0.5:
                    if name in self.names:
                        self.safe_names[name] = self.names[name]
                    else:
                        del self.safe_names[name]
            return
        if self.cut is not None and chance.random() < 0.5:
            del self.safe_data[self.cut :]
        grown = len(self.data) if scattered else chance.randint(0, len(self.data))
        size = len(self.safe_data)
        for first, last in self.dirty:
            for at in range(first - first % BLOCK, min(last, len(self.data)), BLOCK):
                start, stop = max(at, first), min(at + BLOCK, last, len(self.data))
                if start >= size and not scattered:
                    stop = min(stop, grown)
                    if stop <= start or start > len(self.safe_data):
                        continue
                elif chance.random() < 0.5:
                    continue
                if len(self.safe_data) < stop:
                    self.safe_data.extend(bytes(stop - len(self.safe_data)))
                self.safe_data[start:stop] = self.data[start:stop]


class NoReply(Exception):
    """The kernel expects no answer to this request."""


def _names(body: bytes) -> list[str]:
    """Return the names that a request ends with, each closed by a NUL."""
    return [os.fsdecode(name) for name in body.split(b"\0")[:-1]]


class PowerLoss:
    """The file system, with a method for each kind of request, by node.

    Args:
        deaf: Say that a sync is done and do nothing: the control, in which acknowledged data must be lost.
        nocase: Take names that differ only in case for one, as macOS and Windows do.
        nolinks: Refuse hard links, as FAT does.
    """

    def __init__(self, *, deaf: bool, nocase: bool = False, nolinks: bool = False) -> None:
        self._deaf = deaf
        self._nocase = nocase
        self._nolinks = nolinks
        self._nodes: dict[int, Node] = {}
        self._handles: dict[int, list[tuple[str, Node]]] = {}
        self._next_handle = 1
        self._caller = (os.getuid(), os.getgid())
        self._counts = {"syncs": 0, "writes": 0, "cuts": 0, "lost_bytes": 0}
        self._root = self._new(stat.S_IFDIR | 0o755)
        self._root.sync()

    def answer(self, request: bytes) -> bytes | None:
        """Answer one request of the kernel; None where it expects no answer."""
        _, opcode, unique, number, uid, gid, *_ = _IN.unpack_from(request)
        self._caller = (uid, gid)
        work = _REQUESTS.get(opcode)
        try:
            if work is None:
                raise OSError(errno.ENOSYS, "")
            body = work(self, self._nodes.get(number, self._root), request[_IN.size :])
        except NoReply:
            return None
        except OSError as error:
            return _OUT.pack(_OUT.size, -(error.errno or errno.EIO), unique)
        return _OUT.pack(_OUT.size + len(body), 0, unique) + body

    # -- nodes --------------------------------------------------------------------------------------

    def _new(self, mode: int) -> Node:
        uid, gid = self._caller
        node = Node(len(self._nodes) + 1, mode, uid, gid, mtime=time.time(), ctime=time.time())
        node.safe_mode = (mode, uid, gid)
        self._nodes[node.number] = node
        return node

    def _held(self, folder: Node, name: str) -> str:
        """Return a name as the folder spells it, or as it is given."""
        if self._nocase and name not in folder.names:
            return next((held for held in folder.names if held.casefold() == name.casefold()), name)
        return name

    def _child(self, folder: Node, name: str) -> Node:
        if not folder.is_folder:
            raise OSError(errno.ENOTDIR, "")
        held = self._held(folder, name)
        if held not in folder.names:
            raise OSError(errno.ENOENT, "")
        return folder.names[held]

    def _add(self, folder: Node, name: str, node: Node) -> bytes:
        if self._held(folder, name) in folder.names:
            raise OSError(errno.EEXIST, "")
        folder.names[name] = node
        folder.mtime = folder.ctime = time.time()
        node.links += 1
        return self._entry(node)

    def _attributes(self, node: Node) -> bytes:
        links = 2 if node.is_folder else node.links
        nanoseconds = int(node.mtime % 1 * 1e9)
        changed = int(node.ctime % 1 * 1e9)
        blocks = (len(node.data) + 511) // 512
        return _ATTR.pack(
            node.number, len(node.data), blocks, int(node.mtime), int(node.mtime), int(node.ctime),
            nanoseconds, nanoseconds, changed, node.mode, links, node.uid, node.gid, 0, 4096, 0,
        )  # fmt: skip

    def _entry(self, node: Node) -> bytes:
        # Nothing may be remembered by the kernel: a power cut changes names behind its back.
        return _ENTRY.pack(node.number, 0, 0, 0, 0, 0) + self._attributes(node)

    def lookup(self, node: Node, body: bytes) -> bytes:
        return self._entry(self._child(node, _names(body)[0]))

    def forget(self, node: Node, body: bytes) -> bytes:
        raise NoReply

    def getattr(self, node: Node, body: bytes) -> bytes:
        return _ATTR_OUT.pack(0, 0, 0) + self._attributes(node)

    def setattr(self, node: Node, body: bytes) -> bytes:
        (valid, _, _, size, _, _, mtime, _, _, mtime_ns, _, mode, _, uid, gid, _) = _SETATTR.unpack_from(body)
        node.mode = stat.S_IFMT(node.mode) | stat.S_IMODE(mode) if valid & 1 else node.mode
        node.uid = uid if valid & 2 else node.uid
        node.gid = gid if valid & 4 else node.gid
        node.safe_mode = (node.mode, node.uid, node.gid)  # who may read is not what this is about
        if valid & 8:
            self._truncate(node, size)
        if valid & 32:
            node.mtime = time.time() if valid & 256 else mtime + mtime_ns / 1e9
        return self.getattr(node, body)

    def statfs(self, node: Node, body: bytes) -> bytes:
        return struct.pack(
            "<5Q4I6I", 1 << 20, 1 << 19, 1 << 19, 1 << 20, 1 << 19, 4096, 255, 4096, 0, *[0] * 6
        )

    # -- control ------------------------------------------------------------------------------------

    def setxattr(self, node: Node, body: bytes) -> bytes:
        (size,) = struct.unpack_from("<I", body)
        name, _, rest = body[8:].partition(b"\0")
        if node is not self._root or name != CONTROL:
            raise OSError(errno.ENOTSUP, "")
        mode, _, seed = rest[:size].decode().partition(":")
        if mode == "settle":
            for each in self._reachable():
                each.sync()
            return b""
        chance = None if mode == "all" else random.Random(seed)
        for each in self._reachable():
            self._counts["lost_bytes"] += each.lose(chance, scattered=mode == "scattered")
        self._counts["cuts"] += 1
        self._count_links()
        return b""

    def _count_links(self) -> None:
        """Count anew how many names each node has: a cut brings names back and takes others away."""
        for node in self._nodes.values():
            node.links = 0
        for folder in self._reachable():
            for node in folder.names.values():
                node.links += 1

    def _reachable(self) -> Iterator[Node]:
        """Yield every node that has a name once, each before what it holds."""
        seen: set[int] = set()
        waiting = [self._root]
        while waiting:
            node = waiting.pop()
            if node.number not in seen:
                seen.add(node.number)
                yield node
                waiting += node.names.values()

    def getxattr(self, node: Node, body: bytes) -> bytes:
        (room,) = struct.unpack_from("<I", body)
        if node is not self._root or _names(body[8:])[0].encode() != COUNTS:
            raise OSError(errno.ENODATA, "")
        value = json.dumps(self._counts).encode()
        return struct.pack("<II", len(value), 0) if room == 0 else value

    # -- files --------------------------------------------------------------------------------------

    def open(self, node: Node, body: bytes) -> bytes:
        return struct.pack("<QII", 0, 0, 0)

    def release(self, node: Node, body: bytes) -> bytes:
        return b""

    def read(self, node: Node, body: bytes) -> bytes:
        _, offset, size, *_ = _READ.unpack_from(body)
        return bytes(node.data[offset : offset + size])

    def write(self, node: Node, body: bytes) -> bytes:
        _, offset, size, *_ = _READ.unpack_from(body)
        end = offset + size
        if len(node.data) < offset:
            node.data.extend(bytes(offset - len(node.data)))
        node.data[offset:end] = body[_READ.size : _READ.size + size]
        if node.dirty and node.dirty[-1][1] == offset:
            node.dirty[-1] = (node.dirty[-1][0], end)
        else:
            node.dirty.append((offset, end))
        node.mtime = node.ctime = time.time()
        self._counts["writes"] += 1
        return struct.pack("<II", size, 0)

    def _truncate(self, node: Node, length: int) -> None:
        if length < len(node.data):
            del node.data[length:]
            node.cut = length if node.cut is None else min(node.cut, length)
            node.dirty = [(first, min(last, length)) for first, last in node.dirty if first < length]
        elif length > len(node.data):
            node.dirty.append((len(node.data), length))
            node.data.extend(bytes(length - len(node.data)))
        node.mtime = node.ctime = time.time()

    def fsync(self, node: Node, body: bytes) -> bytes:
        self._counts["syncs"] += 1
        if not self._deaf:
            node.sync()
        return b""

    def create(self, node: Node, body: bytes) -> bytes:
        _, mode, _, _ = struct.unpack_from("<4I", body)
        made = self._new(stat.S_IFREG | stat.S_IMODE(mode))
        return self._add(node, _names(body[16:])[0], made) + struct.pack("<QII", 0, 0, 0)

    def readlink(self, node: Node, body: bytes) -> bytes:
        return bytes(node.data)

    # -- folders and names --------------------------------------------------------------------------

    def opendir(self, node: Node, body: bytes) -> bytes:
        handle, self._next_handle = self._next_handle, self._next_handle + 1
        self._handles[handle] = [(".", node), ("..", self._root), *node.names.items()]
        return struct.pack("<QII", handle, 0, 0)

    def releasedir(self, node: Node, body: bytes) -> bytes:
        self._handles.pop(struct.unpack_from("<Q", body)[0], None)
        return b""

    def readdir(self, node: Node, body: bytes) -> bytes:
        handle, offset, room, *_ = _READ.unpack_from(body)
        out = b""
        for place, (name, child) in enumerate(self._handles[handle][offset:], offset + 1):
            raw = os.fsencode(name)
            entry = _DIRENT.pack(child.number, place, len(raw), stat.S_IFMT(child.mode) >> 12) + raw
            entry += bytes(-len(entry) % 8)
            if len(out) + len(entry) > room:
                break
            out += entry
        return out

    def mkdir(self, node: Node, body: bytes) -> bytes:
        mode, _ = struct.unpack_from("<2I", body)
        return self._add(node, _names(body[8:])[0], self._new(stat.S_IFDIR | stat.S_IMODE(mode)))

    def mknod(self, node: Node, body: bytes) -> bytes:
        mode, *_ = struct.unpack_from("<4I", body)
        return self._add(node, _names(body[16:])[0], self._new(mode))

    def symlink(self, node: Node, body: bytes) -> bytes:
        name, target = _names(body)
        made = self._new(stat.S_IFLNK | 0o777)
        made.data = bytearray(os.fsencode(target))
        made.safe_data = bytearray(made.data)
        return self._add(node, name, made)

    def link(self, node: Node, body: bytes) -> bytes:
        if self._nolinks:
            raise OSError(errno.EPERM, "no hard links here")
        (number,) = struct.unpack_from("<Q", body)
        return self._add(node, _names(body[8:])[0], self._nodes[number])

    def unlink(self, node: Node, body: bytes) -> bytes:
        (name,) = _names(body)
        self._child(node, name).links -= 1
        del node.names[self._held(node, name)]
        node.mtime = node.ctime = time.time()
        return b""

    def rmdir(self, node: Node, body: bytes) -> bytes:
        (name,) = _names(body)
        if self._child(node, name).names:
            raise OSError(errno.ENOTEMPTY, "")
        del node.names[self._held(node, name)]
        return b""

    def rename(self, node: Node, body: bytes) -> bytes:
        return self._rename(node, struct.unpack_from("<Q", body)[0], *_names(body[8:]))

    def rename2(self, node: Node, body: bytes) -> bytes:
        number, flags, _ = struct.unpack_from("<QII", body)
        if flags & ~1:
            raise OSError(errno.EINVAL, "")
        old, new = _names(body[16:])
        if flags & 1 and new in self._nodes[number].names:
            raise OSError(errno.EEXIST, "")
        return self._rename(node, number, old, new)

    def _rename(self, node: Node, number: int, old: str, new: str) -> bytes:
        target = self._nodes[number]
        moved = self._child(node, old)
        old, new = self._held(node, old), self._held(target, new)
        replaced = target.names.get(new)
        if replaced is moved:
            return b""
        if replaced is not None:
            if replaced.names:
                raise OSError(errno.ENOTEMPTY, "")
            replaced.links -= 1
        del node.names[old]
        target.names[new] = moved
        node.mtime = target.mtime = moved.ctime = time.time()
        return b""

    def init(self, node: Node, body: bytes) -> bytes:
        _, _, readahead, flags = struct.unpack_from("<4I", body)
        big_writes = 1 << 5
        return struct.pack(
            "<4IHHIIHHI7I", 7, 31, readahead, flags & big_writes, 12, 9, MAX_WRITE, 1, 0, 0, 0, *[0] * 7
        )


_REQUESTS: dict[int, Callable[[PowerLoss, Node, bytes], bytes]] = {
    1: PowerLoss.lookup,
    2: PowerLoss.forget,
    3: PowerLoss.getattr,
    4: PowerLoss.setattr,
    5: PowerLoss.readlink,
    6: PowerLoss.symlink,
    8: PowerLoss.mknod,
    9: PowerLoss.mkdir,
    10: PowerLoss.unlink,
    11: PowerLoss.rmdir,
    12: PowerLoss.rename,
    13: PowerLoss.link,
    14: PowerLoss.open,
    15: PowerLoss.read,
    16: PowerLoss.write,
    17: PowerLoss.statfs,
    18: PowerLoss.release,
    20: PowerLoss.fsync,
    21: PowerLoss.setxattr,
    22: PowerLoss.getxattr,
    26: PowerLoss.init,
    27: PowerLoss.opendir,
    28: PowerLoss.readdir,
    29: PowerLoss.releasedir,
    30: PowerLoss.fsync,
    35: PowerLoss.create,
    36: PowerLoss.forget,
    42: PowerLoss.forget,
    45: PowerLoss.rename2,
}
"""Requests by their number in the kernel's protocol; every other one is refused as not implemented."""


def mount(place: str) -> int:
    """Mount through `fusermount3` and return the descriptor that requests come from."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    options = "default_permissions" + (",allow_other" if os.geteuid() == 0 else "")
    with ours, theirs:
        subprocess.run(
            ["fusermount3", "-o", options, "--", place],
            env={**os.environ, "_FUSE_COMMFD": str(theirs.fileno())},
            pass_fds=[theirs.fileno()],
            check=True,
        )
        _, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
    return descriptors[0]


def main() -> None:
    """Serve a mount point until it is unmounted: `power_loss_fs.py MOUNTPOINT [deaf] [nocase] [nolinks]`."""
    options = sys.argv[2:]
    system = PowerLoss(deaf="deaf" in options, nocase="nocase" in options, nolinks="nolinks" in options)
    kernel = mount(sys.argv[1])
    while True:
        try:
            request = os.read(kernel, MAX_WRITE + (64 << 10))
        except OSError as error:
            if error.errno == errno.ENODEV:
                return  # unmounted
            if error.errno in (errno.EINTR, errno.EAGAIN, errno.ENOENT):
                continue  # the request was withdrawn
            raise
        answer = system.answer(request)
        if answer is not None:
            try:
                os.write(kernel, answer)
            except OSError as error:
                if error.errno != errno.ENOENT:  # the caller was killed while it waited
                    raise


if __name__ == "__main__":
    main()
