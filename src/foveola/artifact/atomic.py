"""Directories that appear whole or not at all."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


@contextlib.contextmanager
def staged_directory(out: Path, *, replace: bool = False) -> Iterator[Path]:
    """A new empty directory beside ``out`` to write into; at the end of the block it becomes ``out`` in one step.

    The files are forced to the disk before the step, so that after a power cut ``out`` is either what it was or
    complete. When the block raises, the staging directory is removed and ``out`` is untouched. A process that is
    killed leaves at most a hidden ``.<name>.<random>.partial`` beside ``out``.

    An empty directory at ``out`` counts as free. Raises FileExistsError when something else is there and
    ``replace`` is False; with ``replace`` an existing directory is exchanged and then removed.
    """
    out = Path(os.path.abspath(out))
    _check_free(out, replace=replace)
    out.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{out.name}.", suffix=".partial", dir=out.parent))
    try:
        staging.chmod(0o777 & ~_umask())  # mkdtemp is for secrets; an artefact has the permissions of any directory
        yield staging
        _sync_tree(staging)
        _check_free(out, replace=replace)
        _move_into_place(staging, out, replace=replace)
        _sync(out.parent)
    finally:
        # After a plain move nothing is left here; after an exchange it is the old content; after an error, the rest.
        shutil.rmtree(staging, ignore_errors=True)


def _check_free(out: Path, *, replace: bool) -> None:
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise FileExistsError(f"{out.name} exists and is not a directory; choose another name")
    if not replace and out.is_dir() and any(out.iterdir()):
        raise FileExistsError(f"{out.name} exists and is not empty; choose another name, or ask to replace it")


def _move_into_place(staging: Path, out: Path, *, replace: bool) -> None:
    try:
        # rename(2) takes the place of nothing or of an empty directory, and of nothing else: no check-then-act race.
        staging.rename(out)
    except OSError as error:
        if not replace or error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        if not _exchange(staging, out):
            _swap_in_two_steps(staging, out)


def _exchange(staging: Path, out: Path) -> bool:
    """Swap two directories in one system call (Linux renameat2); False where kernel or file system lacks it."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return False
    status = renameat2(_AT_FDCWD, os.fsencode(staging), _AT_FDCWD, os.fsencode(out), _RENAME_EXCHANGE)
    if status == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        return False
    raise OSError(code, os.strerror(code))


def _swap_in_two_steps(staging: Path, out: Path) -> None:
    """Where no exchange exists: a crash between the two renames leaves the old content beside, whole."""
    old = staging.with_suffix(".old")
    out.rename(old)
    try:
        staging.rename(out)
    except OSError:
        old.rename(out)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _sync_tree(root: Path) -> None:
    for directory, _, names in os.walk(root):
        for name in names:
            _sync(Path(directory, name))
        _sync(Path(directory))


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask() -> int:
    # The only portable way to read it is to set it; Linux also tells without the race.
    try:
        for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    except OSError:
        pass
    return 0o022
