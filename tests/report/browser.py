"""A headless Chromium that opens files, or what this machine serves, with the network off, driven
through a pipe by its DevTools protocol: https://chromedevtools.github.io/devtools-protocol"""

from __future__ import annotations

import base64
import functools
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.tools import missing, need_command

SECONDS = 30.0
"""How long anything may take: a loaded machine draws slowly."""
READY = "document.documentElement?.dataset.ready === 'true'"
"""What a page's script says when it has drawn."""
STARTER = """
import os, sys
os.dup2(int(sys.argv[1]), 100), os.dup2(int(sys.argv[2]), 101)
os.dup2(100, 3), os.dup2(101, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""The browser reads commands from descriptor 3 and writes answers to 4."""


def find_chromium() -> str:
    """The path of a browser, those that Playwright has installed included; else skips, or fails
    where CI=true."""
    known = Path.home() / ".cache" / "ms-playwright"
    installed = sorted(known.glob("chromium*/chrome-linux*/*"))
    for path in installed:
        if path.name in ("chrome", "headless_shell"):
            return str(path)
    return need_command("chromium", "chromium-browser", "google-chrome", "chrome")


@contextmanager
def chromium(folder: Path) -> Iterator[Browser]:
    """A browser whose profile is in `folder`."""
    path = find_chromium()
    for_browser, commands = os.pipe()
    answers, by_browser = os.pipe()
    options = [
        *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
        *("--remote-debugging-pipe", f"--user-data-dir={folder}", "--window-size=1440,900"),
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        "--proxy-server=127.0.0.1:9",
    ]
    pipes = [str(for_browser), str(by_browser)]
    process = subprocess.Popen(
        [sys.executable, "-c", STARTER, *pipes, path, *options, "about:blank"],
        pass_fds=(for_browser, by_browser),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(for_browser)
    os.close(by_browser)
    try:
        yield Browser(commands, answers)
    finally:
        process.kill()
        process.wait()
        os.close(commands)
        os.close(answers)


@contextmanager
def served(folder: Path) -> Iterator[int]:
    """The port at which this machine serves a folder's files until the end."""
    handler = functools.partial(_Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_port
        finally:
            server.shutdown()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


class Browser:
    """One page. `problems` are exceptions and errors of the console, and requests of anything but
    the file itself, or the server that it visits."""

    def __init__(self, commands: int, answers: int) -> None:
        self.commands, self.answers = commands, answers
        self.read = b""
        self.number = 0
        self.session: str | None = None
        self.problems: list[str] = []
        self.seconds = SECONDS
        self.own: tuple[str, ...] = ("file:", "about:", "blob:", "data:")
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.offline(True)

    def call(self, method: str, **parameters: Any) -> Any:
        """What the browser answers."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session is not None:
            message["sessionId"] = self.session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message()
            if answer.get("id") == self.number:
                assert "error" not in answer, answer["error"]
                return answer["result"]
            self._note(answer)

    def offline(self, off: bool) -> None:
        """Take the network away, or give that of this machine back."""
        rates = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        self.call("Network.emulateNetworkConditions", offline=off, **rates)

    def visit(self, port: int, dark: bool = False) -> None:
        """Load a page of this machine's server, wait until it is ready, then be offline."""
        address = f"http://127.0.0.1:{port}/"
        self.own = (*self.own, address)
        self.scheme(dark)
        self.offline(False)
        self.call("Page.navigate", url=address)
        self.until(f"location.href === {address!r} && {READY}")
        self.offline(True)

    def scheme(self, dark: bool) -> None:
        """What the user prefers."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, path: Path, place: str = "", dark: bool = False) -> None:
        """Load a report and wait until it has drawn its first view."""
        self.scheme(dark)
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=f"file://{path}{place and '#' + place}")
        self.until(READY)

    def js(self, expression: str) -> Any:
        """The value of an expression, awaited if it is a promise."""
        result = self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def until(self, condition: str, seconds: float | None = None) -> None:
        """Wait for an expression to be true."""
        end = time.monotonic() + (seconds or self.seconds)
        while not self.js(f"Boolean({condition})"):
            assert time.monotonic() < end, f"not true: {condition}"
            self.js("new Promise((done) => setTimeout(done, 20))")

    def key(self, name: str, text: str = "") -> None:
        """Press a key."""
        event = {"key": name, "code": name, **({"text": text} if text else {})}
        if name == "Enter":
            event |= {"text": "\r", "windowsVirtualKeyCode": 13}
        self.call("Input.dispatchKeyEvent", type="keyDown", **event)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=name, code=name)

    def write(self, text: str) -> None:
        """Type into what has the focus."""
        self.call("Input.insertText", text=text)

    def point(self, selector: str, click: bool = False) -> None:
        """Move the pointer to the middle of the first element, and click there."""
        found = json.dumps(selector)
        self.js(f"document.querySelector({found}).scrollIntoView({{block: 'center'}})")
        box = self.js(
            f"(({{x, y, width, height}}) => [x + width / 2, y + height / 2])"
            f"(document.querySelector({found}).getBoundingClientRect())"
        )
        event = {"x": box[0], "y": box[1]}
        self.call("Input.dispatchMouseEvent", type="mouseMoved", **event)
        if click:
            for kind in ("mousePressed", "mouseReleased"):
                press = {"type": kind, "button": "left", "clickCount": 1}
                self.call("Input.dispatchMouseEvent", **press, **event)

    def click(self, selector: str) -> None:
        """Click on the middle of the first element."""
        self.point(selector, click=True)

    def screenshot(self) -> bytes:
        """What is to be seen, as PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def _message(self) -> Any:
        while b"\0" not in self.read:
            ready, _, _ = select.select([self.answers], [], [], self.seconds)
            more = os.read(self.answers, 1 << 20) if ready else b""
            if not more:
                missing("the browser does not answer")
            self.read += more
        one, _, self.read = self.read.partition(b"\0")
        return json.loads(one)

    def _note(self, event: Any) -> None:
        method, given = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.problems.append(str(given["exceptionDetails"]))
        if method == "Runtime.consoleAPICalled" and given["type"] in ("error", "warning"):
            self.problems.append(str(given["args"]))
        if method == "Log.entryAdded" and given["entry"]["level"] in ("error", "warning"):
            self.problems.append(str(given["entry"]))
        if method == "Network.requestWillBeSent":
            url = given["request"]["url"]
            if not url.startswith(self.own):
                self.problems.append(f"asks for {url}")
