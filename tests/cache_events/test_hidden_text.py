"""Texts of KV events and their files: none brings a control or direction mark into a terminal or a cell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import labengine
from hidden_texts import HIDING, hidden_in
from kv_batches import SOURCE, messages, payload, removed, stored
from labengine.__main__ import main
from labengine.config import ConfigError
from labengine.vllm.cache_events.kv_files import EventRecorder

FIELDS: dict[str, Any] = {
    "medium": HIDING,
    "lora_name": HIDING,
    "kv_cache_spec_kind": HIDING,
    "extra_keys": [[HIDING]],
    "type": HIDING,
    "block_hashes": [HIDING.encode()],
    "token_ids": HIDING,
    "block_size": HIDING,
}


def texts_of(path: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    main(["attach", str(path)])
    said = capsys.readouterr()
    texts = [said.out + said.err]
    try:
        with labengine.kv_events(path) as prefixes:
            texts += [repr(prefixes), str(prefixes), prefixes.title]
    except ConfigError as error:
        texts.append(str(error))
    return texts


@pytest.mark.parametrize("field", [*FIELDS, "source"])
def test_no_text_of_kv_events_hides(field: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    others = {name: value for name, value in FIELDS.items() if name == field}
    batch = payload(stored([1, 2], range(8)) | others, removed([1], medium=HIDING))
    path = tmp_path / "run.kvevents"
    with EventRecorder(path, (SOURCE + HIDING * (field == "source"),)) as recorder:
        for message in messages(payload(stored([7], range(4))), batch):
            recorder.keep(message)
    assert list(filter(None, map(hidden_in, texts_of(path, capsys)))) == []
