"""`aioascend bench`: how fast a model is on a device, and where the time goes."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from aioascend.benchmarking import Load, Plan, Result, measure
from aioascend.benchmarking.plot import available, plot
from aioascend.benchmarking.report import as_csv, as_data, as_text
from aioascend.emulator import Config, Profile
from aioascend.testing import emulated

from .arguments import UsageError, add_model, model_options
from .bench_inputs import make_inputs
from .bench_options import counts, depths, percentiles, positive, positive_count, rates, trtexec_shapes, whole
from .progress import Progress

if TYPE_CHECKING:
    from argparse import _SubParsersAction

T = TypeVar("T")

_EXAMPLES = """\
examples:
  aioascend bench model.om
  aioascend bench model.om --depth auto --json result.json --trace trace.json
  aioascend bench model.onnx --shape x:1,3,224,224 --depth 1,2,3,4,8 --plot curve.png
  aioascend bench model.om --rate 50,100,120 --distribution poisson --duration 10
  aioascend bench model.onnx --profile card.toml --concurrency 1:32:x2 --csv

It prints the time of loading, the latency of the first inference and the steady throughput, and for each depth and load
latency percentiles and the mean time in each stage: queue (waiting for a place, or for the request before), copy-in
(into pinned memory, and to the device), compute, copy-out, wake-up (from the device to the runtime to the caller).

--concurrency callers send one request after the other; a rate (--rate) does not wait for answers, and its latencies
count from when a request was due, so that a request sent late is late. A trace opens in https://ui.perfetto.dev.
Spellings of trtexec and of ais_bench are understood where they mean the same.
"""


def add_to(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "bench",
        help="measure a model",
        description="Measure a model: load time, first inference, throughput, latency and where the time goes.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_model(parser, nargs="?")
    parser.add_argument(
        "-m", "--model", "--onnx", "--loadEngine", dest="model_option", metavar="MODEL", help="the same as MODEL"
    )
    parser.add_argument(
        "--shapes", type=trtexec_shapes, metavar="NAME:1x3x224x224,...", help="the same as --shape, as trtexec has it"
    )
    parser.add_argument(
        "--profile", metavar="FILE", help="a TOML file of the times that the emulated device takes (emulator only)"
    )
    _add_load(parser)
    _add_results(parser)
    parser.set_defaults(command=run)


def _add_load(parser: argparse.ArgumentParser) -> None:
    load = parser.add_argument_group("load")
    load.add_argument(
        "-i",
        "--input",
        action="append",
        default=[],
        metavar="zero|random|[NAME=]FILE",
        help="what to run it on: zeros (default), random numbers, or .npy files as for aioascend run",
    )
    load.add_argument("--pure_data_type", choices=["zero", "random"], help="the same as --input zero or random")
    load.add_argument(
        "--depth", type=depths, default=(3,), metavar="N,...|auto", help="requests on the device at once (default 3)"
    )
    load.add_argument(
        "--streams", "--instances", type=positive_count, default=1, metavar="N", help="instances of the model (1)"
    )
    load.add_argument(
        "--concurrency",
        type=counts,
        default=(),
        metavar="N,...|A:B:STEP",
        help="callers; 1:32:x2 doubles (default: two more than there are places on the device)",
    )
    load.add_argument("--rate", type=rates, default=(), metavar="R,...", help="requests a second, instead of callers")
    load.add_argument(
        "--distribution", choices=["constant", "poisson"], default="constant", help="of the requests of --rate"
    )
    load.add_argument("--duration", type=positive, default=3.0, metavar="S", help="seconds to measure (3)")
    load.add_argument(
        "-l",
        "--iterations",
        "--loop",
        type=positive_count,
        metavar="N",
        help="requests to measure, instead of a duration",
    )
    load.add_argument("--warmUp", type=whole, default=200, metavar="MS", help="milliseconds of load before that (200)")
    load.add_argument(
        "--warmup-count", "--warmup_count", type=whole, default=1, metavar="N", help="and at least so many requests (1)"
    )
    load.add_argument(
        "--max-waiting", type=whole, default=1024, metavar="N", help="requests that may wait before others are refused"
    )
    load.add_argument(
        "-b", "--batch", "--batchsize", type=positive_count, default=1, metavar="N", help="samples in one run, to count"
    )


def _add_results(parser: argparse.ArgumentParser) -> None:
    results = parser.add_argument_group("results")
    results.add_argument(
        "--percentiles",
        "--percentile",
        type=percentiles,
        default=(50, 90, 95, 99),
        metavar="P,...",
        help="of latencies (50,90,95,99)",
    )
    results.add_argument(
        "--json", nargs="?", const="-", metavar="FILE", help="write JSON (without FILE: print it, and no table)"
    )
    results.add_argument(
        "--csv", nargs="?", const="-", metavar="FILE", help="write CSV (without FILE: print it, and no table)"
    )
    results.add_argument("--plot", metavar="FILE", help="throughput and latency over depth as a picture (png, svg)")
    results.add_argument("--trace", metavar="FILE", help="a timeline of the best level for Perfetto (JSON)")


def run(options: argparse.Namespace) -> None:
    """Measure, write the files that were asked for, and print."""
    _check(options)
    with _profile(options.profile):
        progress = Progress(sys.stderr)
        try:
            result = _on_a_loop(measure(_plan(options), progress.show))
        finally:
            progress.clear()
        if options.profile is not None and not result.device.startswith("emulator"):
            raise UsageError(
                f"--profile is for the emulator, and {result.device} was measured: name --device emulator:0"
            )
    _write(result, options)


def _check(options: argparse.Namespace) -> None:
    """What can be known before anything is measured is told before."""
    if (options.model is None) == (options.model_option is None):
        raise UsageError("name the model to measure, once: aioascend bench MODEL (see aioascend bench --help)")
    options.model = options.model or options.model_option
    if options.device.isdecimal():  # of other tools, where devices are NPUs
        options.device = f"npu:{options.device}"
    if options.rate and options.concurrency:
        raise UsageError("--rate and --concurrency are two kinds of load: give one of them")
    if options.distribution != "constant" and not options.rate:
        raise UsageError("--distribution is that of --rate, which is not given")
    if options.rate and options.depth == "auto":
        raise UsageError("--depth auto compares throughputs, which --rate fixes: use --concurrency")
    if options.shapes and options.shape:
        raise UsageError("--shape and --shapes are the same option: give one of them")
    if options.json == "-" and options.csv == "-":
        raise UsageError("--json and --csv cannot both be printed: give one of them a file")
    if options.pure_data_type and options.input:
        raise UsageError("--pure_data_type and --input are the same option: give one of them")
    if options.plot and not available():
        raise UsageError("--plot needs matplotlib: pip install 'aioascend[plot]'")
    if options.plot and Path(options.plot).suffix not in (".png", ".svg", ".pdf"):
        raise UsageError(f"--plot: wanted a file that ends in .png, .svg or .pdf, given {options.plot}")
    for option in ("json", "csv", "plot", "trace"):
        path = getattr(options, option)
        if path not in (None, "-") and not Path(path).absolute().parent.is_dir():
            raise UsageError(f"--{option}: there is no directory {Path(path).absolute().parent}")


def _plan(options: argparse.Namespace) -> Plan:
    texts = [options.pure_data_type] if options.pure_data_type else options.input
    if options.shapes:
        options.shape = options.shapes
    arguments: dict[str, Any] = {**model_options(options)}
    return Plan(
        model=options.model,
        inputs=make_inputs(texts, arguments["examples"] or {}),
        devices=arguments.pop("devices"),
        options={**arguments, "max_waiting": options.max_waiting},
        depths=options.depth,
        instances=options.streams,
        concurrency=options.concurrency,
        rates=options.rate,
        distribution=options.distribution,
        load=Load(
            duration=options.duration,
            iterations=options.iterations,
            warmup=options.warmUp / 1e3,
            warmup_count=options.warmup_count,
        ),
        percentiles=options.percentiles,
    )


def _write(result: Result, options: argparse.Namespace) -> None:
    data = json.dumps(as_data(result, batch=options.batch), indent=2) + "\n"
    for path, text in ((options.json, data), (options.csv, as_csv(result))):
        if path not in (None, "-"):
            Path(path).write_text(text, encoding="utf-8")
    if options.plot:
        plot(result, options.plot)
    if options.trace:
        result.best.timeline.save(options.trace)
    if options.json == "-":
        print(data, end="")
    elif options.csv == "-":
        print(as_csv(result), end="")
    else:
        print(as_text(result, batch=options.batch))


@contextlib.contextmanager
def _profile(path: str | None) -> Iterator[None]:
    """Let an emulator with this time profile be the emulator of the process, inside the block."""
    if path is None:
        yield
        return
    try:
        profile = Profile.from_file(path)
        strict = Config.from_env().strict
    except ValueError as error:
        raise UsageError(str(error)) from None
    with emulated(check=False, strict=strict, profile=profile):
        yield


def _on_a_loop(main: Coroutine[Any, Any, T]) -> T:
    """Run it on uvloop where that is, as most servers do."""
    run_loop: Callable[[Coroutine[Any, Any, T]], T]
    try:
        import uvloop
    except ImportError:
        run_loop = asyncio.run
    else:
        run_loop = uvloop.run
    return run_loop(main)
