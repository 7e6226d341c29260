"""The *.safetensors files of a model directory: each tensor's file, dtype and shape, before any content is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator
from safetensors import SafetensorError, safe_open

from labengine.config import ConfigError
from labengine.engine.model_files.json_file import FileModel, read_object, relation_error, shown, validated

if TYPE_CHECKING:
    from torch import Tensor

INDEX = "model.safetensors.index.json"
DTYPES = ("BF16", "F16", "F32", "F64")
"""Dtypes that weights may have, as safetensors names them."""


def _file_name(text: str) -> str:
    if "/" in text or "\\" in text or not text.endswith(".safetensors"):
        raise relation_error("must be a .safetensors file in the same directory, got {text}", text=shown(text))
    return text


class IndexFields(FileModel):
    """model.safetensors.index.json: the file of each tensor."""

    weight_map: dict[str, Annotated[str, AfterValidator(_file_name)]]


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor in an open file, with dtype (by safetensors' name) and shape from the file's header."""

    name: str
    path: Path
    dtype: str
    shape: tuple[int, ...]
    _file: Any  # safetensors has no types

    def read(self) -> Tensor:
        """Return the content, mapped to the file. Raises ConfigError if it cannot be read."""
        try:
            tensor: Tensor = self._file.get_tensor(self.name)
        except (SafetensorError, OSError, ValueError, RuntimeError) as error:
            raise ConfigError(
                f"{self.path}: the tensor {self.name} cannot be read ({error}); download the file again"
            ) from error
        return tensor


StoredTensors = Mapping[str, StoredTensor]


@contextmanager
def open_tensors(model_dir: Path) -> Iterator[StoredTensors]:
    """Open all tensors of the directory, by name. Raises ConfigError for broken files, duplicates and a wrong index."""
    paths = sorted(model_dir.glob("*.safetensors"))
    if not paths:
        raise ConfigError(f"{model_dir} has no *.safetensors")
    with ExitStack() as stack:
        found: dict[str, StoredTensor] = {}
        for path in paths:
            file = stack.enter_context(_open(path))
            for tensor in _tensors_of(path, file):
                if other := found.get(tensor.name):
                    files = f"{other.path.name} and {path.name}"
                    raise ConfigError(f"{model_dir} has the tensor {tensor.name} twice, in {files}; delete one of them")
                found[tensor.name] = tensor
        _check_index(model_dir / INDEX, found)
        yield found


def _open(path: Path) -> Any:
    if not path.is_file():
        raise ConfigError(f"{path} is not a file")
    try:
        return safe_open(path, framework="pt")
    except (SafetensorError, OSError) as error:
        raise ConfigError(f"{path} is not a readable safetensors file ({error}); download it again") from error


def _tensors_of(path: Path, file: Any) -> Iterator[StoredTensor]:
    for name in file.keys():  # noqa: SIM118 (no dict)
        header = file.get_slice(name)
        yield StoredTensor(name, path, str(header.get_dtype()), tuple(header.get_shape()), file)


def _check_index(index: Path, found: StoredTensors) -> None:
    """Check that each tensor is in the file that the index names, if there is an index."""
    if not index.exists():
        return
    for name, file in validated(IndexFields, read_object(index), index).weight_map.items():
        if not (index.parent / file).is_file():
            raise ConfigError(f"{index}: {name} should be in {file}, which is missing; download it")
        if name not in found:
            raise ConfigError(f"{index}: {name} should be in {file} but is not; download both again")
        if found[name].path.name != file:
            raise ConfigError(
                f"{index}: {name} should be in {file}, but is in {found[name].path.name}; download both again"
            )
