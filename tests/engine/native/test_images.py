"""What is loaded of the kernels that were kept, and what is not."""

from __future__ import annotations

import os
from collections.abc import Callable
from ctypes import Structure, c_int64
from enum import IntEnum
from hashlib import sha256
from pathlib import Path

import pytest

from engine.native.fake_compilers import giving, num_calls, stub
from labengine.engine.native import __main__ as command
from labengine.engine.native import compile as compiling
from labengine.engine.native import image as opening
from labengine.engine.native import layout, probe, trust
from labengine.engine.native import library as kernels
from labengine.engine.native.image import SUFFIXES, ImageError, ImageFolder, InstalledImages, open_image

Compilers = Callable[..., None]


@pytest.fixture
def kept(image: bytes, cache: Path, compilers: Compilers, tmp_path: Path) -> Path:
    """The file of kernels that were compiled, by a fake compiler, and kept; num_calls counts its runs."""
    compilers(giving(tmp_path, image))
    kernels.library()
    (file,) = cache.iterdir()
    kernels._opened.cache_clear()
    return file


def truncated(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def with_a_flipped_bit(file: Path) -> None:
    """Of the same size and time."""
    status, data = file.stat(), bytearray(file.read_bytes())
    data[len(data) // 2] ^= 4
    file.write_bytes(data)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


def of_other_sources(file: Path) -> None:
    """And by its right digest."""
    folder = file.parent.parent / "elsewhere"
    folder.mkdir()
    library = stub(folder, op="int64_t more;")
    file.with_name(f"{file.name.split('-')[0]}-{sha256(library).hexdigest()}.so").write_bytes(library)
    file.unlink()


def writable_by_all(file: Path) -> None:
    file.chmod(0o666)


def a_link(file: Path) -> None:
    """To a file that may be anybody's."""
    aside = file.parent.parent / "aside.so"
    file.rename(aside)
    file.symlink_to(aside)


def a_pipe(file: Path) -> None:
    """Opened, it would wait for a writer."""
    file.unlink()
    os.mkfifo(file)


DAMAGES = [truncated, with_a_flipped_bit, of_other_sources, writable_by_all, a_link, a_pipe]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_what_is_broken_is_made_anew(damage: Callable[[Path], None], kept: Path, image: bytes, tmp_path: Path) -> None:
    damage(kept)
    before = num_calls(tmp_path)
    kernels.library()
    assert num_calls(tmp_path) == before + 1
    assert list(kept.parent.iterdir()) == [kept] and kept.read_bytes() == image and not kept.is_symlink()
    kernels._opened.cache_clear()
    kernels.library()
    assert num_calls(tmp_path) == before + 1, "what was made anew is used"


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_nothing_is_loaded_from_folders_that_others_can_write_to(
    depth: int, kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor kept there: it is compiled for the process alone, which says so."""
    folder = kept.parents[depth]
    folder.chmod(0o777)
    before = kept.stat()
    capsys.readouterr()
    kernels.library()
    assert num_calls(tmp_path) == 2 and kept.stat() == before and list(kept.parent.iterdir()) == [kept]
    assert (
        f"cannot be kept, and will be compiled in each process: {folder} can be written to" in capsys.readouterr().err
    )


def test_a_sticky_folder_on_the_way_is_no_harm(kept: Path, tmp_path: Path) -> None:
    """As /tmp is: there others can neither rename nor replace what is mine. The last folder is to be mine alone."""
    kept.parents[1].chmod(0o1777)
    kernels.library()
    assert num_calls(tmp_path) == 1
    kernels._opened.cache_clear()
    kept.parent.chmod(0o1777)
    kernels.library()
    assert num_calls(tmp_path) == 2


def test_what_belongs_to_another_user_is_not_loaded(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen from another user's process (or, where this is root's, by a user whose folders are root's)."""
    name = kept.name.split("-")[0]
    assert list(ImageFolder(kept.parent).images(name))
    other = os.geteuid() + 1
    monkeypatch.setattr(trust.os, "geteuid", lambda: other)
    assert not list(ImageFolder(kept.parent).images(name))
    assert trust.file_distrust(kept.stat()) == "it belongs to another user"
    if other != 1:
        assert trust.folder_distrust(kept.parent) == f"{kept.parent} belongs to another user"


def status(mode: int, owner: int, group: int = 0) -> os.stat_result:
    return os.stat_result((0o100000 | mode, 0, 0, 1, owner, group, 1, 0, 0, 0))


def test_a_group_is_no_other_user_where_it_is_the_users_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trust, "_is_private", {7: True, 8: False}.get)
    me = os.geteuid()
    assert trust.file_distrust(status(0o664, me, 7)) is None
    assert trust.file_distrust(status(0o664, me, 8)) == "it can be written to by other users"
    assert trust.file_distrust(status(0o666, me, 7)) == "it can be written to by other users"
    assert trust.file_distrust(status(0o644, me, 8)) is None


def test_installed_kernels_are_as_trusted_as_the_code_beside_them() -> None:
    me, other, third = os.geteuid(), os.geteuid() + 1, os.geteuid() + 2
    code = status(0o664, other, 7)
    for file in (status(0o664, other, 7), status(0o644, me, 8), status(0o444, 0, 8)):
        assert trust.installed_distrust(file, code) is None
    for file in (status(0o666, other, 7), status(0o664, other, 8)):
        assert trust.installed_distrust(file, code) == "it can be written to by more users than the package"
    assert trust.installed_distrust(status(0o644, third, 7), code) == "it belongs to another user than the package"


@pytest.fixture
def installed(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The installed package's folder for kernels."""
    folder = tmp_path / "package" / "compiled"
    folder.parent.mkdir()
    for module in (kernels, command):
        monkeypatch.setattr(module, "installed_images", lambda: InstalledImages(folder))
    return folder


def test_kernels_in_the_package_serve_those_without_a_compiler(
    image: bytes, installed: Path, cache: Path, compilers: Compilers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compilers(giving(tmp_path, image))
    assert command.main() == 0
    (file,) = installed.iterdir()
    monkeypatch.setattr(compiling.shutil, "which", lambda name: None)
    kernels.library()
    assert not cache.exists()
    for damage in (truncated, writable_by_all):
        kernels._opened.cache_clear()
        file.write_bytes(image)
        damage(file)
        with pytest.raises(compiling.CompileError, match="no C compiler"):
            kernels.library()
    file.write_bytes(image)
    file.chmod(0o644)
    kernels.library()
    kernels._opened.cache_clear()
    installed.chmod(0o777)
    with pytest.raises(compiling.CompileError, match="no C compiler"):
        kernels.library()


def test_what_cannot_be_installed_is_said(
    installed: Path, compilers: Compilers, capsys: pytest.CaptureFixture[str]
) -> None:
    compilers("false")
    assert command.main() == 1
    assert "false could not" in capsys.readouterr().err and not installed.exists()


def test_a_cache_that_cannot_be_written_to(
    image: bytes, cache: Path, compilers: Compilers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The kernels serve this process."""
    compilers(giving(tmp_path, image))
    cache.parent.mkdir()
    cache.write_text("a file where a folder should be")
    kernels.library()
    assert "cannot be kept, and will be compiled in each process: " in capsys.readouterr().err


# -- opening an image ------------------------------------------------------------------------------------------------


def test_an_image_in_memory_can_neither_be_written_nor_truncated() -> None:
    number = opening._sealed_memory(b"some bytes")
    try:
        assert os.pread(number, 100, 0) == b"some bytes"
        for change in (lambda: os.pwrite(number, b"x", 0), lambda: os.ftruncate(number, 1)):
            with pytest.raises(PermissionError):
                change()
    finally:
        os.close(number)


def test_without_such_memory_a_file_serves(image: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And is gone once it is mapped."""

    def refuse(image: bytes) -> int:
        raise OSError("no such system call")

    monkeypatch.setattr(opening, "_sealed_memory", refuse)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    opened = open_image(image)
    assert not list(tmp_path.iterdir())
    assert all(probe.computed(opened, suffix) for suffix in SUFFIXES)


def test_an_image_that_fails_to_open_leaves_no_file_open() -> None:
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    with pytest.raises(ImageError, match="it cannot be loaded"):
        open_image(b"garbage")
    assert not before or len(os.listdir("/proc/self/fd")) == before


def op_with(fields: list[tuple[str, type]]) -> type[Structure]:
    return type("Op", (Structure,), {"_fields_": fields})


FIELDS = list(layout.Op._fields_)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"Op": op_with([FIELDS[1], FIELDS[0], *FIELDS[2:]])}, "it has other fields and ops"),
        ({"Op": op_with(FIELDS[:-1])}, "it has other fields and ops"),
        ({"Op": op_with([*FIELDS[:4], ("out", c_int64), *FIELDS[5:]])}, r"Op.out is \[16, 4\] there, and \[16, 8\]"),
        ({"Op": op_with([*FIELDS[:-1], ("window", c_int64)])}, r"Op.window is \[\d+, 4\] there"),
        ({"Finish": IntEnum("Finish", "PLAIN ADD SILU_MUL GELU_MUL TO_FLOAT")}, r"PLAIN is \[0\] there, and \[1\]"),
    ],
)
def test_structs_that_differ_from_cs_are_named(
    changed: dict[str, type], said: str, image: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python's own, this time."""
    assert layout.layout_difference(open_image(image)) is None
    for name, struct in changed.items():
        monkeypatch.setattr(layout, name, struct)
    with pytest.raises(ImageError, match=f"it was made of other sources: {said}"):
        open_image(image)


def test_images_of_one_name_replace_each_other(image: bytes, tmp_path: Path) -> None:
    folder = ImageFolder(tmp_path / "images")
    folder.keep("other", b"another name's")
    for content in (b"first", b"second"):
        folder.keep("name", content)
    (found,) = folder.images("name")
    assert found == b"second" and list(folder.images("other")) == [b"another name's"]
    assert opening.cached_images().distrust() is None, "the cache of whoever runs the tests"


def test_where_files_have_no_owners_none_is_distrusted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As on Windows; a folder in the place of a file is still no library."""
    monkeypatch.setattr(trust, "HAS_OWNERS", False)
    file, code = status(0o666, os.geteuid() + 1), status(0o644, 0)
    assert trust.file_distrust(file) is None and trust.installed_distrust(file, code) is None
    assert trust.folder_distrust(tmp_path) is None
    assert trust.file_distrust(tmp_path.stat()) == "it is no regular file"


def test_windows_loads_a_file_that_stays(image: bytes, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loaded library cannot be deleted there, so it is none of a temporary folder; what was damaged is replaced."""
    monkeypatch.setattr(opening.sys, "platform", "win32")
    open_image(image)
    (kept,) = cache.iterdir()
    assert kept.name == f"{sha256(image).hexdigest()}.dll" and kept.read_bytes() == image
    kept.unlink()  # here it is loaded: truncating it would end this process
    kept.write_bytes(image[:100])
    open_image(image)
    assert [kept] == list(cache.iterdir()) and kept.read_bytes() == image
