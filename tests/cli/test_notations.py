from __future__ import annotations

import argparse
import io
from pathlib import Path

import numpy as np
import pytest

from aioascend.cli.arguments import named_example, named_shape
from aioascend.cli.arrays import file_names, read_npy, write_npy
from aioascend.cli.tables import memory_text, shape_text, table


@pytest.mark.parametrize(
    "text, name, shape",
    [
        ("x:1,3,224,224", "x", (1, 3, 224, 224)),
        ("x: 1, 3", "x", (1, 3)),
        ("x:7", "x", (7,)),
        ("x:0,4", "x", (0, 4)),
        ("input:0:1,3", "input:0", (1, 3)),
        ("sr:", "sr", ()),
    ],
)
def test_a_shape_is_a_name_and_its_sizes(text: str, name: str, shape: tuple[int, ...]) -> None:
    assert named_shape(text) == (name, shape)


@pytest.mark.parametrize(
    "text", ["", "x", "1,3,224", ":1,3", "x:1,-3", "x:1x3", "x:a", "x:1,,3", "x:1,", "x:1.0", "x:²", "x:" + "9" * 30]
)
def test_what_is_no_shape_is_refused_with_the_notation_and_the_text(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="x:1,3,224,224") as caught:
        named_shape(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    "text, name, value",
    [
        ("sr=16000", "sr", 16000),
        ("x=-1.5", "x", -1.5),
        ("x=[[1, 2], [3, 4]]", "x", [[1, 2], [3, 4]]),
        ("flag=true", "flag", True),
    ],
)
def test_an_example_is_a_name_and_a_value(text: str, name: str, value: object) -> None:
    assert named_example(text) == (name, value)


def test_an_example_may_be_a_file(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(3))

    name, value = named_example(f"x={tmp_path}/x.npy")

    assert name == "x"
    assert value.tolist() == [0, 1, 2]


@pytest.mark.parametrize("text", ["sr", "=1", "x=", "x=abc", 'x="text"', "x={}", "x=null", "x=[1", "x=missing.npy"])
def test_what_is_no_example_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        named_example(text)


def test_a_deeply_nested_example_is_refused() -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        named_example("x=" + "[" * 200_000)


def test_file_names_are_safe_and_distinct() -> None:
    names = ["logits", "out/sum:0", "out_sum:0", "../../etc/passwd", ".hidden", "", "..", "Logits", "a b", "输出"]

    made = file_names(names)

    assert made[0] == "logits.npy"
    assert made[1:3] == ["out_sum_0.npy", "out_sum_0_2.npy"]
    assert len({name.casefold() for name in made}) == len(names)
    for name in made:
        assert name.endswith(".npy")
        assert not name.startswith(".")
        assert not set(name) & set('/\\:\0 "')
        assert Path(name).name == name


def test_a_made_name_that_is_also_a_tensors_name_stays_distinct() -> None:
    assert file_names(["a", "A", "a_2"]) == ["a.npy", "A_2.npy", "a_2_2.npy"]


def test_a_long_name_fits_a_file_system() -> None:
    made = file_names(["输" * 500, "输" * 500])

    assert len(set(made)) == 2
    assert all(len(name.encode()) <= 255 for name in made)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "bool", "complex64"])
@pytest.mark.parametrize("shape", [(), (3,), (0, 2), (2, 3, 4)])
def test_an_array_survives_its_file(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    array = np.ones(shape, dtype)

    write_npy(tmp_path / "a.npy", array)
    read = read_npy(str(tmp_path / "a.npy"))

    assert read.dtype == array.dtype
    assert read.shape == shape
    assert (read == array).all()


def damaged_files() -> dict[str, bytes]:
    """Contents of files that are no array: foreign ones, ones cut short, ones whose header lies about the shape."""
    file = io.BytesIO()
    np.save(file, np.arange(1000))
    whole = file.getvalue()
    header, content = whole[:127].rstrip(), whole[127:]
    shapes = {"unclosed": b"(1000((", "expression": b"(1<<62,)", "enormous": b"(%d,)" % 10**15}
    lies = {name: header.replace(b"(1000,)", shape).ljust(127) + content for name, shape in shapes.items()}
    return {"empty": b"", "text": b"hello\n", "magic": whole[:6], "head": whole[:30], "cut": whole[:500], **lies}


@pytest.mark.parametrize("content", damaged_files().values(), ids=damaged_files().keys())
def test_a_file_that_is_no_array_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "damaged.npy"
    path.write_bytes(content)

    with pytest.raises(ValueError, match=r"damaged\.npy is not a readable \.npy file"):
        read_npy(str(path))


def test_pickled_objects_and_archives_are_not_read(tmp_path: Path) -> None:
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "archive.npz", np.arange(3))

    for name in ("objects.npy", "archive.npz"):
        with pytest.raises(ValueError, match=name):
            read_npy(str(tmp_path / name))


def test_a_table_lines_up_its_columns() -> None:
    text = table(("name", "bytes"), [("x", "4"), ("longer", "1000")], right=("bytes",))

    assert text.splitlines() == ["name    bytes", "x           4", "longer   1000"]


def test_a_table_without_rows_is_its_heading() -> None:
    assert table(("name", "dtype"), []) == "name  dtype"


def test_shapes_are_written_as_they_are_read() -> None:
    assert shape_text((1, 3, 224, 224)) == "1,3,224,224"
    assert named_shape(f"x:{shape_text((1, 3))}") == ("x", (1, 3))
    assert shape_text(()) == "scalar"


def test_memory_is_written_in_gib() -> None:
    assert memory_text(8 * 2**30) == "8.0 GiB"
    assert memory_text(None) == "-"
