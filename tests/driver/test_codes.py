from __future__ import annotations

import re
from dataclasses import FrozenInstanceError

import pytest

from aioascend.driver import codes
from aioascend.driver.codes import CODES, ErrorClass, describe

from .reference import section, table_rows

# Codes of the 2026 headers whose names carry no RT_ part (pyACL reference §15).
WITHOUT_RT = {*range(107032, 107035), *range(507905, 507914)}


def expand(text: str) -> list[int]:
    """Read the numbers of a cell or phrase: `a / b`, `a, b`, `a – b` (a range); "507014–507018" may lack the blanks."""
    numbers: list[int] = []
    for first, last in re.findall(r"\b(\d{6})\b(?:\s*–\s*(\d{6})\b)?", text):
        numbers.extend(range(int(first), int(last or first) + 1))
    return numbers


def reference_rows() -> list[tuple[list[int], list[str]]]:
    """Give (codes, names as written) of every row of §15."""
    rows = []
    for cells in table_rows(section(15)):
        numbers = expand(cells[0])
        if numbers:
            rows.append((numbers, re.findall(r"[A-Z_][A-Z0-9_*]+", cells[1])))
    return rows


def test_the_reader_of_the_reference_expands_ranges_and_lists() -> None:
    assert expand("107024 – 107026") == [107024, 107025, 107026]
    assert expand("107019 / 107020") == [107019, 107020]
    assert expand("507905 – 507906, 507912") == [507905, 507906, 507912]
    assert expand("507014–507016 and 507033") == [507014, 507015, 507016, 507033]


def test_every_code_of_the_reference_is_in_the_table_and_no_other() -> None:
    listed = {number for numbers, _ in reference_rows() for number in numbers}

    assert len(listed) > 200
    assert listed - set(CODES) == set()
    assert set(CODES) - listed == set()


def test_every_code_has_the_name_the_reference_gives_it() -> None:
    compared = 0
    for numbers, names in reference_rows():
        if len(numbers) != len(names) or any("*" in name or name.startswith("_") for name in names):
            continue  # abbreviated, as "EXEC_LOAD_MODEL / WEIGHT / TASK"
        for number, name in zip(numbers, names, strict=True):
            assert CODES[number].name.endswith(name), (number, name)
            compared += 1
    assert compared > 180


def test_names_carry_the_prefix_of_their_layer() -> None:
    for number, info in CODES.items():
        layer = number // 1000 % 100
        prefix = {0: "ACL_ERROR_", 48: "ACL_ERROR_", 7: "ACL_ERROR_RT_", 45: "ACL_ERROR_GE_"}[layer]
        assert info.name.startswith("ACL_ERROR_" if number in WITHOUT_RT else prefix), number


def test_every_code_has_its_own_name_and_one_line_of_meaning() -> None:
    names = [info.name for info in CODES.values()]

    assert len(set(names)) == len(names)
    for code, info in CODES.items():
        assert info.code == code
        assert info.known
        assert info.meaning
        assert "\n" not in info.meaning
        assert not info.meaning.endswith(".")


@pytest.mark.parametrize(
    "phrase, wanted",
    [
        ("fatal for the device/context", ErrorClass.DEVICE_LOST),
        ("overload", ErrorClass.OVERLOAD),
        ("timeouts", ErrorClass.TIMEOUT),
    ],
)
def test_the_classes_follow_the_grouping_of_the_reference(phrase: str, wanted: ErrorClass) -> None:
    summary = section(15).split("Suggested classes:")[1]
    listed = expand(re.split(r"·|\*programming", summary.split(f"*{phrase}*")[1])[0])

    assert len(listed) >= 6
    assert {number for number in listed if CODES[number].error_class is not wanted} == set()


def test_all_other_codes_of_the_caller_class_are_mistakes_of_the_caller() -> None:
    others = {info.error_class for code, info in CODES.items() if code < 200_000}

    assert others == {ErrorClass.CALLER, ErrorClass.TIMEOUT}


@pytest.mark.parametrize(
    "code, error_class, word",
    [
        (107777, ErrorClass.CALLER, "mistake"),
        (299999, ErrorClass.OVERLOAD, "resource"),
        (399999, ErrorClass.INTERNAL, "queue"),
        (599999, ErrorClass.INTERNAL, "device"),
        (-1, ErrorClass.INTERNAL, "not a code"),
        (42, ErrorClass.INTERNAL, "not a code"),
        (900000, ErrorClass.INTERNAL, "not a code"),
    ],
)
def test_an_unlisted_code_is_told_by_its_class_digit(code: int, error_class: ErrorClass, word: str) -> None:
    info = describe(code)

    assert info.code == code
    assert not info.known
    assert info.error_class is error_class
    assert word in info.meaning


def test_zero_is_success() -> None:
    assert describe(0).error_class is ErrorClass.SUCCESS
    assert describe(0).name == "ACL_SUCCESS"


def test_every_code_the_emulator_returns_is_in_the_table() -> None:
    from aioascend.emulator import codes as emulated

    numbers = {value for value in vars(emulated).values() if isinstance(value, int) and value >= 100_000}

    assert numbers
    assert numbers - set(CODES) == set()


def test_a_description_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        describe(107000).name = "OTHER"  # type: ignore[misc]


def test_the_named_codes_are_in_the_table_under_their_names() -> None:
    named = {name: value for name, value in vars(codes).items() if name.isupper() and isinstance(value, int)}

    assert named
    for name, value in named.items():
        assert CODES[value].name.endswith(name)
