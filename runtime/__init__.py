"""How a plan reaches hardware: per-rank programs, their interpreter, exporters and execution."""

from __future__ import annotations

from .all_to_all import all_to_all_single
from .bench import measure_plans
from .bench_report import BenchReport
from .chakra import Attribute, NodeKind, Trace, TraceNode, rotate_trace, write_trace
from .chakra_export import plan_traces
from .chakra_reader import read_trace
from .checks import check_program
from .distributed import execute, execute_allgather
from .interpreter import interpret_file, run_program
from .launch import run_local
from .lint import lint_file
from .lowering import lower, lower_allgather
from .msccl import read_xml, to_xml_text, write_xml
from .msccl_windows import lint_family
from .mscclpp import to_execution_plan, write_mscclpp
from .mscclpp_machine import interpret_mscclpp
from .mscclpp_plan import ExecutionPlan
from .mscclpp_reader import read_mscclpp
from .nccl_tuner import write_nccl_tuner
from .program import ChunkRange, Dependency, Instruction, Program, RankProgram, ThreadBlock
from .run_report import RunReport
from .simulation import Simulation
from .simulator import simulate, simulate_sizes
from .torchrun import launched_rank
from .trace_replay import Replay, replay_traces
from .unfused import without_receive_reduce

__all__ = [
    "Attribute",
    "BenchReport",
    "ChunkRange",
    "Dependency",
    "ExecutionPlan",
    "Instruction",
    "NodeKind",
    "Program",
    "RankProgram",
    "Replay",
    "RunReport",
    "Simulation",
    "ThreadBlock",
    "Trace",
    "TraceNode",
    "all_to_all_single",
    "check_program",
    "execute",
    "execute_allgather",
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
    "write_mscclpp",
    "write_nccl_tuner",
    "write_trace",
    "write_xml",
]
