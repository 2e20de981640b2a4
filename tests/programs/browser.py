# SPDX-License-Identifier: Apache-2.0
"""A real browser for tests: headless Chromium, spoken to in its DevTools protocol over a pipe.

Nothing but Python's standard library. Every wait has a deadline. `Browser.find()` is None where there is none.
"""
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time

DEADLINE = 120  # seconds for one answer: a loaded machine starts slowly


class BrowserError(Exception):
    pass


class Browser:
    """One page of a browser of its own. What it says (console, exceptions, logs, requests) is kept."""

    @staticmethod
    def find():
        return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

    def __init__(self, program):
        self.profile = tempfile.TemporaryDirectory(prefix="lockstep-browser-", ignore_cleanup_errors=True)
        read_here, write_there = os.pipe()
        read_there, write_here = os.pipe()
        self.input, self.output = write_here, read_here
        # The browser reads at 3 and writes at 4; the shell moves the pipe there, without code between fork and exec.
        command = [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                   "--no-first-run", "--hide-scrollbars", "--disable-background-networking",
                   "--user-data-dir=" + self.profile.name, "--remote-debugging-pipe", "about:blank"]
        self.process = subprocess.Popen(
            ["/bin/bash", "-c", f'exec "$@" 3<&{read_there} 4>&{write_there}', "browser", *command],
            pass_fds=(read_there, write_there), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True)
        os.close(read_there)
        os.close(write_there)
        self.buffer, self.last, self.session, self.events = b"", 0, None, []
        try:
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
            self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                self.call(domain + ".enable")
        except BaseException:
            self.close()
            raise

    def close(self):
        for pipe in (self.input, self.output):
            os.close(pipe)
        # The end of the pipe is the end of the browser; its helpers are of its process group.
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait(DEADLINE)
        self.profile.cleanup()

    def _receive(self, until):
        while b"\0" not in self.buffer:
            if not select.select([self.output], [], [], max(0, until - time.monotonic()))[0]:
                raise BrowserError(f"no answer in {DEADLINE} s")
            data = os.read(self.output, 1 << 16)
            if not data:
                raise BrowserError("the browser ended")
            self.buffer += data
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **parameters):
        self.last += 1
        message = {"id": self.last, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.input, data):]
        until = time.monotonic() + DEADLINE
        while True:
            answer = self._receive(until)
            if answer.get("id") == self.last:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def wait_for(self, method):
        until = time.monotonic() + DEADLINE
        while not any(event.get("method") == method for event in self.events):
            self.events.append(self._receive(until))

    def open(self, url, width, theme):
        """Shows a page anew, `width` CSS pixels wide, in the light or the dark theme."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
        self.events.clear()
        self.call("Page.navigate", url=url)
        self.wait_for("Page.loadEventFired")

    def evaluate(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise BrowserError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def complaints(self):
        """What the console would show, of the page that was opened last."""
        kinds = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [event for event in self.events if event.get("method") in kinds]

    def requests(self):
        return [event["params"]["request"]["url"] for event in self.events
                if event.get("method") == "Network.requestWillBeSent"]
