from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.om import writer

from .conftest import Result
from .models import double, lookup, sum_and_product

Command = Callable[..., Result]


@pytest.fixture
def x_file(tmp_path: Path) -> Path:
    """A float32 array 0..5 of shape (2, 3)."""
    path = tmp_path / "x.npy"
    np.save(path, np.arange(6, dtype=np.float32).reshape(2, 3))
    return path


def test_run_writes_the_outputs_and_lists_them(aioascend_command: Command, tmp_path: Path, x_file: Path) -> None:
    model = double(tmp_path / "model.onnx")

    result = aioascend_command("run", model, "--input", x_file, "--output-dir", tmp_path / "new" / "out")

    assert result.code == 0, result.err
    written = np.load(tmp_path / "new" / "out" / "y.npy")
    assert written.dtype == np.float32
    assert written.tolist() == [[0, 2, 4], [6, 8, 10]]
    heading, row = result.out.splitlines()
    assert heading.split() == ["name", "dtype", "shape", "file"]
    assert row.split() == ["y", "float32", "2,3", str(tmp_path / "new" / "out" / "y.npy")]


def test_without_a_directory_the_outputs_are_only_listed(
    aioascend_command: Command, tmp_path: Path, x_file: Path
) -> None:
    model = double(tmp_path / "model.onnx")
    before = sorted(tmp_path.iterdir())

    result = aioascend_command("run", model, "--input", x_file)

    assert result.code == 0, result.err
    assert result.out.splitlines()[1].split() == ["y", "float32", "2,3"]
    assert sorted(tmp_path.iterdir()) == before


def test_inputs_go_by_name_or_by_order(aioascend_command: Command, tmp_path: Path) -> None:
    model = sum_and_product(tmp_path / "model.onnx")
    np.save(tmp_path / "four.npy", np.arange(4))
    np.save(tmp_path / "one.npy", np.int64(10))
    four, one = tmp_path / "four.npy", tmp_path / "one.npy"

    for given in (
        [four, one],
        [f"left={four}", f"right={one}"],
        [f"right={one}", f"left={four}"],
        [f"right={one}", four],
        [four, f"right={one}"],
    ):
        options = [word for text in given for word in ("--input", text)]
        result = aioascend_command("run", model, *options, "-o", tmp_path)
        assert result.code == 0, result.err
        assert np.load(tmp_path / "sum.npy").tolist() == [10, 11, 12, 13]
        assert np.load(tmp_path / "product.npy").tolist() == [0, 10, 20, 30]


def test_outputs_whose_names_meet_in_one_file_name_are_both_written(aioascend_command: Command, tmp_path: Path) -> None:
    model = sum_and_product(tmp_path / "model.onnx", ("out/y:0", "out_y_0"))
    np.save(tmp_path / "four.npy", np.arange(4))
    np.save(tmp_path / "one.npy", np.int64(10))

    result = aioascend_command(
        "run", model, "-i", tmp_path / "four.npy", "-i", tmp_path / "one.npy", "-o", tmp_path / "out"
    )

    assert result.code == 0, result.err
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["out_y_0.npy", "out_y_0_2.npy"]
    assert np.load(tmp_path / "out" / "out_y_0.npy").tolist() == [10, 11, 12, 13]
    assert np.load(tmp_path / "out" / "out_y_0_2.npy").tolist() == [0, 10, 20, 30]


def test_a_path_with_an_equals_sign_is_a_path(aioascend_command: Command, tmp_path: Path, x_file: Path) -> None:
    model = double(tmp_path / "model.onnx")
    odd = x_file.rename(tmp_path / "a=b.npy")

    for text in (odd, f"x={odd}"):
        assert aioascend_command("run", model, "--input", text).code == 0


def test_a_shape_fixes_a_dynamic_axis(aioascend_command: Command, tmp_path: Path, x_file: Path) -> None:
    model = double(tmp_path / "model.onnx", ("n", 3))

    result = aioascend_command("run", model, "--shape", "x:2,3", "--input", x_file, "-o", tmp_path)

    assert result.code == 0, result.err
    assert np.load(tmp_path / "y.npy").tolist() == [[0, 2, 4], [6, 8, 10]]


def test_a_dynamic_axis_without_a_shape_is_named_with_the_option(
    aioascend_command: Command, tmp_path: Path, x_file: Path
) -> None:
    message = aioascend_command("run", double(tmp_path / "model.onnx", ("n", 3)), "--input", x_file).message

    assert "--shape" in message
    assert "x" in message
    assert "n" in message


@pytest.mark.parametrize("shape", ["z:2,3", "x:2", "x:2,4"])
def test_a_shape_that_does_not_fit_the_model_is_refused(
    aioascend_command: Command, tmp_path: Path, x_file: Path, shape: str
) -> None:
    model = double(tmp_path / "model.onnx", ("n", 3))

    message = aioascend_command("run", model, "--shape", shape, "--input", x_file).message

    assert shape.split(":")[0] in message


def test_without_inputs_the_wanted_ones_are_listed(aioascend_command: Command, tmp_path: Path) -> None:
    message = aioascend_command("run", sum_and_product(tmp_path / "model.onnx")).message

    assert "no file" in message
    assert "left (int64 4)" in message
    assert "right (int64 scalar)" in message


@pytest.mark.parametrize(
    "given, word",
    [
        (["x.npy", "x.npy"], "given 2 files"),
        (["nothing.npy"], "nothing.npy"),
        (["y=x.npy"], "no input named y"),
        (["x=x.npy", "x=x.npy"], "twice"),
        (["text.npy"], "not a readable .npy file"),
        (["."], "directory"),
        (["narrow.npy"], "2, 2"),
        (["double.npy"], "float64"),
    ],
)
def test_an_input_that_does_not_fit_is_told(
    aioascend_command: Command,
    tmp_path: Path,
    x_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    given: list[str],
    word: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    model = double(tmp_path / "model.onnx")
    (tmp_path / "text.npy").write_text("hello")
    np.save("narrow.npy", np.zeros((2, 2), np.float32))
    np.save("double.npy", np.zeros((2, 3)))

    options = [word for text in given for word in ("--input", text)]
    message = aioascend_command("run", model, *options, "-o", "out").message

    assert word in message
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "content, word",
    [(None, "model.onnx"), (b"", "empty"), (b"not a model", "model.onnx")],
)
def test_a_model_that_cannot_be_opened_is_told(
    aioascend_command: Command, tmp_path: Path, x_file: Path, content: bytes | None, word: str
) -> None:
    model = tmp_path / "model.onnx"
    if content is not None:
        model.write_bytes(content)

    assert word in aioascend_command("run", model, "--input", x_file).message


def test_a_truncated_model_is_told(aioascend_command: Command, tmp_path: Path, x_file: Path) -> None:
    model = double(tmp_path / "model.onnx")
    model.write_bytes(model.read_bytes()[:-20])

    assert "model.onnx" in aioascend_command("run", model, "--input", x_file).message


@pytest.mark.parametrize("device", ["gpu:0", "npu", "emulator:99", "emulator:x"])
def test_a_device_that_is_not_there_is_told(
    aioascend_command: Command, tmp_path: Path, x_file: Path, device: str
) -> None:
    model = double(tmp_path / "model.onnx")

    message = aioascend_command("run", model, "--device", device, "--input", x_file).message

    assert device in message or "pyACL" in message


def test_an_output_directory_that_is_a_file_is_told_before_anything_runs(
    aioascend_command: Command, tmp_path: Path, x_file: Path
) -> None:
    message = aioascend_command("run", tmp_path / "missing.onnx", "--input", x_file, "-o", x_file).message

    assert message == f"--output-dir: {x_file} is not a directory"


def test_an_output_that_cannot_be_written_is_told(aioascend_command: Command, tmp_path: Path, x_file: Path) -> None:
    model = double(tmp_path / "model.onnx")
    (tmp_path / "out" / "y.npy").mkdir(parents=True)

    message = aioascend_command("run", model, "--input", x_file, "-o", tmp_path / "out").message

    assert "y.npy" in message
    assert "irectory" in message


def test_a_run_that_fails_on_the_device_is_one_line_with_the_reason(aioascend_command: Command, tmp_path: Path) -> None:
    model = lookup(tmp_path / "model.onnx")
    np.save(tmp_path / "table.npy", np.zeros((3, 2), np.float32))
    np.save(tmp_path / "index.npy", np.int64(7))

    message = aioascend_command(
        "run", model, "-i", tmp_path / "table.npy", "-i", tmp_path / "index.npy", "-o", tmp_path / "out"
    ).message

    assert "507011" in message
    assert "indices element out of data bounds" in message
    assert not (tmp_path / "out").exists()


def test_bfloat16_goes_through_files(aioascend_command: Command, tmp_path: Path) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    from onnx import TensorProto, helper

    from .models import save

    kind = TensorProto.BFLOAT16
    node = helper.make_node("Identity", ["x"], ["y"])
    model = save(tmp_path / "model.onnx", [node], [("x", kind, (4,))], [("y", kind, (4,))])
    np.save(tmp_path / "x.npy", np.array([0.5, -1, 2, 3], ml_dtypes.bfloat16))

    result = aioascend_command("run", model, "--input", tmp_path / "x.npy", "-o", tmp_path)

    assert result.code == 0, result.err
    assert np.load(tmp_path / "y.npy").tobytes() == np.load(tmp_path / "x.npy").tobytes()


def test_a_dry_run_says_that_nothing_was_computed(aioascend_command: Command, tmp_path: Path) -> None:
    (tmp_path / "model.om").write_bytes(writer.simple())
    np.save(tmp_path / "x.npy", np.zeros((1, 3, 4, 4), np.float32))
    arguments = (tmp_path / "model.om", "--device", "emulator:0", "--input", tmp_path / "x.npy")

    result = aioascend_command("run", *arguments, "--dry-run", "-o", tmp_path / "out")

    assert result.code == 0, result.err
    assert result.out.splitlines()[-1].startswith("nothing was computed: the outputs are made up")
    assert "a dry run; nothing is computed" in result.err
    assert np.load(next((tmp_path / "out").iterdir())).tolist() == [[0, 1, 2, 3, 4]]
    assert "--dry-run" in aioascend_command("run", *arguments).message
