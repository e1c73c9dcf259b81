"""`aioascend inspect` of offline models: without a device, without onnxruntime."""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.om import real, writer

from .conftest import Result
from .models import double

Command = Callable[..., Result]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.om"
    path.write_bytes(writer.simple())
    return path


def test_an_om_file_is_shown_without_a_device(aioascend_command: Command, model: Path) -> None:
    result = aioascend_command("inspect", model)

    assert (result.code, result.err) == (0, "")
    blocks = dict(block.split("\n", 1) for block in result.out.split("\n\n"))
    told = {line[:15].strip(): line[15:].strip() for line in blocks[str(model)].splitlines()}
    assert told["kind"] == "static model"
    assert told["chip"] == "Ascend310P3"
    assert told["compiler"] == "ATC 7.0"
    assert told["work memory"] == "4096 bytes"
    assert [line.split() for line in blocks["inputs"].splitlines()][1:] == [
        ["x", "float32", "NCHW", "1,3,4,4", "192"],
    ]
    assert [line.split() for line in blocks["outputs"].splitlines()][1:] == [
        ["conv:0:y", "float16", "ND", "1,5", "10"],
    ]
    assert [line.split()[0] for line in blocks["sections"].splitlines()][1:] == [
        "MODEL_DEF",
        "WEIGHTS_DATA",
        "TASK_INFO",
    ]
    assert "shapes: static" in blocks["what to look at"]


def test_neither_the_emulator_nor_onnxruntime_is_imported(model: Path) -> None:
    program = (
        "import sys; from aioascend.cli import main\n"
        f"assert main(['inspect', {str(model)!r}]) == 0\n"
        "assert 'onnxruntime' not in sys.modules and 'acl' not in sys.modules\n"
        "from aioascend.driver.backends import _backends\n"
        "assert not _backends\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_json_has_everything(aioascend_command: Command, tmp_path: Path) -> None:
    path = tmp_path / "gears.om"
    path.write_bytes(writer.geared("hw"))

    described = json.loads(aioascend_command("inspect", path, "--json").out)

    assert described["model"] == str(path)
    assert described["gears"]["kind"] == "hw"
    assert described["gears"]["values"] == [[4, 4], [8, 6]]
    assert described["inputs"][0]["shape"] == [1, 3, -1, -1]
    assert described["inputs"][1]["name"] == "ascend_mbatch_shape_data"
    assert described["memory"]["work"] == 4096
    assert described["header"]["version"] == 0x20000000
    shares = [section["share"] for section in described["models"][0]["sections"]]
    assert 0.3 < sum(shares) <= 1
    topics = {one["topic"]: one for one in described["advice"]}
    assert topics["shapes"]["finding"].startswith("2 hw gears")
    assert "--input_shape" in topics["shapes"]["advice"]


def test_two_models_show_their_differences_first(aioascend_command: Command, model: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.om"
    other.write_bytes(writer.simple(attrs={"soc_version": "Ascend310"}))

    result = aioascend_command("inspect", model, other)

    assert result.code == 0, result.err
    different, same = result.out.split("\n\n")
    title, _, *rows = different.splitlines()
    assert title == f"{len(rows)} differences"
    assert ["chip", "Ascend310P3", "Ascend310"] in [row.split() for row in rows]
    assert any(row.startswith("input 0 ") for row in same.splitlines())


def test_two_models_give_json_too(aioascend_command: Command, model: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.om"
    other.write_bytes(writer.simple(attrs={"soc_version": "Ascend310"}))

    compared = json.loads(aioascend_command("inspect", model, other, "--json").out)

    assert {"what": "chip", "values": ["Ascend310P3", "Ascend310"]} in compared["differences"]
    assert compared["same"]["kind"] == "static model"
    assert [one["model"] for one in compared["models"]] == [str(model), str(other)]


def test_a_model_does_not_differ_from_itself(aioascend_command: Command, model: Path) -> None:
    assert "do not differ" in aioascend_command("inspect", model, model).out


@pytest.mark.parametrize(
    "content, words",
    [
        (writer.simple()[:700], "at byte 184: cut short"),
        (b"", "at byte 0: the file is empty"),
        (random.Random(4).randbytes(4096), "at byte 0: it is no offline model"),
        (None, "No such file"),
    ],
)
def test_a_bad_file_is_one_line_with_the_place_and_code_2(
    aioascend_command: Command, tmp_path: Path, content: bytes | None, words: str
) -> None:
    path = tmp_path / "bad.om"
    if content is not None:
        path.write_bytes(content)

    message = aioascend_command("inspect", path).message

    assert message.startswith(f"{path}: ")
    assert words in message


def test_a_directory_is_told(aioascend_command: Command, tmp_path: Path) -> None:
    (tmp_path / "model.om").mkdir()
    assert "it is a directory" in aioascend_command("inspect", tmp_path / "model.om").message


def test_a_pipe_is_not_waited_for(aioascend_command: Command, tmp_path: Path) -> None:
    for name in ("pipe.om", "pipe.onnx"):
        os.mkfifo(tmp_path / name)
        result = aioascend_command("inspect", tmp_path / name)
        assert result.code == 2
        assert "it is not a regular file; a file was wanted" in result.err


def test_a_path_does_not_reach_the_terminal_as_control_characters(aioascend_command: Command, tmp_path: Path) -> None:
    path = tmp_path / "a\x1b[31m\nb.om"
    path.write_bytes(writer.simple())
    other = tmp_path / "a\x9b.om"
    other.write_bytes(b"none")

    assert "a\\x1b[31m\\nb.om\n  kind" in aioascend_command("inspect", path).out
    assert "do not differ" in aioascend_command("inspect", path, path).out
    assert "a\\x9b.om: at byte 0" in aioascend_command("inspect", other).message


def test_json_is_json_whatever_stdout_can_show(tmp_path: Path) -> None:
    path = tmp_path / "模型.om"
    path.write_bytes(writer.simple(attrs={"framework_type": math.nan}))
    program = f"from aioascend.cli import main; main(['inspect', {str(path)!r}, '--json'])"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}

    out = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, env=environment).stdout

    described = json.loads(out, parse_constant=pytest.fail)
    assert described["model"] == str(path)
    assert "framework_type" not in described["attributes"]


def test_stdout_may_be_closed(model: Path) -> None:
    program = (
        f"import sys; sys.stdout = None; from aioascend.cli import main; sys.exit(main(['inspect', {str(model)!r}]))"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stderr == b""


def test_what_cannot_be_read_is_not_shown_as_nothing(aioascend_command: Command, tmp_path: Path) -> None:
    path = tmp_path / "model.om"
    path.write_bytes(writer.simple(encrypted=1))
    out = aioascend_command("inspect", path).out
    assert "weights" not in out
    assert "work memory" not in out
    memory = json.loads(aioascend_command("inspect", path, "--json").out)["memory"]
    assert memory == {"weights": None, "weights_share": None, "work": None}

    path.write_bytes(writer.bundle([writer.simple(), writer.simple()]))
    memory = json.loads(aioascend_command("inspect", path, "--json").out)["memory"]
    assert (memory["weights"], memory["work"]) == (128, None)


def test_long_values_are_compared_where_they_differ(aioascend_command: Command, tmp_path: Path) -> None:
    paths = [tmp_path / "a.om", tmp_path / "b.om"]
    for path, soc in zip(paths, ("Ascend310P3", "Ascend910B4"), strict=True):
        path.write_bytes(writer.simple(attrs={"atc_cmdline": f"/usr/local/{'x' * 80}/atc.bin --soc_version={soc} end"}))
    row = next(
        line for line in aioascend_command("inspect", *paths).out.splitlines() if line.startswith("command line")
    )
    assert "Ascend310P3 end" in row
    assert "Ascend910B4 end" in row


def test_sections_of_one_type_and_all_gears_are_compared(aioascend_command: Command, tmp_path: Path) -> None:
    paths = [tmp_path / "a.om", tmp_path / "b.om"]
    for path, size in zip(paths, (4, 8), strict=True):
        sections = [(writer.MODEL_DEF, writer.definition([])), (writer.TBE, bytes(size)), (writer.TBE, b"k")]
        path.write_bytes(bytes(writer.File([sections])))
    differences = json.loads(aioascend_command("inspect", *paths, "--json").out)["differences"]
    assert {"what": "section TBE_KERNELS", "values": ["4 bytes", "8 bytes"]} in differences

    for path, last in zip(paths, (99, 100), strict=True):
        case = writer.gear_case(1, [[batch] for batch in (*range(1, 40), last)])
        path.write_bytes(writer.simple([case, writer.net_output([], [])]))
    out = aioascend_command("inspect", *paths).out
    assert "gears" in out.split("the same in both")[0]


def test_options_of_onnx_files_are_refused(aioascend_command: Command, model: Path) -> None:
    for option in (["--shape", "x:1"], ["--device", "npu:0"], ["--example", "x=1"]):
        assert option[0] in aioascend_command("inspect", model, *option).message


def test_only_om_files_can_be_compared(aioascend_command: Command, model: Path, tmp_path: Path) -> None:
    onnx = double(tmp_path / "model.onnx")
    assert "begins as an .onnx file" in aioascend_command("inspect", model, onnx).message


def test_an_onnx_file_under_the_name_of_an_om_is_opened_as_before(aioascend_command: Command, tmp_path: Path) -> None:
    path = double(tmp_path / "model.onnx").rename(tmp_path / "model.om")
    assert f"{path} on emulator:0" in aioascend_command("inspect", path).out


def test_names_in_a_file_do_not_reach_the_terminal_as_control_characters(
    aioascend_command: Command, tmp_path: Path
) -> None:
    name = "x\x1b[31m\n\x7f"
    operators = [
        writer.data(name, 0, writer.FLOAT, [4, 5], name, 80),
        writer.operator("a", name),
        writer.net_output([writer.descriptor(1, [3])], [(name, 0)]),
    ]
    path = tmp_path / "model.om"
    path.write_bytes(writer.simple(operators, {"soc_version": name, "atc_cmdline": name}, name="a\x1b"))
    other = tmp_path / "other.om"
    other.write_bytes(writer.simple())

    for out in (aioascend_command("inspect", path).out, aioascend_command("inspect", path, other).out):
        assert "x\\x1b[31m\\n\\x7f" in out
        assert all(letter.isprintable() or letter == "\n" for letter in out)


@pytest.mark.parametrize("name", real.NAMES)
def test_real_files_are_shown(aioascend_command: Command, name: str) -> None:
    result = aioascend_command("inspect", real.path(name))
    assert result.code == 0, result.err
    assert real.expected(name)["models"][0]["outputs"][0]["name"] in result.out
