"""Each example shows what it promises, and says in one line what is wrong when it cannot."""

from __future__ import annotations

import re
import shutil
import wave
from pathlib import Path

import pytest

ASSETS = Path(__file__).parents[2] / "examples" / "assets"
SCRIPTS = ["quickstart.py", "file_types.py", "read_page.py", "zero_copy.py", "device_chain.py", "fastapi_app.py"]
LINES = ["ASYNC INFERENCE", "Hello NPU 310P", "three streams, one await", "Order 2024-17 total 86.50"]


@pytest.mark.parametrize("script", SCRIPTS)
def test_help_says_what_the_example_does(run, script):
    text = run(script, "--help").stdout
    assert text.startswith(f"usage: {script}")
    assert "--device" in text


def test_quickstart_draws_when_somebody_speaks(run):
    out = run("quickstart.py").stdout
    marks = "".join(re.findall(r"^ *\d+\.\d\d s  ([.#]+)$", out, re.MULTILINE))
    assert len(marks) == 268
    assert set(marks[:30]) == set(marks[-25:]) == {"."}
    spoken = re.findall(r"^speech from (\S+) s to (\S+) s, mean probability (\S+)$", out, re.MULTILINE)
    assert [(round(float(start)), round(float(end))) for start, end, _ in spoken] == [(1, 5), (6, 8)]
    assert min(float(mean) for _, _, mean in spoken) > 0.8
    assert re.search(r"^8\.\d s of sound, 268 runs, \S+ ms each$", out, re.MULTILINE)


def test_a_chain_on_the_device_gives_what_the_chain_through_the_host_gives(run):
    out = run("device_chain.py", "--runs", "5").stdout
    assert re.findall(r"^([a-z ]+?) +\d+\.\d\d ms a chain; the same numbers$", out, re.MULTILINE) == [
        "through the host",
        "on the device",
        "handed on at once",
    ]


def test_quickstart_hears_nothing_in_silence(run, tmp_path):
    quiet = tmp_path / "quiet.wav"
    with wave.open(str(quiet), "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", ""))
        file.writeframes(bytes(2 * 16_000))
    assert "no speech" in run("quickstart.py", quiet).stdout


def test_file_types_names_the_type_of_every_file(run, tmp_path):
    (tmp_path / "page").write_text("<!DOCTYPE html>\n<html><head><title>t</title></head><body><p>x</p></body></html>\n")
    (tmp_path / "nothing").touch()
    shutil.copy(ASSETS / "page.png", tmp_path / "picture")
    done = run("file_types.py", tmp_path / "page", tmp_path / "absent", tmp_path / "nothing", tmp_path / "picture")
    assert re.search(r"page: html \(", done.stdout)
    assert re.search(r"picture: png \(", done.stdout)
    assert "nothing: empty" in done.stdout
    assert "absent" in done.stderr


def test_file_types_looks_at_some_files_of_its_own(run):
    found = re.findall(r": (\w+) \(", run("file_types.py").stdout)
    assert found[:3] == ["python", "png", "wav"]
    assert found[4] == "onnx"


@pytest.mark.parametrize("turn", [0, 270])
def test_read_page_turns_the_page_upright_and_reads_it(run, turn):
    out = run("read_page.py", "--turn", turn).stdout.splitlines()
    assert out[0].startswith(f"page.png is turned by {turn} degrees")
    assert [line.split("  ", 1)[1] for line in out[1:]] == LINES


def test_zero_copy_sees_every_frame_the_same_both_ways(run):
    infer, request = run("zero_copy.py", "--frames", 8).stdout.splitlines()
    for line, way in ((infer, "infer(x)"), (request, "request()")):
        assert line.startswith(way)
        assert line.split("turned by ")[1] == "0 90 180 270 0 90 180 270"


@pytest.mark.parametrize(
    "script, arguments, said",
    [
        ("quickstart.py", ["absent.wav"], "absent.wav"),
        ("quickstart.py", [__file__], "RIFF"),
        ("quickstart.py", ["--device", "emulator:7"], "emulator:7"),
        ("quickstart.py", ["--model", "absent.om"], "absent.om"),
        ("quickstart.py", ["--model", __file__], "test_scripts.py"),
        ("file_types.py", ["--device", "abacus:0"], "abacus:0"),
        ("read_page.py", [__file__], "test_scripts.py"),
    ],
)
def test_what_cannot_work_is_one_line_and_no_traceback(run, script, arguments, said):
    error = run(script, *arguments, code=1).stderr
    assert "Traceback" not in error
    assert said in error.splitlines()[-1]


@pytest.mark.parametrize(
    "script, package",
    [("read_page.py", "PIL"), ("zero_copy.py", "PIL"), ("fastapi_app.py", "fastapi"), ("fastapi_app.py", "uvicorn")],
)
def test_a_missing_package_is_named_with_the_command_that_brings_it(run, script, package):
    pytest.importorskip("uvicorn")  # the first one that is missing is named
    error = run(script, without=package, code=1).stderr
    assert error.strip() == f'{package} is not installed: pip install ".[examples]"'


@pytest.mark.parametrize("script", [script for script in SCRIPTS if script != "device_chain.py"])  # its model is ORT's
def test_a_missing_model_is_named_with_the_command_that_brings_it(run, script):
    for package in ("PIL", "fastapi", "uvicorn"):
        pytest.importorskip(package)
    error = run(script, without_wheels=True, code=1).stderr
    assert re.fullmatch(r"\S+\.onnx is not installed \(package .+\): pip install .+\n", error)
