"""Jobs that are watched while they run: what they print, their processes, and their end."""

import os
import re
import signal
import subprocess
import threading
import time

import psutil

from tests.multi.launch import start_ranks


class Job:
    """A program under way on several ranks. Used as a context, it leaves no process behind.

    Args:
        num_ranks, program, *arguments, env: as in `start_ranks`.
    """

    def __init__(self, num_ranks, program, *arguments, env=None):
        self._process = start_ranks(num_ranks, program, *arguments, env=env)
        self._family = []
        self._lines, self._ended, self._news = [], False, threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self._process.stdout:
            with self._news:
                self._lines.append(line)
                self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()

    @property
    def output(self):
        """What all ranks and horovodrun have printed so far."""
        return "".join(self._lines)

    def wait_for(self, pattern, timeout_s=120):
        """Waits until a line matches, and returns the match."""

        def found():
            return next(filter(None, (re.search(pattern, line) for line in self._lines)), None)

        with self._news:
            self._news.wait_for(lambda: found() or self._ended, timeout_s)
            match = found()
        assert match, f"no line has {pattern!r}:\n{self.output[-5000:]}"
        return match

    def expect_end(self, pid):
        """Remembers all processes of the job, of which `pid` is one: `end` looks for them."""
        launcher = psutil.Process(self._process.pid)
        self._family = [launcher, *launcher.children(recursive=True)]
        assert pid in [process.pid for process in self._family]

    def strike(self, pid, signal_number):
        """Sends a process a signal that is to end the job."""
        self.expect_end(pid)
        os.kill(pid, signal_number)

    def end(self, limit_s):
        """Waits for the end. Returns horovodrun's exit status and how many seconds it took.

        Fails if there is none within `limit_s`, or if a process is left of those that
        `strike` or `expect_end` saw.
        """
        begin = time.monotonic()
        try:
            status = self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"no end in {limit_s} s:\n{self.output[-5000:]}") from None
        took_s = time.monotonic() - begin
        with self._news:
            self._news.wait_for(lambda: self._ended, 10)
        _, left = psutil.wait_procs(self._family, timeout=10)
        assert not left, f"left behind: {left}\n{self.output[-5000:]}"
        return status, took_s

    def __enter__(self):
        """The job."""
        return self

    def __exit__(self, *exception):
        """Kills what is left."""
        if self._process.poll() is None:
            launcher = psutil.Process(self._process.pid)
            self._family += [*launcher.children(recursive=True), launcher]
        for process in self._family:
            try:
                process.send_signal(signal.SIGKILL)
            except psutil.NoSuchProcess:
                pass
        self._process.wait()


class Gate:
    """A place where processes wait until the test opens it: a named pipe without a writer.

    Args:
        path: of the pipe. Programs pass by `job.wait_at_gate(path)`.
    """

    def __init__(self, path):
        os.mkfifo(path)
        self._path, self._writer = path, None

    def open(self):
        """Lets through who waits and who comes later."""
        self._writer = os.open(self._path, os.O_RDWR)  # O_WRONLY would wait for a reader
