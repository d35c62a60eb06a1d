"""When a rank dies, hangs or fails, the job ends: on all ranks, in time, and with the reason.

Each test runs programs/doomed.py under horovodrun and strikes one of its processes.
"""

import re
import signal

import pytest

from tests.multi.watch import Gate, Job

pytestmark = [pytest.mark.multi, pytest.mark.slow]

# What a user has to wait for at most when a rank has died or failed.
END_S = 60


def doomed(num_ranks, what, victim, folder, **env):
    return Job(num_ranks, "doomed.py", what, victim, folder, env=env)


def pid_of_victim(job):
    return int(job.wait_for(r"here: .* pid=(\d+)")[1])


def start_together(job, gate):
    """Lets no rank wait for another that is still loading its packages."""
    for rank in (0, 1):
        job.wait_for(rf"\[{rank}\].*ready")
    gate.open()


def report(what, took_s):
    print(f"{what}: ended after {took_s:.1f} s")


@pytest.mark.parametrize(
    "what, victim, num_ranks",
    [
        ("wait_before_the_first_step", 2, 3),
        ("run_in_fit", 0, 2),
        ("wait_in_predict", 1, 2),
        ("wait_between_fits", 0, 3),
        ("wait_in_export", 0, 2),
        ("wait_in_export", 1, 2),
    ],
)
def test_a_killed_rank_ends_the_job_and_is_named(what, victim, num_ranks, tmp_path):
    with doomed(num_ranks, what, victim, tmp_path) as job:
        job.strike(pid_of_victim(job), signal.SIGKILL)
        status, took_s = job.end(END_S)
        report(what, took_s)
        assert status != 0
        assert f"Process name: {victim}\nExit code: 137" in job.output, job.output[-5000:]
        assert "reached the end" not in job.output
    left = [path.name for path in tmp_path.iterdir()]
    assert all(name.startswith(".exported.tmp-") for name in left), left


@pytest.mark.parametrize("victim", [0, 1])
def test_a_stopped_rank_ends_the_job_at_the_limit(victim, tmp_path):
    start, limit_s = Gate(tmp_path / "start"), 5
    limit = {"HOROVOD_GLOO_TIMEOUT_SECONDS": str(limit_s)}
    with doomed(2, "run_in_fit", victim, tmp_path, **limit) as job:
        start_together(job, start)
        job.strike(pid_of_victim(job), signal.SIGSTOP)
        status, took_s = job.end(limit_s + END_S)
        report(f"stopped rank {victim}", took_s)
        assert status != 0
        assert took_s > limit_s
        assert f"Timed out waiting {limit_s}000ms" in job.output, job.output[-5000:]


def test_a_slow_rank_is_waited_for_and_a_callback_that_fails_ends_all(tmp_path):
    """Its process answers, though its program does not come: it is not silent."""
    start, go_on = Gate(tmp_path / "start"), Gate(tmp_path / "go_on")
    limits = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "1", "HOROVOD_GLOO_TIMEOUT_SECONDS": "5"}
    with doomed(2, "wait_long_and_fail_in_a_callback", 1, tmp_path, **limits) as job:
        start_together(job, start)
        job.expect_end(pid_of_victim(job))
        job.wait_for(r"Ranks wait for others for [6-9] s: ranks \[0\] in 'table.table.keys'")
        go_on.open()
        for rank in (0, 1):
            job.wait_for(f"went on: rank {rank}")
        status, took_s = job.end(END_S)
        report("callback", took_s)
        assert status != 0
        assert "]<stderr>:RuntimeError: meant to fail in a callback" in job.output


@pytest.mark.parametrize("what", ["fail_in_a_generator", "fail_between_steps"])
def test_an_exception_on_one_rank_ends_all_and_is_shown(what, tmp_path):
    with doomed(2, what, 1, tmp_path) as job:
        job.expect_end(pid_of_victim(job))
        status, took_s = job.end(END_S)
        report(what, took_s)
        assert status != 0
        assert "[1]<stderr>:Traceback" in job.output
        assert f"meant to {what.replace('_', ' ')}" in job.output
        assert "reached the end" not in job.output


def test_a_rank_with_fewer_batches_is_named_and_ends_the_job_at_the_limit(tmp_path):
    limit_s = 4
    limit = {"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": str(limit_s)}
    with doomed(2, "have_fewer_batches", 1, tmp_path, **limit) as job:
        job.expect_end(pid_of_victim(job))
        status, took_s = job.end(END_S)
        report("fewer batches", took_s)
        assert status != 0
        waits = r"wait .* s: .*ranks \[0\] in 'table.table.keys'.* The job ends, as .* is 4"
        assert re.search(waits, job.output), job.output[-5000:]
