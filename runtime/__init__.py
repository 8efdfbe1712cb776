"""Runtimes: per-rank programs, their interpreter, exporters and execution."""

from .all_to_allv.all_to_all_single import all_to_all_single, differentiable_all_to_all
from .all_to_allv.dispatch import Dispatched, MoeHandle, moe_combine, moe_dispatch
from .execution.execute import execute
from .execution.jax_function import jax_function
from .execution.launch import RunReport, run_local
from .execution.rendezvous import launched_rank
from .health.channels import ChannelScore
from .health.diagnose import Diagnosis, RunDiagnosis, SizeDiagnosis, diagnose
from .health.expect import Expectation, SizeExpectation, expect
from .health.explanations import Explanation
from .health.measurements import machine_of, measurements, network
from .health.probe import Probe, probe, read_probe
from .health.probe_identify import Identification, PartState
from .lowering.lower import lower
from .measuring.bench_report import BenchReport
from .measuring.calibrate import Calibration, Measurement, calibrate
from .measuring.measure_plans import measure_plans
from .measuring.measured_times import MeasuredTimes, read_nccl_tests
from .measuring.measured_tuner import write_measured_tuner
from .msccl.export import interpret_file, read_xml, to_xml_text
from .msccl.linter import lint_file
from .mscclpp.execution_plan import ExecutionPlan
from .mscclpp.interpret import interpret_mscclpp
from .mscclpp.reader import read_mscclpp
from .nccl.families import write_family
from .nccl.tuner import write_nccl_tuner
from .nccl.windows import lint_family
from .programs.check import check_program
from .programs.interpret import run_program
from .programs.program import ChunkRange, Dependency, Instruction, Program, RankProgram, ThreadBlock
from .programs.transformations import without_receive_reduce
from .resharding.cells import Resharding, TensorMove, compare_shardings
from .resharding.reshard import ReshardWork, reshard
from .resharding.sharding import Mesh, Replicate, Shard, Sharding, cache_sharding, expert_shardings
from .scoring.certify import certify
from .scoring.score import Score, score
from .simulation.chakra_export import plan_traces
from .simulation.chakra_replay import Replay, replay_traces
from .simulation.chakra_trace import Attribute, NodeKind, Trace, TraceNode, read_trace, write_trace
from .simulation.simulate import Simulation, simulate

__all__ = ["ChunkRange", "Dependency", "Instruction", "Program", "RankProgram", "ThreadBlock"]
__all__ += ["check_program", "lower", "run_program", "without_receive_reduce"]
__all__ += ["interpret_file", "lint_family", "lint_file", "read_xml", "to_xml_text"]
__all__ += ["ExecutionPlan", "interpret_mscclpp", "read_mscclpp"]
__all__ += ["write_family", "write_measured_tuner", "write_nccl_tuner"]
__all__ += ["Attribute", "NodeKind", "Replay", "Trace", "TraceNode"]
__all__ += ["plan_traces", "read_trace", "replay_traces", "write_trace"]
__all__ += ["Simulation", "simulate"]
__all__ += ["Score", "certify", "score"]
__all__ += ["RunReport", "all_to_all_single", "execute", "jax_function", "launched_rank", "run_local"]
__all__ += ["Dispatched", "MoeHandle", "differentiable_all_to_all", "moe_combine", "moe_dispatch"]
__all__ += ["Mesh", "Replicate", "ReshardWork", "Resharding", "Shard", "Sharding", "TensorMove"]
__all__ += ["cache_sharding", "compare_shardings", "expert_shardings", "reshard"]
__all__ += ["BenchReport", "Calibration", "MeasuredTimes", "Measurement", "calibrate", "measure_plans"]
__all__ += ["read_nccl_tests"]
__all__ += ["Expectation", "SizeExpectation", "expect", "machine_of", "measurements", "network"]
__all__ += ["ChannelScore", "Diagnosis", "Explanation", "RunDiagnosis", "SizeDiagnosis", "diagnose"]
__all__ += ["Identification", "PartState", "Probe", "probe", "read_probe"]
