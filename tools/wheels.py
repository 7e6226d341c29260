"""Build the wheels, and test this machine's: `python -m tools.wheels [FOLDER]`, or `make wheels`.

A platform's wheel brings the kernels for each instruction set, compiled here for all platforms by Zig's cross compiler,
a package on PyPI. Its wheel and hatchling go into a separate environment.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

from labengine.engine.native.compile import FLAGS, PREBUILT, SOURCES
from labengine.engine.native.instruction_set import machine
from tools.try_wheel import differences

ZIG = "ziglang==0.17.1"
TOOLS = (ZIG, "hatchling==1.33.0", "wheel==0.47.0")
"""Packages that build wheels; nothing else in the project needs them."""
ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
X86 = {
    "x86-64-v2": "x86_64_v2",
    "x86-64-v3": "x86_64_v3",
    "x86-64-v4": "x86_64_v4",
    "x86-64-v4-bf16": "x86_64_v4+avx512bf16",
}
ARM = {"aarch64": "generic", "aarch64-bf16": "generic+v8_2a+bf16"}
"""Zig's processor names by instruction set."""


@dataclass(frozen=True)
class Platform:
    """A platform with its own wheel. tag: pip's; target: Zig's; processors: Zig's by instruction set."""

    tag: str
    target: str
    processors: dict[str, str]


PLATFORMS = (
    Platform("manylinux_2_28_x86_64", "x86_64-linux-gnu.2.28", X86),
    Platform("manylinux_2_28_aarch64", "aarch64-linux-gnu.2.28", ARM),
    Platform("macosx_11_0_arm64", "aarch64-macos.11.0", ARM),
    Platform("win_amd64", "x86_64-windows-gnu", X86),
)


def main(arguments: list[str]) -> int:
    """Build all wheels into a folder, list them, and test this machine's. Return 1 if its tokens differ."""
    folder = Path(arguments[0]) if arguments else DIST
    with TemporaryDirectory(prefix="labengine-wheels-") as place:
        python = environment(Path(place) / "tools")
        wheels = list(build(python, folder.resolve(), Path(place)))
        for wheel in wheels:
            print(f"{wheel.stat().st_size / 1e6:6.2f} MB  {wheel.name}", flush=True)
        ours = [wheel for wheel in wheels if sys.platform == "linux" and wheel.stem.endswith(f"linux_2_28_{machine()}")]
        failures = [failure for wheel in ours for failure in differences(python, wheel, Path(place))]
    print("\n".join(failures) or f"tested: {', '.join(wheel.name for wheel in ours) or 'none'}")
    return bool(failures)


def environment(folder: Path, tools: Iterable[str] = TOOLS) -> Path:
    """Make a virtual environment with the tools, by pip's settings. Return its Python."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / "bin" / "python"
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", *tools], check=True)
    return python


def build(python: Path, folder: Path, scratch: Path) -> Iterator[Path]:
    """Build the wheel for any platform, and from it one for each platform; yield their paths.

    The plain wheel is for pages (Pyodide), for installs that compile the kernels, and for all other platforms.
    """
    command = [str(python), "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    plain = max(folder.glob("labengine-*-py3-none-any.whl"), key=lambda path: path.stat().st_mtime_ns)
    yield plain
    for platform in PLATFORMS:
        images = {isa: compiled(python, platform, isa, scratch) for isa in platform.processors}
        yield with_images(python, plain, platform, images, scratch)


def compiled(python: Path, platform: Platform, instruction_set: str, scratch: Path) -> bytes:
    """Return the kernels for an instruction set of another platform."""
    out = scratch / "kernels.so"
    command = [*compiler(python, platform, instruction_set), str(SOURCES / "labengine.c"), "-o", str(out), "-lm"]
    subprocess.run(command, check=True)
    return out.read_bytes()


def compiler(python: Path, platform: Platform, instruction_set: str) -> list[str]:
    """Return the compiler's command, with the flags for an instruction set of another platform."""
    flags = [*FLAGS, "-s", "-target", platform.target, f"-mcpu={platform.processors[instruction_set]}"]
    return [str(python), "-m", "ziglang", "cc", *flags]


def with_images(python: Path, plain: Path, platform: Platform, images: dict[str, bytes], scratch: Path) -> Path:
    """Write a platform's wheel: the plain wheel's files, the platform's tag, and an image per instruction set."""
    unpacked = scratch / platform.tag
    with ZipFile(plain) as archive:
        archive.extractall(unpacked)
    (metadata,) = unpacked.glob("*.dist-info/WHEEL")
    lines = metadata.read_text().replace("Tag: py3-none-any", f"Tag: py3-none-{platform.tag}")
    metadata.write_text(lines.replace("Root-Is-Purelib: true", "Root-Is-Purelib: false"))
    prebuilt = unpacked / PREBUILT.relative_to(ROOT)
    prebuilt.mkdir()
    for isa, image in images.items():
        (prebuilt / f"{isa}.so").write_bytes(image)
    command = [str(python), "-m", "wheel", "pack", str(unpacked), "--dest-dir", str(plain.parent)]
    subprocess.run(command, check=True, capture_output=True)
    return plain.with_name(plain.name.replace("none-any", f"none-{platform.tag}"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
