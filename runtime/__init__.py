"""How a plan reaches hardware: per-rank programs, their interpreter, exporters and execution."""

from __future__ import annotations

from .all_to_all import all_to_all_single
from .checks import check_program
from .distributed import execute, execute_allgather
from .interpreter import interpret_file, run_program
from .launch import run_local
from .lowering import lower, lower_allgather
from .msccl import read_xml, to_xml_text, write_xml
from .program import ChunkRange, Dependency, Instruction, Program, RankProgram, ThreadBlock
from .run_report import RunReport
from .torchrun import launched_rank
from .unfused import without_receive_reduce

__all__ = [
    "ChunkRange",
    "Dependency",
    "Instruction",
    "Program",
    "RankProgram",
    "RunReport",
    "ThreadBlock",
    "all_to_all_single",
    "check_program",
    "execute",
    "execute_allgather",
    "interpret_file",
    "launched_rank",
    "lower",
    "lower_allgather",
    "read_xml",
    "run_local",
    "run_program",
    "to_xml_text",
    "without_receive_reduce",
    "write_xml",
]
