"""Models: where they come from, loading and unloading, their signature, checking inputs, results."""

from .inputs import Resident, check_inputs
from .loaded import LoadedModel, ShapeOptions, load_models
from .om import ModelFile, inspect
from .outputs import NamedOutputs, Outputs
from .signature import Signature, TensorSpec
from .source import ModelSource, open_source

__all__ = [
    "LoadedModel",
    "ModelFile",
    "ModelSource",
    "NamedOutputs",
    "Outputs",
    "Resident",
    "ShapeOptions",
    "Signature",
    "TensorSpec",
    "check_inputs",
    "inspect",
    "load_models",
    "open_source",
]
