"""What no real file at hand has: gears, AIPP, wide tables, several models, encryption, bundles, compressed names."""

from __future__ import annotations

import struct

import pytest

from aioascend import om

from . import writer
from .writer import File, data, definition, descriptor, graph, net_output, operator, simple

LAYOUTS = {
    "v1, 32-bit": {"version": writer.V1},
    "v2, 32-bit": {"wide": False},
    "v2, 64-bit": {},
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_of_header_and_table_gives_the_same_model(layout: str) -> None:
    file = om.read(simple(**LAYOUTS[layout]))
    assert file.header.wide == (layout == "v2, 64-bit")
    assert [(one.name, one.size) for one in file.models[0].sections[1:]] == [
        ("WEIGHTS_DATA", 64),
        ("TASK_INFO", len(writer.tasks())),
    ]
    (x,) = file.inputs
    assert (x.name, x.dtype, x.format, x.shape, x.nbytes, x.padded) == ("x", "float32", "NCHW", (1, 3, 4, 4), 192, 192)
    (y,) = file.outputs
    assert (y.name, y.dtype, y.shape, y.nbytes, y.padded) == ("conv:0:y", "float16", (1, 5), 10, 64)
    assert (file.soc_version, file.atc_version, file.work_size, file.weight_size) == ("Ascend310P3", "7.0", 4096, 64)
    assert (file.gears, file.dynamic_shape, file.refusal, file.notes) == (None, False, "", ())


@pytest.mark.parametrize(
    "kind, shown, values, order",
    [
        ("batch", [(-1, 3)], ((1,), (2,), (4,)), ()),
        ("hw", [(1, 3, -1, -1)], ((4, 4), (8, 6)), ()),
        ("dims", [(1, -1), (-1, -1)], ((1, 4, 16), (2, 8, 32)), ("b", "a")),
    ],
)
def test_gears_of_each_kind(kind: str, shown: list[object], values: object, order: object) -> None:
    file = om.read(writer.geared(kind))
    assert file.gears is not None
    assert (file.gears.kind, file.gears.values, file.gears.order) == (kind, values, order)
    assert [tensor.shape for tensor in file.inputs[:-1]] == shown
    gear_input = file.inputs[-1]
    assert gear_input.name == om.GEAR_INPUT
    assert (gear_input.dtype, gear_input.shape) == ("int32", (len(file.gears.values[0]),))
    assert gear_input.nbytes == 4 * len(file.gears.values[0])
    assert not file.dynamic_shape
    assert all(tensor.nbytes > 0 for tensor in file.inputs)


def test_output_shapes_of_a_gear_come_from_the_file() -> None:
    batch, dims = om.read(writer.geared("batch")).gears, om.read(writer.geared("dims")).gears
    assert batch is not None
    assert dims is not None
    assert [batch.output_shape(gear, 0) for gear in range(4)] == [(1, 2), (2, 2), (4, 2), None]
    assert dims.output_shape(1, 0) == (7,)  # the same for every gear


def test_a_conditional_is_no_gear() -> None:
    file = om.read(simple([operator("if", "Case", attrs={"branches": 2}), net_output([], [])]))
    assert file.gears is None


def test_gears_that_are_not_all_described_are_told() -> None:
    case = operator("case", "Case", attrs={"_batch_num": 3, "_pred_value_0": [1], "mbatch_dynamic_type": 1})
    file = om.read(simple([case, net_output([], [])]))
    assert file.notes == ("the file counts 3 gears and describes 1",)


def test_static_aipp_has_the_shape_of_the_picture_and_of_the_model() -> None:
    x = data(
        "x", 0, writer.UINT8, [1, 480, 640, 3], "NHWC", 460800,
        {"_data_related_aipp_mode": "static_aipp", "input_dims": [1, 720, 640, 1]},
    )  # fmt: skip
    (tensor,) = om.read(simple([x, net_output([], [])])).inputs
    assert (tensor.aipp, tensor.shape, tensor.shape_v2) == ("static", (1, 480, 640, 3), (1, 720, 640, 1))
    assert tensor.nbytes == 460800


def test_dynamic_aipp_has_an_input_for_its_settings() -> None:
    picture = data(
        "x", 0, writer.UINT8, [1, 3, 224, 224], "NCHW", 2000000,
        {"_data_related_aipp_mode": "dynamic_aipp", "_dynamic_aipp_input_dims": [1, -1, -1, -1]},
    )  # fmt: skip
    settings = data("ascend_dynamic_aipp_data", 1, writer.UINT8, [160], "ND", 160, op_type="AippData")
    inputs = om.read(simple([settings, picture, net_output([], [])])).inputs
    assert [(one.name, one.aipp, one.shape) for one in inputs] == [
        ("x", "dynamic", (1, -1, -1, -1)),
        ("ascend_dynamic_aipp_data", "settings", (160,)),
    ]


def test_inputs_are_in_the_order_of_their_index_and_without_it_as_they_come() -> None:
    def names(operators: list[bytes]) -> list[str]:
        return [tensor.name for tensor in om.read(simple([*operators, net_output([], [])])).inputs]

    assert names([data("b", 1, 1, [1]), data("a", 0, 1, [1])]) == ["a", "b"]
    assert names([data("b", None, 1, [1]), data("a", None, 1, [1])]) == ["b", "a"]


def test_outputs_are_named_as_the_driver_names_them() -> None:
    def names(told: list[str]) -> list[str]:
        outputs = [descriptor(1, [1]), descriptor(1, [1])]
        operators = [net_output(outputs, [("left", 0), ("right", 3)])]
        return [one.name for one in om.read(simple(operators, {"attr_model_out_nodes_name": told})).outputs]

    assert names(["left:0:first", "right"]) == ["left:0:first", "right:3"]
    assert names(["left:0:first"]) == ["output_0_left_0", "output_1_right_3"]
    assert names([]) == ["output_0_left_0", "output_1_right_3"]


def test_sizes_of_outputs_are_without_padding_and_may_be_given() -> None:
    outputs = [
        descriptor(writer.FLOAT, [2, 3], "ND", 96),
        descriptor(writer.FLOAT, [2, 3], "ND", 96, {"_special_input_size": 40}),
        descriptor(writer.INT4, [3], "ND", 32),
        descriptor(writer.FLOAT, [2, 3, 5, 7], "FRACTAL_Z", 900),
        descriptor(999, [3], "STRANGE", 32),
    ]
    file = om.read(simple([net_output(outputs, [("a", index) for index in range(5)])]))
    assert [one.nbytes for one in file.outputs] == [24, 40, 2, 840, 0]
    assert file.outputs[3].shape == (5, 7, 3, 2)
    assert (file.outputs[4].dtype, file.outputs[4].acl_format) == ("type 999 of the file", -1)


def test_numbers_may_be_packed_or_not() -> None:
    shape = writer.chunk(3, writer.unpacked(1, [4, -1, 6]))
    described = writer.number(2, writer.FLOAT) + shape + writer.chunk(4, "ND")
    x = operator("x", "Data", inputs=[described])
    assert om.read(simple([x, net_output([], [])])).inputs[0].shape == (4, -1, 6)


def test_several_models_and_open_shapes() -> None:
    root = definition(
        [
            graph("root", [data("x", 0, writer.FLOAT, [-1, 3]), net_output([descriptor(1, [-1])], [("a", 0)])]),
            graph("part", [operator("a", "Add"), operator("b", "Add")]),
        ],
        writer.MODEL_ATTRIBUTES,
    )
    part = definition([graph("part", [operator("a", "Add")])])
    tables = [
        [(writer.MODEL_DEF, root), (writer.TASK_INFO, writer.tasks())],
        [(writer.MODEL_DEF, part), (writer.WEIGHTS, b"w" * 96), (writer.TASK_INFO, writer.tasks())],
    ]
    file = om.read(bytes(File(tables)))
    assert file.dynamic_shape
    assert [len(model.sections) for model in file.models] == [2, 3]
    assert (file.weight_size, file.work_size) == (96, 0)
    assert [(one.name, one.shape, one.nbytes) for one in file.inputs] == [("x", (-1, 3), 0)]
    assert file.definition is not None
    assert file.definition.op_types == {"Add": 2, "Data": 1, "NetOutput": 1}
    assert [model.definition.op_count for model in file.models if model.definition] == [4, 1]


def test_one_model_may_have_open_shapes() -> None:
    assert om.read(simple(unknown=1)).dynamic_shape


def test_names_and_values_of_attributes_may_be_compressed() -> None:
    names = [f"filler_{index}" for index in range(126)]
    names += ["index", "_mbatch_origin_input_dims", "_data_related_aipp_mode"]

    def code(index: int) -> bytes:
        return bytes([0, index % 127 + 1]) + (bytes([index // 127 + 1]) if index >= 127 else b"")

    x = data("x", None, writer.FLOAT, [4, 3], attrs={code(126): 1, code(127): [-1, 3], code(128): 1})
    y = data("y", None, writer.FLOAT, [4], attrs={"index": 0})
    attrs = {
        "om_compress_version": 1,
        "attr_name_enum": names,
        "attr_value_enum": ["other", "static_aipp"],
        "attrs_use_string_value": [name == "_data_related_aipp_mode" for name in names],
    }
    file = om.read(simple([x, y, net_output([], [])], attrs))
    assert [(one.name, one.shape, one.aipp) for one in file.inputs] == [("y", (4,), ""), ("x", (-1, 3), "static")]
    assert file.definition is not None
    assert file.definition.compressed


def test_inputs_and_outputs_that_are_written_ready_made_are_compared() -> None:
    def file(record: bytes) -> om.OmFile:
        model = definition(
            [graph("main", [data("x", 0, writer.FLOAT, [2, 3], "ND", 24), net_output([], [])])],
            writer.MODEL_ATTRIBUTES,
        )
        table = [(writer.INOUT, writer.inout([record], [])), (writer.MODEL_DEF, model), (writer.TASK_INFO, b"\x58\x00")]
        return om.read(bytes(File([table])))

    assert file(writer.inout_record(24, 2, 0, "x", [2, 3])).notes == ()
    (note,) = file(writer.inout_record(24, 2, 1, "x", [2, 3])).notes
    assert note.startswith("MODEL_INOUT_INFO describes input x otherwise: x (type 1, [2, 3], 24 bytes)")


def test_an_encrypted_file_shows_its_header() -> None:
    for content in (simple()[256:], bytes(range(1, 200))):
        whole = bytearray(bytes(File([], encrypted=1))) + content
        struct.pack_into("<Q", whole, 184, len(content))
        file = om.read(bytes(whole))
        assert file.encrypted
        assert (file.name, file.inputs, file.definition) == ("written", (), None)
        assert [one.topic for one in om.advice(file)] == ["content"]


def test_a_bundle_shows_the_models_inside() -> None:
    file = om.read(writer.bundle([simple(name="one"), writer.geared("batch", name="two")]))
    assert [inner.header.name for inner in file.bundled] == ["one", "two"]
    assert file.bundled[1].gears is not None
    assert "bundle of whole models" in file.refusal
    where = file.models[0].sections[1].offset
    assert file.bundled[0].models[0].sections[0].offset > where  # places are those of the whole file


def test_bundles_inside_bundles_are_refused() -> None:
    data = simple()
    for _ in range(50):
        data = writer.bundle([data])
    with pytest.raises(om.OmError, match=r"^at byte \d+: damaged: a bundle inside a bundle$"):
        om.read(data)


def test_an_original_graph_and_other_model_types_are_not_for_the_loader() -> None:
    model = definition([graph("main", [net_output([], [])])])
    assert "not compiled" in om.read(bytes(File([[(0, model)]]))).refusal
    assert "flow model" in om.read(bytes(File([[(0, model), (6, b"")]], modeltype=3))).refusal
    phone = om.read(bytes(File([[(0, model)]], version=writer.V1, modeltype=3, platform="3.51.z.0")))
    assert "phones" in phone.refusal


def test_text_that_is_no_utf8_is_shown_by_its_bytes() -> None:
    x = operator("?", "Data", inputs=[descriptor(1, [1])]).replace(b"?", b"\xff")
    assert om.read(simple([x, net_output([], [])])).inputs[0].name == "\\xff"
