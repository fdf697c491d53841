"""JupyterLab and Notebook 7, each on its own port and with its own folders: no user's setting counts."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.request
import uuid
from pathlib import Path
from typing import Any, Literal

import nbformat
from nbformat.reader import NotJSONError
from playwright.sync_api import Page

ROOT = Path(__file__).resolve().parents[2]
EXTENSION = ROOT / "labextension" / "dist"
Application = Literal["lab", "notebook"]

_FLAGS = (
    "--no-browser",
    "--allow-root",
    "--ip=127.0.0.1",
    "--IdentityProvider.token=",
    "--ServerApp.disable_check_xsrf=True",
    "--ServerApp.port_retries=200",
    "--ServerApp.log_level=WARN",
    "--LabApp.expose_app_in_browser=True",
    "--LabApp.collaborative=False",
    "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    "--LanguageServerManager.autodetect=False",
)
NOTEBOOKS_OWN = r"reading 'schema'.*/static/notebook/"
"""What Notebook 7 itself throws at every start."""
_STATUS = "jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel?.status"


class Server:
    """A running Jupyter application and the folder that it serves."""

    def __init__(self, application: Application, home: Path) -> None:
        if not (EXTENSION / "package.json").exists():
            raise FileNotFoundError(f"{EXTENSION} has not been built: run `make labextension`.")
        self.application = application
        self.folder = home / "notebooks"
        self._log = home / "server.log"
        self._process, self.url = self._start(home)

    def _start(self, home: Path) -> tuple[subprocess.Popen[bytes], str]:
        folders = {
            name: home / name for name in ("config", "data", "runtime", "ipython", "notebooks", "path")
        }
        for folder in folders.values():
            folder.mkdir(parents=True)
        # The extension as built in this checkout, ahead of whatever the environment has.
        (folders["path"] / "labextensions").mkdir()
        (folders["path"] / "labextensions" / "nbcompile").symlink_to(EXTENSION)
        settings = folders["config"] / "lab" / "user-settings"
        news = settings / "@jupyterlab" / "apputils-extension" / "notification.jupyterlab-settings"
        news.parent.mkdir(parents=True)
        news.write_text('{"fetchNews": "false"}')  # else a question about it covers a corner
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("JUPYTER")},
            "JUPYTER_CONFIG_DIR": str(folders["config"]),
            "JUPYTER_DATA_DIR": str(folders["data"]),
            "JUPYTER_RUNTIME_DIR": str(folders["runtime"]),
            "JUPYTER_PATH": str(folders["path"]),
            "JUPYTER_PREFER_ENV_PATH": "1",  # this environment's kernel, not one of that name elsewhere
            "JUPYTERLAB_SETTINGS_DIR": str(settings),
            "JUPYTERLAB_WORKSPACES_DIR": str(folders["config"] / "lab" / "workspaces"),
            "IPYTHONDIR": str(folders["ipython"]),
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
        }
        flags = [*_FLAGS, f"--ServerApp.root_dir={self.folder}"]
        if self.application == "notebook":
            flags.append("--JupyterNotebookApp.expose_app_in_browser=True")
        module = {"lab": "jupyterlab", "notebook": "notebook"}[self.application]
        with self._log.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", module, *flags], env=environment, stdout=log, stderr=log, cwd=home
            )
        return process, self._address(process, folders["runtime"])

    def _address(self, process: subprocess.Popen[bytes], runtime: Path, seconds: float = 60) -> str:
        """The URL that the server wrote down once it listens: the port is the first that was free."""
        note = runtime / f"jpserver-{process.pid}.json"
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if process.poll() is not None:
                break
            try:
                return str(json.loads(note.read_text())["url"]).rstrip("/")
            except (FileNotFoundError, json.JSONDecodeError):
                time.sleep(0.1)
        process.kill()
        raise RuntimeError(f"{self.application} did not start:\n{self.log()}")

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def write(self, name: str, *cells: str | dict[str, Any]) -> Path:
        """A notebook of code cells (or whole cells, as dicts) in the server's folder; its path."""
        made = [nbformat.v4.new_code_cell(each) if isinstance(each, str) else each for each in cells]
        notebook = nbformat.v4.new_notebook(
            cells=[nbformat.from_dict(each) for each in made],
            metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
        )
        path = self.folder / name
        nbformat.write(notebook, path)
        return path

    def open(self, page: Page, name: str, *, kernel: bool = True) -> None:
        """Show the notebook ``name`` of the server's folder. ``kernel``: wait until its kernel is idle."""
        if self.application == "lab":
            # A workspace of its own: what an earlier test left open is not there.
            page.goto(f"{self.url}/lab/workspaces/{uuid.uuid4().hex[:8]}/tree/{name}")
        else:
            page.goto(f"{self.url}/notebooks/{name}")
        page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=60_000)
        if kernel:
            self.idle(page)

    def idle(self, page: Page, seconds: float = 60) -> None:
        """Wait until the kernel of the notebook shown is idle (the indicator on the screen lies)."""
        page.wait_for_function(f"() => {_STATUS} === 'idle'", timeout=1000 * seconds)

    def run_all(self, page: Page) -> None:
        """Start all cells; what they show is waited for by its selector."""
        # The promise is not returned: evaluating it never ends.
        page.evaluate("() => { void jupyterapp.commands.execute('notebook:run-all-cells'); return 1; }")

    def execute(self, page: Page, command: str, arguments: dict[str, Any] | None = None) -> None:
        """Start an application command."""
        page.evaluate(
            "([id, args]) => { void jupyterapp.commands.execute(id, args); return 1; }",
            [command, arguments or {}],
        )

    def save(self, page: Page, path: Path) -> nbformat.NotebookNode:
        """Save the notebook shown, which lies at ``path``, and read it."""
        before = path.stat().st_mtime_ns
        self.execute(page, "docmanager:save")
        until = time.monotonic() + 20
        while time.monotonic() < until:
            page.wait_for_timeout(50)
            # Not yet written, or half of it.
            with contextlib.suppress(FileNotFoundError, NotJSONError):
                if path.stat().st_mtime_ns != before:
                    return nbformat.read(path, 4)
        raise TimeoutError(f"{path.name} was not saved in 20 s")

    def theme(self, page: Page, theme: str) -> None:
        """Set the application's own theme, ``light`` or ``dark``, and wait for it."""
        self.execute(page, "apputils:change-theme", {"theme": f"JupyterLab {theme.title()}"})
        page.wait_for_selector(
            f"body[data-jp-theme-light={'true' if theme == 'light' else 'false'}]", state="attached"
        )

    def stop_kernels(self) -> None:
        """End every kernel that a test left."""
        with urllib.request.urlopen(f"{self.url}/api/sessions") as reply:
            sessions = json.load(reply)
        for session in sessions:
            request = urllib.request.Request(f"{self.url}/api/sessions/{session['id']}", method="DELETE")
            urllib.request.urlopen(request).close()

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
