from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from foveola.exchange import Busy
from foveola.guard.memory import MIB, Ceiling, Fault, bounded, read_sanitizer, read_valgrind, resident_bytes
from foveola.guard.verdict import Verdict
from foveola.serve.memcheck_command import valgrind
from tests.guard.answers import pieces_of, saying

SANITIZER = """========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at void scale<float>(float *, int)+0x70
=========     by thread (64,0,0) in block (0,0,0)
=========     Address 0x7f2a1c000100 is out of bounds
=========     and is 1 bytes after the nearest allocation
=========
========= Program hit cudaErrorLaunchFailure (error 719) due to "unspecified launch failure"
the program's own output
========= ERROR SUMMARY: 2 errors
"""


def test_memory_is_read() -> None:
    assert resident_bytes() > 10 * MIB
    assert resident_bytes(Path("/no/such/file")) == 0


async def test_newcomers_wait_while_the_ceiling_is_reached() -> None:
    held = [200 * MIB]
    told: list[Verdict] = []
    answer = bounded(saying("yes"), Ceiling(100, lambda: held[0]), told.append)
    with pytest.raises(Busy, match="has reached its memory limit; ask again"):
        await pieces_of(answer)
    assert told[0].detail == {"resident_mib": 200}
    held[0] = 99 * MIB
    assert len(await pieces_of(answer)) == 2


def test_far_above_the_ceiling_a_process_is_ill() -> None:
    assert Ceiling(100, lambda: 125 * MIB).ailment() is None
    assert Ceiling(100, lambda: 126 * MIB).ailment() == "it holds 126 MiB of memory where 100 are allowed"


def test_a_report_of_compute_sanitizer_is_read() -> None:
    first, second = read_sanitizer(SANITIZER)
    assert first == Fault("Invalid __global__ write of size 4 bytes", "void scale<float>(float *, int)+0x70")
    assert second.kind.startswith("Program hit cudaErrorLaunchFailure")
    assert read_sanitizer("========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n") == []
    assert len(read_sanitizer("========= ERROR SUMMARY: 3 errors\n")) == 3


@pytest.mark.parametrize("text", ["", SANITIZER[:300], "nothing of the kind"])
def test_a_tool_that_died_has_proved_nothing(text: str) -> None:
    with pytest.raises(ValueError, match="no ERROR SUMMARY"):
        read_sanitizer(text)


@pytest.mark.parametrize("data", [b"", b"<valgrindoutput>", b"<valgrindoutput></valgrindoutput>", b"<a/>"])
def test_a_report_of_valgrind_that_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        read_valgrind(data)


def test_a_planted_overrun_is_found_by_valgrind(tmp_path: Path) -> None:
    if shutil.which("valgrind") is None or shutil.which("gcc") is None:
        pytest.skip("needs valgrind and gcc (Debian packages of these names)")
    code = "#include <stdlib.h>\nint main(int n, char **a) { char *p = malloc(8); p[7 + n] = 1; free(p); return 0; }\n"
    (tmp_path / "a.c").write_text(code)
    subprocess.run(["gcc", "-g", "-O0", str(tmp_path / "a.c"), "-o", str(tmp_path / "a")], check=True)
    result = valgrind([str(tmp_path / "a")])
    assert result.not_checked is None and result.runs == 1
    assert result.faults == (Fault("InvalidWrite", "main"),)
