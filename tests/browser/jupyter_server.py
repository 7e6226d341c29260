"""A JupyterLab of our own on loopback: fresh folders, no token, nothing fetched from outside."""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

from waiting import PATIENCE, wait_until

# A test reads every cell from the page, so none may be virtual; and nothing may ask, save or phone home by itself.
OVERRIDES = {
    "@jupyterlab/notebook-extension:tracker": {"windowingMode": "none", "recordTiming": False},
    "@jupyterlab/docmanager-extension:plugin": {"autosave": False},
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
    "@jupyterlab/apputils-extension:sessionDialogs": {"skipKernelRestartDialog": True},
}

GRACE_S = 10.0
"""Seconds until a server that was told to end is killed: some never hear it, and no outcome depends on it."""


class JupyterServer:
    """JupyterLab over `base`/notebooks; started by `start()`, ended by `stop()` or with this process at the latest.

    options: further settings of JupyterLab or its server, as "ServerApp.port".
    """

    def __init__(self, base: Path, options: dict[str, object] | None = None) -> None:
        self.base = base
        self.options = options or {}
        self.root_dir = base / "notebooks"
        self.settings_dir = base / "user-settings"
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = base / "server.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns when the server answers; raises RuntimeError with its log if it does not."""
        for folder in ("notebooks", "user-settings", "workspaces", "app-settings"):
            (self.base / folder).mkdir()
        (self.base / "app-settings" / "overrides.json").write_text(json.dumps(OVERRIDES))
        (self.base / "app-settings" / "page_config.json").write_text(json.dumps({"buildCheck": False}))
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command(), stdout=log, stderr=subprocess.STDOUT, cwd=self.root_dir, preexec_fn=_die_with_parent
            )
        atexit.register(self.stop)
        self._wait_until_it_answers()

    def stop(self) -> None:
        """End the server; it ends its kernels. Twice is harmless."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def forget_user(self) -> None:
        """Drop what a page has stored (the theme, for one): the next page starts like the first."""
        shutil.rmtree(self.settings_dir)
        self.settings_dir.mkdir()

    def end_kernels(self) -> None:
        """Shut down every session with its kernel."""
        for session in self._api("sessions"):
            self._api(f"sessions/{session['id']}", method="DELETE")

    def _api(self, path: str, method: str = "GET") -> Any:
        request = urllib.request.Request(f"{self.url}/api/{path}", method=method)
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return json.loads(answer.read() or b"null")

    def _command(self) -> list[str]:
        options = {
            "ServerApp.ip": "127.0.0.1",
            "ServerApp.port": self.port,
            "ServerApp.port_retries": 0,
            "ServerApp.root_dir": self.root_dir,
            "ServerApp.password": "",
            "ServerApp.disable_check_xsrf": True,
            "IdentityProvider.token": "",
            "LabApp.expose_app_in_browser": True,
            "LabApp.extension_manager": "readonly",
            "LabApp.news_url": None,
            "LabApp.check_for_updates_class": "jupyterlab.NeverCheckForUpdate",
            "LabApp.app_settings_dir": self.base / "app-settings",
            "LabApp.workspaces_dir": self.base / "workspaces",
            "LabApp.user_settings_dir": self.settings_dir,
        }
        flags = [f"--{name}={value}" for name, value in (options | self.options).items()]
        return [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", *flags]

    def _wait_until_it_answers(self) -> None:
        try:
            wait_until(self._answers, "JupyterLab", between=lambda: time.sleep(0.05))
        except AssertionError as error:
            self.stop()
            raise RuntimeError(f"{error}:\n{self.log.read_text(errors='replace')[-4000:]}") from None

    def _answers(self) -> bool:
        assert self._process is not None and self._process.poll() is None, "JupyterLab has ended"
        try:
            self._api("status")
        except OSError:
            return False
        return True


def _free_port() -> int:
    """Return a port below those that Linux deals out: until the server has it, no other process is given it."""
    while True:
        port = Random().randrange(11_000, 32_000)  # Chromium refuses 10080
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def _die_with_parent() -> None:
    """In the child: end when the tests' process is killed and no exit handler runs. (Linux has a word for it.)"""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGTERM)
        if os.getppid() == 1:
            os.kill(os.getpid(), signal.SIGTERM)
