"""labengine doctor: the command."""

from __future__ import annotations

import json
import shlex
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import replace

from tqdm import tqdm

from labengine.config import ConfigError
from labengine.prefix_doctor.diagnosis import Diagnosis
from labengine.prefix_doctor.doctor import doctor
from labengine.prefix_doctor.traffic.prompt import Prompt
from labengine.system.ending_signals import EndingSignals
from labengine.vllm.stream.attach import MAX_EVENTS
from labengine.vllm.stream.endpoints import is_live
from labengine.vllm.stream.files import places_in
from labengine.vllm.stream.ranks import attach_ranks
