"""The self-check: passes on the emulator, says what differs where it differs, and nothing can hang it."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import onnx
import pytest

import aioascend
from aioascend import driver
from aioascend.cli import main
from aioascend.doctor import Row, as_expected, examine, to_json, to_text
from aioascend.doctor import run as running
from aioascend.doctor.bench import Bench
from aioascend.doctor.groups import GROUPS
from aioascend.doctor.tiny_model import tiny_model
from aioascend.emulator import Emulator


def altered(how: str, *groups: str, limit: float = 58.0) -> dict[str, Row]:
    """The rows of some groups on an emulator that was altered, by the start of their fact."""
    rows = examine("emulator:0", groups=groups, alter=f"tests.doctor.altered:{how}", limit=limit)
    assert len(rows) == sum(len(GROUPS[group].checks) for group in groups)
    return {row.fact: row for row in rows}


def given(seconds: float, group: str, monkeypatch: pytest.MonkeyPatch, *numbers: int) -> None:
    """Let checks of a group that are never going to end have no more than this."""
    checks = list(GROUPS[group].checks)
    for number in numbers:
        checks[number] = replace(checks[number], seconds=seconds)
    monkeypatch.setattr(GROUPS[group], "checks", checks)


def bad(rows: dict[str, Row]) -> dict[str, tuple[str, str]]:
    return {fact: (row.verdict, row.seen) for fact, row in rows.items() if row.verdict != "ok"}


TOO_BUSY = "this machine is too busy to tell"


def settled(rows: list[Row]) -> list[Row]:
    """What nothing could be said about, for want of a core, is looked at again, up to three times."""
    for _ in range(3):
        groups = {row.group for row in rows if row.seen.startswith(TOO_BUSY)}
        if not groups:
            break
        again = {row.fact: row for row in examine("emulator:0", groups=sorted(groups), limit=100.0)}
        rows = [again[row.fact] if row.seen.startswith(TOO_BUSY) else row for row in rows]
    return rows


# -- as it should be --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_everything_is_as_expected_on_the_emulator() -> None:
    told: list[Row] = []

    rows = examine("emulator:0", limit=150.0, progress=told.append)

    assert rows == told
    assert bad({row.fact: row for row in settled(rows)}) == {}
    assert len(rows) == sum(len(group.checks) for group in GROUPS.values()) > 100


@pytest.mark.slow
@pytest.mark.parametrize("way", ["pyacl", "c"])
def test_it_passes_on_either_route(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIOASCEND_DRIVER", way)
    rows = examine("emulator:0", groups=["completion", "models"], limit=100.0)

    assert bad({row.fact: row for row in settled(rows)}) == {}


def test_facts_are_told_once_and_refer_to_the_reference() -> None:
    facts = [(name, check.fact) for name, group in GROUPS.items() for check in group.checks]

    assert len(facts) == len(set(facts))
    for group in GROUPS.values():
        for check in group.checks:
            assert re.fullmatch(r"§\d+(, §\d+)*", check.reference), check.fact
            assert check.expected


def test_the_model_for_the_emulator_is_a_valid_one() -> None:
    model = onnx.load_from_string(tiny_model())
    onnx.checker.check_model(model)

    assert [node.op_type for node in model.graph.node] == ["Relu"]


# -- where something differs ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_differs_is_told_and_the_rest_goes_on() -> None:
    rows = altered("waits_for_others", "streams")

    assert bad(rows) == {"two streams run side by side": ("differs", "one after the other")}
    assert rows["whether stream 0 waits for other streams (never relied on)"].seen == "it does"


@pytest.mark.slow
def test_other_codes_and_exceptions_are_told_as_they_are() -> None:
    rows = altered("has_other_codes", "codes of mistakes")

    assert bad(rows) == {
        "a context of 0": ("differs", "107002"),
        "unloading a model that is not loaded": ("differs", "RuntimeError: unload raised"),
    }
    assert rows["a callback on a stream that is not subscribed"].seen == "100034"


@pytest.mark.slow
def test_a_call_that_holds_the_gil_is_found() -> None:
    rows = altered("always_holds_the_gil", "GIL")

    assert rows["rt.process_report"].verdict == "differs"
    assert rows["rt.process_report"].seen.startswith("held (1")
    assert rows["rt.memcpy"].verdict == "ok"


def test_a_missing_function_is_unavailable() -> None:
    rows = altered("lacks", "streams")

    assert bad(rows) == {"streams that are left": ("unavailable", "there is no acl.rt.get_stream_available_num here")}


@pytest.mark.slow
def test_without_modern_events_what_the_others_do_is_seen_all_the_same() -> None:
    """Those are what a session uses on an old CANN, so that it matters there more than anywhere."""
    rows = altered("is_old", "events", "completion")

    modern = {fact for fact in rows if " ex event" in fact or fact.endswith(": ex") or "_ex_" in fact}
    missing = "there is no acl.rt.create_event_ex_with_flag here"
    assert bad(rows) == dict.fromkeys(
        [*modern, "an event without the SYNC flag cannot be waited for on the device"], ("unavailable", missing)
    )
    assert rows["a stream waits for an event of another stream"].verdict == "ok"
    assert rows["query_event_status before a record: plain, legacy"].seen == "0, 0"


def test_a_device_that_opens_when_the_time_is_over_is_not_said_to_be_broken() -> None:
    rows = examine("emulator:0", groups=["memory"], limit=0.05)

    assert {(row.verdict, row.seen) for row in rows} == {("unavailable", "no time was left")}


def test_without_a_c_library_its_rows_are_unavailable() -> None:
    rows = altered("has_no_c_library", "one handle, two routes")

    assert {row.verdict for row in rows.values()} == {"ok", "unavailable"}
    assert rows["a stream made by pyACL is waited for and destroyed in C"].seen.startswith("there is no C library")


@pytest.mark.slow
def test_a_check_that_hangs_is_told_and_the_rest_is_made_in_a_new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = [check.fact for check in GROUPS["streams"].checks]
    given(1.0, "streams", monkeypatch, facts.index("streams that are left"))
    rows = altered("hangs", "streams")

    assert bad(rows) == {"streams that are left": ("hung", "no end within 2 s")}


def test_a_check_that_crashes_is_told_with_the_last_words() -> None:
    rows = altered("crashes", "streams")

    assert bad(rows) == {
        "streams that are left": (
            "differs",
            "its process ended by SIGKILL: something went wrong in the vendor's library",
        )
    }


@pytest.mark.slow
def test_where_steps_build_on_each_other_those_after_one_that_hung_are_not_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given(1.0, "opening through pyACL", monkeypatch, 0)
    rows = list(altered("init_hangs", "opening through pyACL").values())

    assert (rows[0].verdict, {row.verdict for row in rows[1:]}) == ("hung", {"unavailable"})
    assert rows[1].seen == "not reached after 'acl.init holds the GIL'"


def test_a_device_that_cannot_be_opened_is_told_in_every_row() -> None:
    rows = altered("cannot_be_opened", "memory", "opening through pyACL")

    memory = [row for row in rows.values() if row.group == "memory"]
    assert {row.verdict for row in memory} == {"unavailable"}
    assert "acl.rt.set_device returned 507033 (ACL_ERROR_RT_DEV_SETUP_ERROR)" in memory[0].seen
    assert rows["rt.set_device holds the GIL"].verdict == "differs"


def test_a_device_whose_opening_hangs_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_OPENING", 2.0)
    rows = altered("init_hangs", "memory")

    assert {(row.verdict, row.seen) for row in rows.values()} == {
        ("unavailable", "the device could not be opened: no end within 2 s")
    }


def test_what_there_is_no_time_for_is_unavailable() -> None:
    rows = altered("lacks", "streams", "GIL", limit=0.0)

    assert {(row.verdict, row.seen) for row in rows.values()} == {("unavailable", "no time was left")}


def test_checks_that_need_a_model_say_so(emulator: Emulator) -> None:
    bench = Bench(driver.Backend("emulator", emulator.acl, emulator), 0, None)
    rows = [check.run(bench) for check in GROUPS["models"].checks]

    assert {(row.verdict, row.seen) for row in rows} == {("unavailable", "needs --model MODEL.om")}


# -- the table and the command ----------------------------------------------------------------------------------------

OK = Row("events", "a fact", "§7", "0 or 1", "1", "ok")
NOT = Row("events", "another | fact", "§7, §9", "", "2", "differs")
GONE = Row("memory", "a third", "§8", "x", "needs --model MODEL.om", "unavailable")
HUNG = Row("memory", "a fourth", "§8", "x", "no end within 7 s", "hung")


@pytest.mark.parametrize("rows, expected", [([OK, GONE], True), ([OK, NOT], False), ([HUNG], False), ([], True)])
def test_what_differs_and_what_hangs_is_not_as_expected(rows: list[Row], expected: bool) -> None:
    assert as_expected(rows) is expected


def test_the_table_can_be_pasted(emulator: Emulator) -> None:
    text = to_text("emulator:0", [OK, NOT, GONE, HUNG])

    lines = text.splitlines()
    assert lines[0] == "- device: emulator:0"
    assert "- C library: the emulator's C library" in lines
    table = [line for line in lines if line.startswith("|")]
    assert len({len(line) for line in table}) == 1
    assert [cell.strip() for cell in table[2].strip("|").split(" | ")] == ["**events**", "", "", "", ""]
    assert "another \\| fact" in table[4]
    assert lines[-1] == "1 ok, 1 differs, 1 hung, 1 unavailable"


def test_json_has_every_row_and_what_was_examined(emulator: Emulator) -> None:
    found = json.loads(to_json("emulator:0", [OK, NOT]))

    assert found["examined"]["device"] == "emulator:0"
    assert found["examined"]["chip"] == emulator.config.soc_name
    assert found["as_expected"] is False
    assert found["rows"][0] == {
        "group": "events", "fact": "a fact", "reference": "§7", "expected": "0 or 1", "seen": "1", "verdict": "ok",
    }  # fmt: skip


@pytest.mark.parametrize("rows, code", [([OK, GONE], 0), ([OK, NOT], 1), ([HUNG], 1)])
def test_the_command_tells_by_its_exit_code(
    emulator: Emulator, rows: list[Row], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from aioascend.cli import doctor

    def fake(device: str, *, model: str | None, progress: running.Progress) -> list[Row]:
        assert (device, model) == ("emulator:0", "m.om")
        for row in rows:
            progress(row)
        return rows

    monkeypatch.setattr(doctor, "examine", fake)
    arguments = ["doctor", "--device", "emulator:0", "--model", "m.om", "--json"]
    try:
        ended = main(arguments)
    except SystemExit as exit_:
        ended = int(exit_.code or 0)

    out, err = capsys.readouterr()
    assert ended == code
    assert [row["fact"] for row in json.loads(out)["rows"]] == [row.fact for row in rows]
    assert err.count("\n") == len(rows)
    assert f"{rows[0].group}: {rows[0].fact}: {rows[0].verdict}" in err


def test_a_device_that_is_not_there_is_an_error(emulator: Emulator, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--device", "emulator:9"]) == 2
    assert "no device emulator:9" in capsys.readouterr().err
    with pytest.raises(aioascend.BackendUnavailable):
        examine("emulator:9")
