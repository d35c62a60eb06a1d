"""Comparisons are fair, and say nothing when one side failed."""

import contextlib
import os
import sys

import pytest

from tests.bench import side_by_side
from tests.bench.run import write_results

# A contender that writes down when it works, with its figures on the command line. What begins
# with "!" is code to run instead of answering.
PROGRAM = """
import json, os, signal, sys, threading
from pathlib import Path
name, folder, *figures = sys.argv[1:]
(Path(folder) / f"{name}.pid").write_text(str(os.getpid()))
def note(what):
    with (Path(folder) / "journal").open("a") as journal:
        journal.write(f"{name} {what}\\n")
def answer(**said):
    print(json.dumps(said), flush=True)
note("begins")
answer(ready=f"settings of {name}")
for line, figure in zip(sys.stdin, figures):
    assert line == "run\\n"
    note("works")
    if figure.startswith("!"):
        exec(figure[1:])
    else:
        note("rests")
        answer(figure=float(figure))
"""


def command(tmp_path, name, figures):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    return [sys.executable, str(program), name, str(tmp_path), *map(str, figures)]


def test_contenders_take_turns(tmp_path):
    commands = {name: command(tmp_path, name, [1] * 3) for name in "ab"}
    side_by_side.interleave(commands, pairs=2)
    turn = ["a works", "a rests", "b works", "b rests"]
    journal = (tmp_path / "journal").read_text().splitlines()
    assert journal == ["a begins", "b begins"] + turn * 3


def test_the_first_round_does_not_count(tmp_path):
    commands = {"a": command(tmp_path, "a", [99, 6, 8]), "b": command(tmp_path, "b", [98, 2, 1])}
    settings, figures = side_by_side.interleave(commands, pairs=2)
    assert figures == {"a": [6, 8], "b": [2, 1]}
    assert settings == {"a": "settings of a", "b": "settings of b"}


def test_work_that_cannot_be_repeated_is_done_once(tmp_path):
    _, figures = side_by_side.interleave({"a": command(tmp_path, "a", [7])}, pairs=1)
    assert figures == {"a": [7]}


def test_medians_ranges_and_ratios():
    # Ratios by pairs are 3, 8, 1, 0.5 and 1: their median is 1, while that of the medians is 1.5.
    figures = {"a": [6.0, 8.0, 1.0, 2.0, 3.0], "b": [2.0, 1.0, 1.0, 4.0, 3.0]}
    settings = {"a": "fast", "b": "slow"}
    assert side_by_side.report("title", "km", settings, figures).splitlines() == [
        "title",
        "  a                   3.000 km  (1.000 to 8.000)",
        "  b                   2.000 km  (1.000 to 4.000)   a is 1.00x",
        "  a: fast",
        "  b: slow",
    ]
    less = side_by_side.report("title", "km", settings, figures, less_is_better=True)
    assert "a takes 1.00x" in less


def interleave_with_a_failure(tmp_path, failing, code, limit_s=60):
    """`failing` answers once and then runs `code`; returns what was said of it."""
    commands = {
        name: command(tmp_path, name, [1, f"!{code}" if name == failing else 2, 3, 4])
        for name in "ab"
    }
    with pytest.raises(side_by_side.Failed, match=f"^{failing} failed, ") as failure:
        side_by_side.interleave(commands, pairs=3, limit_s=limit_s)
    return str(failure.value)


@pytest.mark.parametrize("failing", ["a", "b"])
@pytest.mark.parametrize(
    "code, message",
    [
        ("raise ValueError('no such table')", "it ended with status 1"),
        ("sys.exit(0)", "it ended with status 0"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "it ended with status -9"),
        ("print('epoch 1', flush=True)", """expected {"figure": ...}. Received: b'epoch 1\\n'"""),
        ("print('[1]', flush=True)", """expected {"figure": ...}. Received: b'[1]\\n'"""),
        ("answer(speed=1)", """expected {"figure": ...}. Received: b'{"speed": 1}\\n'"""),
        ("answer(figure='fast')", "its figure must be a positive number. Received: 'fast'"),
        ("answer(figure=True)", "its figure must be a positive number. Received: True"),
        ("answer(figure=float('nan'))", "its figure must be a positive number. Received: nan"),
        ("answer(figure=0)", "its figure must be a positive number. Received: 0"),
    ],
)
def test_nothing_is_compared_when_one_side_fails(tmp_path, failing, code, message):
    assert message in interleave_with_a_failure(tmp_path, failing, code)


def test_the_error_of_the_failed_side_is_shown(tmp_path):
    said = interleave_with_a_failure(tmp_path, "b", "raise ValueError('no such table')")
    assert "Traceback (most recent call last)" in said
    assert said.endswith("ValueError: no such table")


@pytest.mark.parametrize("code", ["", "print('{', end='', flush=True);"])
def test_a_contender_that_hangs_fails(tmp_path, code):
    said = interleave_with_a_failure(tmp_path, "b", code + "threading.Event().wait()", limit_s=5)
    assert "no answer in 5 s" in said


def test_an_answer_too_many_is_not_taken_for_the_next(tmp_path):
    os.mkfifo(tmp_path / "go")
    os.mkfifo(tmp_path / "said")
    # During the turn of b, which waits for that, a answers once more.
    twice = "answer(figure=1); open(folder + '/go').read(); answer(figure=9)"
    twice += "; open(folder + '/said', 'w').close()"
    between = "open(folder + '/go', 'w').close(); open(folder + '/said').read(); answer(figure=2)"
    commands = {
        "a": command(tmp_path, "a", [f"!{twice}", 1]),
        "b": command(tmp_path, "b", [f"!{between}", 2]),
    }
    with pytest.raises(side_by_side.Failed, match="spoke without being asked.*9"):
        side_by_side.interleave(commands, pairs=2, limit_s=60)


@pytest.mark.parametrize("code", ["raise ValueError", "answer(figure=2)"])
def test_no_process_is_left_behind(tmp_path, code):
    commands = {name: command(tmp_path, name, [f"!{code}"]) for name in "ab"}
    with contextlib.suppress(side_by_side.Failed):
        side_by_side.interleave(commands, pairs=1)
    for name in "ab":
        with pytest.raises(ProcessLookupError):
            os.kill(int((tmp_path / f"{name}.pid").read_text()), 0)


def test_a_contender_that_cannot_start_fails():
    commands = {"a": [sys.executable, "-c", "raise ImportError('torch')"]}
    with pytest.raises(side_by_side.Failed, match="(?s)^a failed.*ImportError: torch$"):
        side_by_side.interleave(commands, pairs=1)


def shown_and_run(code):
    return [sys.executable, "-c", code]


def test_results_are_written_when_all_is_done(tmp_path):
    results = tmp_path / "RESULTS.md"
    commands = {"first 1": shown_and_run("print(11)"), "second": shown_and_run("print(22)")}
    write_results(results, "# Head\n", commands)
    assert (
        results.read_text() == "# Head\n\n`first 1`\n\n```\n11\n```\n\n`second`\n\n```\n22\n```\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["RESULTS.md"]


def test_results_stay_when_one_benchmark_fails(tmp_path, capfd):
    results = tmp_path / "RESULTS.md"
    results.write_text("old")
    commands = {
        "first": shown_and_run("print(11)"),
        "second": shown_and_run("import sys; print('is 2.00x'); sys.exit('rival is not there')"),
    }
    with pytest.raises(SystemExit, match="second failed") as failure:
        write_results(results, "# Head\n", commands)
    assert failure.value.code != 0
    assert results.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["RESULTS.md"]
    output = capfd.readouterr()
    assert "rival is not there" in output.err
    assert "is 2.00x" not in output.out
