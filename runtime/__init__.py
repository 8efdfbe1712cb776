"""How a plan reaches hardware: per-rank programs, their interpreter, exporters and execution."""

from __future__ import annotations

from .exchange.all_to_all import all_to_all_single
from .execution.distributed import execute, execute_allgather
from .execution.launch import run_local
from .execution.run_report import RunReport
from .execution.torchrun import launched_rank
from .families import write_family
from .interpreting.checks import check_program
from .interpreting.interpreter import interpret_file, run_program
from .measuring.bench import measure_plans
from .measuring.calibration import Calibration, Measurement, calibrate
from .measuring.nccl_tests import read_nccl_tests
from .measuring.report import BenchReport
from .measuring.times import MeasuredTimes
from .msccl.files import read_xml, to_xml_text, write_xml
from .msccl.lint import lint_file
from .msccl.windows import lint_family
from .mscclpp.machine import interpret_mscclpp
from .mscclpp.plan import ExecutionPlan
from .mscclpp.reader import read_mscclpp
from .mscclpp.writer import to_execution_plan, write_mscclpp
from .nccl.tuner import write_nccl_tuner
from .programs.lowering import lower, lower_allgather
from .programs.program import ChunkRange, Dependency, Instruction, Program, RankProgram, ThreadBlock
from .programs.unfused import without_receive_reduce
from .simulating.simulation import Simulation
from .simulating.simulator import simulate, simulate_sizes
from .size_windows import SizeWindow, fastest_windows
from .traces.chakra import Attribute, NodeKind, Trace, TraceNode, rotate_trace, write_trace
from .traces.export import plan_traces
from .traces.reader import read_trace
from .traces.replay import Replay, replay_traces

__all__ = [
    "Attribute",
    "BenchReport",
    "Calibration",
    "ChunkRange",
    "Dependency",
    "ExecutionPlan",
    "Instruction",
    "MeasuredTimes",
    "Measurement",
    "NodeKind",
    "Program",
    "RankProgram",
    "Replay",
    "RunReport",
    "Simulation",
    "SizeWindow",
    "ThreadBlock",
    "Trace",
    "TraceNode",
    "all_to_all_single",
    "calibrate",
    "check_program",
    "execute",
    "execute_allgather",
    "fastest_windows",
    "interpret_file",
    "interpret_mscclpp",
    "launched_rank",
    "lint_family",
    "lint_file",
    "lower",
    "lower_allgather",
    "measure_plans",
    "plan_traces",
    "read_mscclpp",
    "read_nccl_tests",
    "read_trace",
    "read_xml",
    "replay_traces",
    "rotate_trace",
    "run_local",
    "run_program",
    "simulate",
    "simulate_sizes",
    "to_execution_plan",
    "to_xml_text",
    "without_receive_reduce",
    "write_family",
    "write_mscclpp",
    "write_nccl_tuner",
    "write_trace",
    "write_xml",
]
