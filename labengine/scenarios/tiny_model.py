"""Scenarios below the plan: a tiny random model, whose tokens are compared with those of each request run alone."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import zip_longest
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any
from weakref import finalize

from labengine.engine.torch_import import load_torch
from labengine.events import TokenSampled
from labengine.lab import Lab
from labengine.scenarios.scenario import FirstWrong, Scenario, settings, wrong_at
from labengine.system.extras import require_extra

SIZES: Mapping[str, Any] = {
    "model_type": "llama",
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 100.0,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
}


@cache
def tiny_model() -> Path:
    """Return the directory of a model of 20,000 random weights, equal in every process and created on first use.

    Its keys depend strongly on position and token, so KV in a wrong slot soon shows in the tokens. Raises ConfigError
    without the extra `models`.
    """
    require_extra("models", "a scenario that compares tokens of a tiny model")
    load_torch()
    import torch
    from safetensors.torch import save_file

    parent = mkdtemp(prefix="labengine-")
    finalize(tiny_model, rmtree, parent, ignore_errors=True)
    directory = Path(parent, "tiny-random")
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(dict(SIZES)))
    generator = torch.Generator().manual_seed(0)
    tensors = {
        name: torch.ones(shape) if len(shape) == 1 else 0.4 * torch.randn(shape, generator=generator)
        for name, shape in _shapes()
    }
    save_file(tensors, directory / "model.safetensors")
    return directory


def _shapes() -> Iterator[tuple[str, tuple[int, ...]]]:
    hidden, between = SIZES["hidden_size"], SIZES["intermediate_size"]
    queries, keys = (SIZES[f"num_{which}_heads"] * SIZES["head_dim"] for which in ("attention", "key_value"))
    yield "model.embed_tokens.weight", (SIZES["vocab_size"], hidden)
    yield "model.norm.weight", (hidden,)
    for layer in range(SIZES["num_hidden_layers"]):
        for part, shape in {
            "input_layernorm": (hidden,),
            "post_attention_layernorm": (hidden,),
            "self_attn.q_proj": (queries, hidden),
            "self_attn.k_proj": (keys, hidden),
            "self_attn.v_proj": (keys, hidden),
            "self_attn.o_proj": (hidden, queries),
            "mlp.gate_proj": (between, hidden),
            "mlp.up_proj": (between, hidden),
            "mlp.down_proj": (hidden, between),
        }.items():
            yield f"model.layers.{layer}.{part}.weight", shape


@cache
def tokens_alone(model: str, prompt: tuple[int, ...], num_tokens: int) -> tuple[int, ...]:
    """Return the tokens that a request gets in a separate, empty lab with labengine's runner."""
    with Lab(model, num_blocks=16, block_size=16, device="cpu", record=False, check=False) as lab:
        (output,) = lab.generate([prompt], max_tokens=num_tokens, ignore_eos=True)
        return tuple(output.token_ids)


class TinyModelScenario(Scenario):
    """A scenario whose columns differ in the runner: a tiny model with real KV replaces the simulated one."""

    settings = settings(num_blocks=16, block_size=4, device="cpu")
    why_unseen = "The checks judge the plan, which is right; the runner computes a different one."
    wrong_when = "wrong tokens"

    def lab(self, column: str, model: str = "simulated") -> Lab:
        """Return an empty lab of one column, on the tiny model by default."""
        return super().lab(column, self.model_for(model))

    def model_for(self, model: str) -> str:
        """Return the model, or the tiny model's directory instead of the simulated one."""
        return str(tiny_model()) if model == "simulated" else model

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count generated tokens, and those that differ from the tokens of each request run alone."""
        compared = [pair for request_id in lab.snapshot().requests for pair in _beside_alone(lab, request_id)]
        return {"tokens": len(compared), "wrong tokens": sum(token != alone for token, alone in compared)}

    def first_wrong(self, lab: Lab) -> FirstWrong | None:
        """Return the first token that differs from its request's run alone."""
        assert lab.timeline is not None
        for moment, event in enumerate(lab.timeline.events(), lab.timeline.num_dropped):
            if isinstance(event, TokenSampled) and event.token_id != _alone_at(lab, event):
                right = _alone_at(lab, event)
                text = f"Position {event.position} of request {event.request_id} is token {event.token_id}"
                return wrong_at(lab, moment, f"{text}; alone, the request gets {right}.")
        return None


class LoadsStoredBlocks(TinyModelScenario):
    """Two full blocks of A's prompt go to the tier; the pool forgets them; B, with a longer prompt, loads them."""

    settings = settings(num_blocks=24, block_size=4, device="cpu")
    prefix = tuple(range(10, 20))

    def play(self, lab: Lab) -> None:
        """Run A, which fills the tier; clear the pool's cache; run B to its end."""
        lab.generate([self.prefix], max_tokens=1, ignore_eos=True)
        lab.reset_prefix_cache()
        lab.add(token_ids=[*self.prefix[:8], 60, 61, 62], max_tokens=6, ignore_eos=True)
        for _ in range(6):
            lab.step()


def _beside_alone(lab: Lab, request_id: int) -> list[tuple[int | None, int | None]]:
    """Return pairs of a request's generated tokens and those of its run alone."""
    request = lab.snapshot().requests[request_id]
    prompt = request.token_ids[: request.num_prompt_tokens]
    got = request.token_ids[request.num_prompt_tokens :]
    return list(zip_longest(got, tokens_alone(str(lab.model), tuple(prompt), len(got)))) if got else []


def _alone_at(lab: Lab, event: TokenSampled) -> int | None:
    request = lab.snapshot().requests[event.request_id]
    compared = _beside_alone(lab, event.request_id)
    return compared[event.position - request.num_prompt_tokens][1]
