"""The op library runs on any x86-64 processor, and uses wide vectors where there are some."""

import platform
import re
import subprocess
from collections import Counter

import pytest
import tensorflow as tf

from tests.packaging import spoil


@pytest.mark.skipif(platform.machine() != "x86_64", reason="several versions on x86-64 only")
def test_only_the_clones_go_beyond_the_baseline():
    library = spoil.PACKAGE / "ops" / f"_tfsparse_ops_tf{tf.__version__}.so"
    command = ["objdump", "-d", "--no-show-raw-insn", str(library)]
    listing = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    # Instructions since AVX (with the VEX prefix) begin with v, and none of the baseline does.
    beyond, function = Counter(), None
    for line in listing.splitlines():
        if begin := re.match(r"[0-9a-f]+ <(.+)>:$", line):
            function = begin.group(1)
        elif re.match(r"\s+[0-9a-f]+:\s+v", line):
            clone = re.search(r"\.(avx512f|avx2)\b", function)
            beyond[clone.group(1) if clone else function] += 1
    assert set(beyond) == {"avx512f", "avx2"}, beyond
    assert "%zmm" in listing and "%ymm" in listing
