"""Real offline models are decoded as an independent decoder did, in every field it wrote down."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest

from aioascend import om

from . import real

# ACL's names of the element types, by its numbers (pyACL reference §14).
ACL_NAMES = {0: "FLOAT", 1: "FLOAT16", 4: "UINT8"}
HEADER_NAMES = {"customDataLen": "custom_data_len", "multiShapeGears": "multi_shape_gears"}
NOT_OF_THE_READER = {"family", "sha256", "origin", "license"}
ABSENT_IS_ZERO = {"memory_size", "weight_size", "stream_num", "event_num"}


def decoded_header(file: om.OmFile, wanted: dict[str, Any]) -> dict[str, Any]:
    found = {"magic": "IMOD", **asdict(file.header)}
    return {name: found[HEADER_NAMES.get(name, name)] for name in wanted}


def decoded_tensor(tensor: om.OmTensor) -> dict[str, Any]:
    return {
        "name": tensor.name,
        "dtype": ACL_NAMES[tensor.acl_dtype],
        "acl_dtype": tensor.acl_dtype,
        "format": tensor.format,
        "acl_format": tensor.acl_format,
        "dims": list(tensor.shape),
        "desc_size": tensor.padded,
        "acl_size": tensor.nbytes,
    }


def decoded_model(file: om.OmFile, wanted: dict[str, Any]) -> dict[str, Any]:
    model = file.models[0]
    definition = model.definition
    assert definition is not None
    found: dict[str, Any] = {
        **json.loads(json.dumps(file.text_attributes())),
        "partitions": [[section.type, section.size] for section in model.sections],
        "model_name": definition.name,
        "ir_version": definition.ir_version,
        "custom_version": definition.custom_version,
        "graph_names": list(definition.graph_names),
        "attr_compressed": definition.compressed,
        "op_count": definition.op_count,
        "op_types": dict(definition.op_types),
        "inputs": [decoded_tensor(tensor) for tensor in file.inputs],
        "outputs": [decoded_tensor(tensor) for tensor in file.outputs],
    }
    if model.tasks is not None:
        found["task_info"] = {name: value for name, value in asdict(model.tasks).items() if name != "task_count"}
    return {name: found.get(name, 0) if name in ABSENT_IS_ZERO else found[name] for name in wanted}


@pytest.mark.parametrize("name", real.NAMES)
def test_every_field_is_decoded_as_expected(name: str) -> None:
    wanted = real.expected(name)
    file = om.read(real.path(name))
    found: dict[str, Any] = {
        "bytes": file.size,
        "header": decoded_header(file, wanted["header"]),
        "partition_table": "64-bit" if file.header.wide else "32-bit",
        "body_length_matches_file": True,  # the reader refuses any other
        "tables_end_exactly_at_eof": True,
        "models": [decoded_model(file, wanted["models"][0])],
        "dynamic_shape_model": file.dynamic_shape,
        "acl_query_size": {"work_size": file.work_size, "weight_size": file.weight_size},
        "loadable_by_aclmdlLoadFromFile": not file.refusal,
    }
    assert {name: found[name] for name in wanted if name not in NOT_OF_THE_READER} == {
        name: value for name, value in wanted.items() if name not in NOT_OF_THE_READER
    }
    assert file.phone == (wanted["family"] == "hiai")
    assert file.notes == ()


@pytest.mark.parametrize("name", real.NAMES)
def test_bytes_and_path_give_the_same(name: str) -> None:
    data = real.path(name).read_bytes()
    assert om.read(data) == om.read(bytearray(data)) == om.read(memoryview(data)) == om.read(real.path(name))


@pytest.mark.parametrize("name", real.NAMES)
def test_json_describes_every_section_and_tensor(name: str) -> None:
    file = om.read(real.path(name))
    described = json.loads(json.dumps(om.as_json(file)))
    assert described["bytes"] == file.size
    assert [one["bytes"] for one in described["models"][0]["sections"]] == [one.size for one in file.models[0].sections]
    assert [one["name"] for one in described["outputs"]] == [one.name for one in file.outputs]
    assert described["operators"]["count"] == sum(described["operators"]["types"].values())


def test_the_command_line_of_the_compiler_tells_the_chip_where_the_attribute_is_missing() -> None:
    assert om.read(real.path("vae_hh.om")).soc_version == "Ascend310"
    assert om.read(real.path("a3c_pong.om")).soc_version == ""
